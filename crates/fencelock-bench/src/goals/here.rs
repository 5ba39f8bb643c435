//! What the figures of the stores without a server are held to.

use super::Bound::{AtLeast, AtMost};
use super::{Goal, goal, ratio, short};
use crate::contestant::Contestant::{self, Current, Filelock, Floor};
use crate::families::hand_over::{self, HandOver};
use crate::families::{Measured, Row, figure};
use crate::site::Network::Loopback;

pub(super) fn memory(measured: &Measured) -> Vec<Goal> {
    let cycle = p50(measured, Current).map(|nanos| nanos / 1000.0);
    vec![goal("cycle p50, µs, `Io::CurrentRuntime`".to_owned(), AtMost(5.0), cycle)]
}

pub(super) fn file(measured: &Measured) -> Vec<Goal> {
    let cycle = |name: &str, other, most| {
        let what = format!("cycle p50 ÷ {name}, `Io::CurrentRuntime`");
        goal(what, AtMost(most), ratio(p50(measured, Current), p50(measured, other)))
    };
    let mut goals = vec![cycle("bare system calls", Floor, 1.5), cycle("`filelock`'s", Filelock, 0.5)];
    let hand_overs = measured.hand_over.iter().filter(|row| row.contestant.is_fencelock());
    goals.extend(hand_overs.flat_map(|row| hand_over(measured, row)));
    let contended = measured.contended.iter().filter(|row| row.contestant.is_fencelock());
    goals.extend(contended.map(|Row { contestant, figure, .. }| {
        let (processes, each) = (figure.way.processes(), figure.way.each());
        let what = format!("least / most served, {processes} × {each}, {}", short(*contestant));
        goal(what, AtLeast(0.95), Some(figure.served()))
    }));
    goals.extend(super::memory(measured, ','));
    goals
}

fn p50(measured: &Measured, who: Contestant) -> Option<f64> {
    figure(&measured.cycle, who, Loopback).map(|times| times.p50)
}

/// With two waiters there is no goal.
fn hand_over(measured: &Measured, row: &Row<HandOver>) -> Vec<Goal> {
    let HandOver { shape, times, .. } = row.figure;
    if shape.waiters < 100 {
        return Vec::new();
    }
    let theirs = hand_over::of(&measured.hand_over, Filelock, Loopback, shape).map(|other| other.times.p50);
    let of = format!("{} waiters, {} process(es), {}", shape.waiters, shape.sessions, short(row.contestant));
    vec![
        goal(format!("hand-over p50 ÷ `filelock`'s, {of}"), AtMost(0.2), ratio(Some(times.p50), theirs)),
        goal(format!("hand-over p99 ÷ p50, {of}"), AtMost(10.0), Some(times.p99 / times.p50)),
    ]
}
