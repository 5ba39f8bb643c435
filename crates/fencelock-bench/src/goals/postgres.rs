//! What the figures of PostgreSQL are held to.

use super::Bound::{AtLeast, AtMost};
use super::{Goal, goal, memory, ratio, short};
use crate::contestant::Contestant::{self, Current, OwnApart, PgFloor, PgShedLock, PgTable};
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
    let p50 = |who, network| figure(&measured.cycle, who, network).map(|times| times.p50);
    let against = |ours, network: Network, theirs, most| {
        let what = format!("cycle, {}: {} ÷ {}", network.title(), short(ours), short(theirs));
        goal(what, AtMost(most), ratio(p50(ours, network), p50(theirs, network)))
    };
    vec![
        against(Current, Loopback, PgFloor, 1.3),
        against(OwnApart, Loopback, PgFloor, 1.3),
        against(Current, Delay, PgFloor, 1.05),
        against(OwnApart, Delay, PgFloor, 1.05),
        against(Current, Delay, PgShedLock, 1.05),
        against(OwnApart, Delay, PgShedLock, 1.05),
    ]
}

fn contended(measured: &Measured, way: Way, who: Contestant, network: Network) -> Option<&Contended> {
    contended::of(&measured.contended, way, who, network)
}

fn crowds(measured: &Measured) -> Vec<Goal> {
    let rate = |way, who, network| contended(measured, way, who, network).map(|all| all.rate);
    let lanes = |network: Network| {
        let what = format!("64 tasks on 64 names, {}: {} ÷ {}", network.title(), short(Current), short(PgFloor));
        goal(what, AtLeast(0.5), ratio(rate(Way::Apart, Current, network), rate(Way::Apart, PgFloor, network)))
    };
    let crowd = |way: Way, of: &str| {
        let what = format!("{of}, loopback: {} ÷ {}", short(Current), short(PgTable));
        goal(what, AtLeast(1.0), ratio(rate(way, Current, Loopback), rate(way, PgTable, Loopback)))
    };
    let served = |way, of: &str| {
        let served = contended(measured, way, Current, Loopback).map(Contended::served);
        goal(format!("least ÷ most served, {of}, loopback"), AtLeast(0.95), served)
    };
    vec![
        lanes(Loopback),
        lanes(Delay),
        crowd(Way::Together, "32 waiters of one process"),
        crowd(Way::Processes, "4 processes × 8 waiters"),
        served(Way::Together, "32 waiters of one process"),
        served(Way::Processes, "4 processes × 8 waiters"),
    ]
}

fn hand_over(measured: &Measured, waiters: u64) -> Vec<Goal> {
    let times = |who, network| with(&measured.hand_over, who, network, waiters).map(|figure| figure.times);
    let of = |network: Network| {
        let ours = times(Current, network);
        let floor = times(PgFloor, network).map(|times| times.p50);
        let what =
            format!("hand-over, {waiters} waiters, {}: {} ÷ {}", network.title(), short(Current), short(PgFloor));
        let tail = format!("hand-over, {waiters} waiters, {}: p99 ÷ p50, {}", network.title(), short(Current));
        [
            goal(what, AtMost(1.5), ratio(ours.map(|times| times.p50), floor)),
            goal(tail, AtMost(5.0), ratio(ours.map(|times| times.p99), ours.map(|times| times.p50))),
        ]
    };
    [Loopback, Delay].into_iter().flat_map(of).collect()
}
