//! What the figures of ZooKeeper are held to.

use super::Bound::{AtLeast, AtMost};
use super::{Goal, goal, memory, ratio, short};
use crate::contestant::Contestant::{self, Curator, Current, OwnApart, ZkFloor, ZkFloorListed};
use crate::families::contended::{self, Way};
use crate::families::hand_over::with;
use crate::families::{Measured, figure};
use crate::site::Network::{Delay, Loopback};

const PEERS: [Contestant; 4] = [Contestant::ZkCrate, Curator, Contestant::GoZk, Contestant::Kazoo];
const WAITERS: [u64; 3] = [2, 100, 1000];

pub(super) fn all(measured: &Measured) -> Vec<Goal> {
    let mut goals = Vec::new();
    // Behind a network the thread of our own is what users have; on loopback its two hops are no small thing.
    for ours in [Current, OwnApart] {
        goals.extend(cycle_behind_the_delay(measured, ours));
        goals.extend(WAITERS.into_iter().flat_map(|waiters| hand_over_behind_the_delay(measured, ours, waiters)));
    }
    goals.extend(on_loopback(measured));
    goals.push(locks(measured));
    goals.extend(memory(measured, ':'));
    goals.extend(wake_ups(measured));
    goals
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
    let lanes = |who| contended::of(&measured.contended, Way::Apart, who, Loopback).map(|all| all.rate);
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

fn locks(measured: &Measured) -> Goal {
    let seconds = |who| figure(&measured.held, who, Loopback).map(|figure| figure.seconds);
    let fastest = PEERS.iter().filter_map(|peer| seconds(*peer)).reduce(f64::min);
    let what = format!("taking many locks on new names: {} ÷ the fastest peer", short(Current));
    goal(what, AtMost(1.0), ratio(seconds(Current), fastest))
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
