//! What the figures of MariaDB are held to.

use super::Bound::{AtLeast, AtMost};
use super::{Goal, goal, memory, ratio, short};
use crate::contestant::Contestant::{Current, MyFloor, MyTable, MyTableUnprepared, OwnApart};
use crate::families::contended::{self, Contended, Way};
use crate::families::hand_over::with;
use crate::families::{Measured, figure};
use crate::site::Network::{self, Delay, Loopback};

const WAITERS: [u64; 3] = [2, 100, 1000];

pub(super) fn all(measured: &Measured) -> Vec<Goal> {
    let mut goals = cycle(measured);
    goals.extend(crowds(measured));
    goals.extend(WAITERS.into_iter().flat_map(|waiters| hand_over(measured, waiters)));
    let aged = figure(&measured.aged, Current, Loopback).map(|aged| aged.ratio());
    goals.push(goal("cycle beside an open transaction: old ÷ fresh".to_owned(), AtMost(2.0), aged));
    goals.extend(memory(measured, ':'));
    goals
}

fn cycle(measured: &Measured) -> Vec<Goal> {
    let p50 = |who| figure(&measured.cycle, who, Delay).map(|times| times.p50);
    let against = |ours, theirs, most| {
        let what = format!("cycle, {}: {} ÷ {}", Delay.title(), short(ours), short(theirs));
        goal(what, AtMost(most), ratio(p50(ours), p50(theirs)))
    };
    vec![
        against(Current, MyFloor, 1.06),
        against(OwnApart, MyFloor, 1.06),
        against(Current, MyTable, 0.55),
        against(Current, MyTableUnprepared, 0.55),
    ]
}

fn crowds(measured: &Measured) -> Vec<Goal> {
    let of = |way| contended::of(&measured.contended, way, Current, Loopback);
    let ways = [(Way::Together, "32 waiters of one process"), (Way::Processes, "4 processes × 8 waiters")];
    let both = ways.into_iter().flat_map(|(way, title)| {
        [
            goal(format!("least ÷ most served, {title}, loopback"), AtLeast(0.95), of(way).map(Contended::served)),
            goal(format!("deadlocks, {title}, loopback"), AtMost(0.0), of(way).map(|all| all.undone as f64)),
        ]
    });
    both.collect()
}

fn hand_over(measured: &Measured, waiters: u64) -> Vec<Goal> {
    let times = |who, network| with(&measured.hand_over, who, network, waiters).map(|figure| figure.times.p50);
    let of = |network: Network| {
        let what =
            format!("hand-over, {waiters} waiters, {}: {} ÷ {}", network.title(), short(Current), short(MyFloor));
        goal(what, AtMost(1.5), ratio(times(Current, network), times(MyFloor, network)))
    };
    [Loopback, Delay].map(of).into()
}
