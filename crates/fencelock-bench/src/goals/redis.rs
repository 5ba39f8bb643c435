//! What the figures of Redis are held to.

use super::Bound::{AtLeast, AtMost};
use super::{Goal, goal, memory, ratio, short};
use crate::contestant::Contestant::{
    self, Current, CurrentPlain, CurrentRedisson, NpmRedlock, OwnApart, PlainFloor, RedisFloor, Redisson, RedissonFair,
    Redsync,
};
use crate::families::contended::{self, Contended, Way};
use crate::families::hand_over::with;
use crate::families::{Measured, figure};
use crate::site::Network::{self, Delay, Loopback, OneCore};

const PEERS: [Contestant; 5] = [Contestant::Rslock, Redisson, RedissonFair, Contestant::Redsync, Contestant::RedisPy];
const WAITERS: [u64; 3] = [2, 100, 1000];

pub(super) fn all(measured: &Measured) -> Vec<Goal> {
    let mut goals = cycle(measured);
    goals.extend(lanes(measured));
    goals.extend(WAITERS.into_iter().flat_map(|waiters| hand_over(measured, waiters)));
    goals.extend(memory(measured, ':'));
    goals.extend(fleets(measured));
    goals
}

/// The layouts of other clients, against these clients.
fn fleets(measured: &Measured) -> Vec<Goal> {
    let cycle = |ours, theirs, most| {
        let p50 = |who| figure(&measured.cycle, who, OneCore).map(|times| times.p50);
        let what = format!("cycle, {}: {} ÷ {}", OneCore.title(), short(ours), short(theirs));
        goal(what, AtMost(most), ratio(p50(ours), p50(theirs)))
    };
    let redlock = |theirs| {
        let p50 = |who| figure(&measured.redlock, who, Delay).map(|times| times.p50);
        let what = format!("cycle, three masters, {}: `redlock:` ÷ {}", Delay.title(), short(theirs));
        goal(what, AtMost(0.7), ratio(p50(Current), p50(theirs)))
    };
    let requests = |what: &str, of: &dyn Fn(Contestant) -> Option<f64>| {
        let what = format!("requests, {what}: {} ÷ {}", short(CurrentRedisson), short(Redisson));
        goal(what, AtMost(0.5), ratio(of(CurrentRedisson), of(Redisson)))
    };
    vec![
        cycle(CurrentPlain, PlainFloor, 1.10),
        cycle(CurrentRedisson, Redisson, 0.6),
        redlock(Redsync),
        redlock(NpmRedlock),
        requests("32 waiters of one process, per section", &|who| {
            contended(measured, Way::Together, who, Loopback).map(|all| all.requests)
        }),
        requests("4 processes × 8 waiters, per section", &|who| {
            contended(measured, Way::Processes, who, Loopback).map(|all| all.requests)
        }),
        requests("a queue of 100 in one session, per hand-over", &|who| {
            figure(&measured.counts, who, Loopback).map(|counts| counts.together.requests)
        }),
    ]
}

fn cycle(measured: &Measured) -> Vec<Goal> {
    let p50 = |who, network| figure(&measured.cycle, who, network).map(|times| times.p50);
    let against = |ours, network: Network, theirs, most| {
        let what = format!("cycle, {}: {} ÷ {}", network.title(), short(ours), short(theirs));
        goal(what, AtMost(most), ratio(p50(ours, network), p50(theirs, network)))
    };
    vec![
        against(Current, OneCore, RedisFloor, 1.10),
        against(Current, Delay, RedisFloor, 1.10),
        against(OwnApart, Delay, RedisFloor, 1.10),
        against(OwnApart, Delay, Current, 1.03),
    ]
}

fn contended(measured: &Measured, way: Way, who: Contestant, network: Network) -> Option<&Contended> {
    contended::of(&measured.contended, way, who, network)
}

fn lanes(measured: &Measured) -> Vec<Goal> {
    let rate = |who, network| contended(measured, Way::Apart, who, network).map(|all| all.rate);
    let against = |network: Network, theirs, least| {
        let what = format!("64 tasks on 64 names, {}: {} ÷ {}", network.title(), short(Current), short(theirs));
        goal(what, AtLeast(least), ratio(rate(Current, network), rate(theirs, network)))
    };
    let processes = |who| contended(measured, Way::Processes, who, Loopback);
    let fair = ratio(processes(Current).map(|all| all.rate), processes(RedissonFair).map(|all| all.rate));
    let of = "4 processes × 8 waiters, loopback";
    let mut goals =
        vec![against(Loopback, RedisFloor, 0.85), against(Delay, RedisFloor, 0.95), against(Loopback, Redisson, 8.0)];
    goals.extend(PEERS.map(|peer| against(Delay, peer, 1.5)));
    goals.push(goal(format!("{of}: {} ÷ {}", short(Current), short(RedissonFair)), AtLeast(5.0), fair));
    goals.push(goal(format!("least ÷ most served, {of}"), AtLeast(0.95), processes(Current).map(Contended::served)));
    goals
}

fn hand_over(measured: &Measured, waiters: u64) -> Vec<Goal> {
    let times = |who, network| with(&measured.hand_over, who, network, waiters).map(|figure| figure.times);
    let p50 = |who, network| times(who, network).map(|times| times.p50);
    let on = |network: Network| {
        let of = format!("{waiters} waiters, {}", network.title());
        let against = |theirs, most| {
            let what = format!("hand-over, {of}: {} ÷ {}", short(Current), short(theirs));
            goal(what, AtMost(most), ratio(p50(Current, network), p50(theirs, network)))
        };
        let redisson = if network == Delay { 0.5 } else { 0.3 };
        let tail = format!("hand-over, {of}: p99 ÷ p50, {}", short(Current));
        [
            against(RedisFloor, 1.5),
            against(Redisson, redisson),
            against(RedissonFair, redisson),
            goal(tail, AtMost(5.0), times(Current, network).map(|times| times.p99 / times.p50)),
        ]
    };
    [Loopback, Delay].into_iter().flat_map(on).collect()
}
