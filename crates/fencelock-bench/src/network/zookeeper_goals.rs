//! What the figures of ZooKeeper are held to.

use super::Measured;
use super::hand_over::with;
use super::site::Network::{Delay, Loopback};
use crate::contestant::Contestant::{self, Curator, Current, OwnApart, ZkFloor, ZkFloorListed};
use crate::goals::Bound::{self, AtLeast, AtMost};
use crate::goals::Goal;
use crate::rows::figure;

const PEERS: [Contestant; 4] = [Contestant::ZkCrate, Curator, Contestant::GoZk, Contestant::Kazoo];
const WAITERS: [u64; 4] = [2, 10, 100, 1000];

pub(super) fn all(measured: &Measured) -> Vec<Goal> {
    let mut goals = Vec::new();
    // Behind a network the thread of our own is what users have; on loopback its two hops are no small thing.
    for ours in [Current, OwnApart] {
        goals.extend(cycle_behind_the_delay(measured, ours));
        goals.extend(WAITERS.into_iter().flat_map(|waiters| hand_over_behind_the_delay(measured, ours, waiters)));
    }
    goals.extend(on_loopback(measured));
    goals.extend(locks(measured));
    goals.extend(wake_ups(measured));
    goals
}

fn goal(what: String, bound: Bound, value: Option<f64>) -> Goal {
    Goal { what, bound, value }
}

fn short(contestant: Contestant) -> &'static str {
    contestant.title().trim_start_matches("fencelock, ")
}

fn ratio(ours: Option<f64>, theirs: Option<f64>) -> Option<f64> {
    Some(ours? / theirs?)
}

fn cycle_behind_the_delay(measured: &Measured, ours: Contestant) -> Vec<Goal> {
    let p50 = |who| figure(&measured.cycle, who, Delay).map(|times| times.p50);
    let against = |who: Contestant, most| {
        goal(
            format!("cycle, 2 ms each way: {} ÷ {}", short(ours), short(who)),
            AtMost(most),
            ratio(p50(ours), p50(who)),
        )
    };
    let mut goals = vec![against(ZkFloorListed, 1.05)];
    if ours == OwnApart {
        goals.push(against(Current, 1.03));
    }
    goals.extend(PEERS.into_iter().map(|peer| against(peer, 0.70)));
    goals
}

fn hand_over_behind_the_delay(measured: &Measured, ours: Contestant, waiters: u64) -> Vec<Goal> {
    let p50 = |who| with(&measured.hand_over, who, Delay, waiters).map(|figure| figure.times.p50);
    let against = |who: Contestant, most| {
        let what = format!("hand-over, {waiters} waiters, 2 ms each way: {} ÷ {}", short(ours), short(who));
        goal(what, AtMost(most), ratio(p50(ours), p50(who)))
    };
    [against(ZkFloor, 1.20)].into_iter().chain(PEERS.into_iter().map(|peer| against(peer, 0.60))).collect()
}

fn on_loopback(measured: &Measured) -> Vec<Goal> {
    let cycle = |who| figure(&measured.cycle, who, Loopback).map(|times| times.p50);
    let lanes = |who| figure(&measured.apart, who, Loopback).map(|throughput| throughput.rate);
    let hand_over = |waiters| with(&measured.hand_over, Current, Loopback, waiters).map(|figure| figure.times.p50);
    let lane = |who: Contestant, least| {
        let what = format!("64 tasks on 64 names, loopback: {} ÷ {}", short(Current), short(who));
        goal(what, AtLeast(least), ratio(lanes(Current), lanes(who)))
    };
    vec![
        goal(
            format!("cycle, loopback: {} ÷ {}", short(Current), short(ZkFloorListed)),
            AtMost(1.10),
            ratio(cycle(Current), cycle(ZkFloorListed)),
        ),
        lane(ZkFloorListed, 0.95),
        lane(ZkFloor, 0.95),
        lane(Curator, 2.0),
        goal(
            format!("hand-over, loopback, 1,000 waiters ÷ 100: {}", short(Current)),
            AtMost(1.2),
            ratio(hand_over(1000), hand_over(100)),
        ),
    ]
}

fn locks(measured: &Measured) -> Vec<Goal> {
    let held = |who| figure(&measured.held, who, Loopback);
    let fastest = PEERS.iter().filter_map(|peer| Some(held(*peer)?.seconds)).reduce(f64::min);
    let ours = |who: Contestant| {
        let figure = held(who);
        let held = format!("client memory per held lock, bytes: {}", short(who));
        let waiting = format!("client memory per waiting lock, the caller's future aside, bytes: {}", short(who));
        [
            goal(held, AtMost(1024.0), figure.map(|figure| figure.held)),
            goal(waiting, AtMost(2048.0), figure.map(|figure| figure.waiting - figure.future)),
        ]
    };
    let what = format!("taking many locks on new names: {} ÷ the fastest peer", short(Current));
    let took = ratio(held(Current).map(|figure| figure.seconds), fastest);
    let memory = [Current, Contestant::Own].into_iter().flat_map(ours);
    [goal(what, AtMost(1.0), took)].into_iter().chain(memory).collect()
}

/// A release tells the releaser itself too, who watches its own node: that is no wake-up, and is not counted here.
fn wake_ups(measured: &Measured) -> Vec<Goal> {
    let apart = figure(&measured.counts, Current, Loopback).and_then(|counts| counts.apart);
    let goal = |what: &str, value| goal(format!("{what}, each in a session of its own"), AtMost(1.0), value);
    vec![
        goal("waiters woken per hand-over", apart.map(|apart| apart.woken)),
        goal("others told of a release, off the way of the hand-over", apart.map(|apart| apart.beside)),
    ]
}
