//! What the figures of Redis are held to.

use super::Measured;
use super::hand_over::with;
use super::site::Network::{self, Delay, Loopback, OneCore};
use crate::contestant::Contestant::{
    self, Current, CurrentPlain, CurrentRedisson, OwnApart, PlainFloor, RedisFloor, Redisson, RedissonFair,
};
use crate::goals::Bound::{self, AtLeast, AtMost};
use crate::goals::Goal;
use crate::rows::figure;

const PEERS: [Contestant; 5] = [Contestant::Rslock, Redisson, RedissonFair, Contestant::Redsync, Contestant::RedisPy];
const WAITERS: [u64; 4] = [2, 10, 100, 1000];

pub(super) fn all(measured: &Measured) -> Vec<Goal> {
    let mut goals = cycle(measured);
    goals.extend(lanes(measured));
    goals.extend(WAITERS.into_iter().flat_map(|waiters| hand_over(measured, waiters)));
    let requests =
        |who| figure(&measured.counts, who, Loopback).map(|figure: &super::counts::Counts| figure.together.requests);
    let what = format!("requests per hand-over, 100 waiters: {} ÷ {}", short(CurrentRedisson), short(Redisson));
    goals.push(goal(what, AtMost(0.5), ratio(requests(CurrentRedisson), requests(Redisson))));
    goals.extend(locks(measured));
    goals
}

fn goal(what: String, bound: Bound, value: Option<f64>) -> Goal {
    Goal { what, bound, value }
}

fn short(contestant: Contestant) -> &'static str {
    contestant.title().trim_start_matches("fencelock, ")
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
        against(CurrentPlain, OneCore, PlainFloor, 1.10),
        against(CurrentRedisson, OneCore, Redisson, 0.6),
    ]
}

fn ratio(ours: Option<f64>, theirs: Option<f64>) -> Option<f64> {
    Some(ours? / theirs?)
}

fn lanes(measured: &Measured) -> Vec<Goal> {
    let rate = |who, network| figure(&measured.apart, who, network).map(|throughput| throughput.rate);
    let against = |network: Network, theirs, least| {
        let what = format!("64 tasks on 64 names, {}: {} ÷ {}", network.title(), short(Current), short(theirs));
        goal(what, AtLeast(least), ratio(rate(Current, network), rate(theirs, network)))
    };
    let processes = |who| figure(&measured.processes, who, Loopback);
    let fair = ratio(processes(Current).map(|all| all.rate), processes(RedissonFair).map(|all| all.rate));
    let of = "4 processes × 8 waiters, loopback";
    let mut goals =
        vec![against(Loopback, RedisFloor, 0.85), against(Delay, RedisFloor, 0.95), against(Loopback, Redisson, 8.0)];
    goals.extend(PEERS.map(|peer| against(Delay, peer, 1.5)));
    goals.push(goal(format!("{of}: {} ÷ {}", short(Current), short(RedissonFair)), AtLeast(5.0), fair));
    goals.push(goal(format!("least ÷ most served, {of}"), AtLeast(0.95), processes(Current).map(|all| all.served)));
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

fn locks(measured: &Measured) -> Vec<Goal> {
    let ours = |who: Contestant| {
        let figure = figure(&measured.held, who, Loopback);
        let held = format!("client memory per held lock, bytes: {}", short(who));
        let waiting = format!("client memory per waiting lock, the caller's future aside, bytes: {}", short(who));
        [
            goal(held, AtMost(1024.0), figure.map(|figure| figure.held)),
            goal(waiting, AtMost(2048.0), figure.map(|figure| figure.waiting - figure.future)),
        ]
    };
    [Current, Contestant::Own].into_iter().flat_map(ours).collect()
}
