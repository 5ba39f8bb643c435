//! The goals of the figures, as one table. A goal that is missed is printed as plainly as one that is met.

use Against::{Alone, Itself, Others, P50};
use Bound::{AtLeast, AtMost};
use Network::{Delay, Loopback, OneCore};
use Store::{Etcd, File, Memory, Mysql, Postgres, Redis, Redlock, ZooKeeper};
use What::{Aged, Aside, Client, Cycle, HandOver, HandOverTail, Held, QueueRequests, Rate, Requests, Seconds, Served};
use What::{Server, Undone, Waiting, Woken};

use crate::contestant::Contestant::{
    self, Clientv3, Curator, Current, CurrentPlain, CurrentRedisson, EtcdFloor, Filelock, Floor, GoZk, Kazoo,
    NpmRedlock, Own, OwnApart, PlainFloor, RedisFloor, RedisPy, Redisson, RedissonFair, Redsync, Rslock, ShedLock,
    SqlFloor, Table, TableUnprepared, ZkCrate, ZkFloor, ZkFloorListed,
};
use crate::measured::{Measured, Row};
use crate::what::Way::{Apart, Processes, Services, Together};
use crate::what::{Network, Shape, Store, What, one};

#[derive(Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

/// The comparison of a figure: none, the same figure of other contestants, or another figure of the same contestant.
#[derive(Clone, Copy)]
enum Against {
    Alone,
    Others(&'static [Contestant]),
    Itself(What),
    /// A p99 with its p50.
    P50,
}

/// A goal for each store, figure, network, contestant of ours and other contestant.
struct Line(&'static [Store], &'static [What], &'static [Network], &'static [Contestant], Against, Bound);

const NEAR: &[Network] = &[Loopback];
const FAR: &[Network] = &[Delay];
const BOTH: &[Network] = &[Loopback, Delay];
const SQL: &[Store] = &[Postgres, Mysql];
/// Near a server with a core of its own, and with any core.
const DEFAULT_APART: &[Contestant] = &[OwnApart];
const DEFAULT: &[Contestant] = &[Own];
const OURS: &[Contestant] = &[Current, OwnApart];
const ANY_OF_OURS: &[Contestant] = &[Current, Own, OwnApart];
const ZK_PEERS: &[Contestant] = &[ZkCrate, Curator, GoZk, Kazoo];
const REDIS_PEERS: &[Contestant] = &[Rslock, Redisson, RedissonFair, Redsync, RedisPy];
const REDISSONS: &[Contestant] = &[Redisson, RedissonFair];
const QUEUES: &[What] = &[HandOver(one(2)), HandOver(one(100)), HandOver(one(1000))];
const TAILS: &[What] = &[HandOverTail(one(2)), HandOverTail(one(100)), HandOverTail(one(1000))];
const LONG_TAILS: &[What] =
    &[HandOverTail(one(100)), HandOverTail(one(1000)), HandOverTail(four(100)), HandOverTail(four(1000))];
const LONG_QUEUES: &[What] = &[HandOver(one(100)), HandOver(one(1000)), HandOver(four(100)), HandOver(four(1000))];

const fn four(waiters: u64) -> Shape {
    Shape { waiters, sessions: 4 }
}

/// The goals of the stores' own sections: of medians.
const GOALS: &[Line] = &[
    Line(&[Memory], &[Cycle], NEAR, &[Current], Alone, AtMost(5000.0)),
    Line(&[File], &[Cycle], NEAR, &[Current], Others(&[Floor]), AtMost(1.5)),
    Line(&[File], &[Cycle], NEAR, &[Current], Others(&[Filelock]), AtMost(0.5)),
    Line(&[File], LONG_QUEUES, NEAR, ANY_OF_OURS, Others(&[Filelock]), AtMost(0.2)),
    Line(&[File], LONG_TAILS, NEAR, ANY_OF_OURS, P50, AtMost(10.0)),
    Line(&[File], &[Served(Together), Served(Processes)], NEAR, ANY_OF_OURS, Alone, AtLeast(0.95)),
    // Behind a network the I/O thread is the default; on loopback its two hops count.
    Line(&[ZooKeeper], &[Cycle], FAR, OURS, Others(&[ZkFloorListed]), AtMost(1.05)),
    Line(&[ZooKeeper], &[Cycle], FAR, OURS, Others(ZK_PEERS), AtMost(0.7)),
    Line(&[ZooKeeper], &[Cycle], FAR, DEFAULT_APART, Others(&[Current]), AtMost(1.03)),
    Line(&[ZooKeeper], QUEUES, FAR, OURS, Others(&[ZkFloor]), AtMost(1.2)),
    Line(&[ZooKeeper], QUEUES, FAR, OURS, Others(ZK_PEERS), AtMost(0.6)),
    Line(&[ZooKeeper], &[Cycle], NEAR, &[Current], Others(&[ZkFloorListed]), AtMost(1.1)),
    Line(&[ZooKeeper], &[Rate(Apart)], NEAR, &[Current], Others(&[ZkFloorListed, ZkFloor]), AtLeast(0.95)),
    Line(&[ZooKeeper], &[Rate(Apart)], NEAR, &[Current], Others(&[Curator]), AtLeast(2.0)),
    Line(&[ZooKeeper], &[HandOver(one(1000))], NEAR, &[Current], Itself(HandOver(one(100))), AtMost(1.2)),
    Line(&[ZooKeeper], &[Seconds], NEAR, &[Current], Others(ZK_PEERS), AtMost(1.0)),
    // The notification of a releaser for its own node is no wake-up, and is not counted here.
    Line(&[ZooKeeper], &[Woken, Aside], NEAR, &[Current], Alone, AtMost(1.0)),
    Line(&[Redis], &[Cycle], &[OneCore, Delay], &[Current], Others(&[RedisFloor]), AtMost(1.1)),
    Line(&[Redis], &[Cycle], FAR, DEFAULT_APART, Others(&[RedisFloor]), AtMost(1.1)),
    Line(&[Redis], &[Cycle], FAR, DEFAULT_APART, Others(&[Current]), AtMost(1.03)),
    Line(&[Redis], &[Cycle], &[OneCore], &[CurrentPlain], Others(&[PlainFloor]), AtMost(1.1)),
    Line(&[Redis], &[Cycle], &[OneCore], &[CurrentRedisson], Others(&[Redisson]), AtMost(0.6)),
    Line(&[Redis], &[Rate(Apart)], NEAR, &[Current], Others(&[RedisFloor]), AtLeast(0.85)),
    Line(&[Redis], &[Rate(Apart)], FAR, &[Current], Others(&[RedisFloor]), AtLeast(0.95)),
    Line(&[Redis], &[Rate(Apart)], NEAR, &[Current], Others(&[Redisson]), AtLeast(8.0)),
    Line(&[Redis], &[Rate(Apart)], FAR, &[Current], Others(REDIS_PEERS), AtLeast(1.5)),
    Line(&[Redis], &[Rate(Processes)], NEAR, &[Current], Others(&[RedissonFair]), AtLeast(5.0)),
    Line(&[Redis], &[Served(Processes)], NEAR, &[Current], Alone, AtLeast(0.95)),
    Line(&[Redis], QUEUES, BOTH, &[Current], Others(&[RedisFloor]), AtMost(1.5)),
    Line(&[Redis], QUEUES, NEAR, &[Current], Others(REDISSONS), AtMost(0.3)),
    Line(&[Redis], QUEUES, FAR, &[Current], Others(REDISSONS), AtMost(0.5)),
    Line(
        &[Redis],
        &[Requests(Together), Requests(Processes)],
        NEAR,
        &[CurrentRedisson],
        Others(&[Redisson]),
        AtMost(0.5),
    ),
    Line(&[Redis], &[QueueRequests], NEAR, &[CurrentRedisson], Others(&[Redisson]), AtMost(0.5)),
    Line(&[Redlock], &[Cycle], FAR, &[Current], Others(&[Redsync, NpmRedlock]), AtMost(0.7)),
    Line(SQL, &[Cycle], NEAR, &[Current], Others(&[SqlFloor]), AtMost(1.3)),
    Line(SQL, &[Cycle], NEAR, DEFAULT_APART, Others(&[SqlFloor]), AtMost(1.6)),
    Line(SQL, &[Cycle], FAR, OURS, Others(&[SqlFloor]), AtMost(1.05)),
    Line(&[Postgres], &[Cycle], FAR, OURS, Others(&[ShedLock]), AtMost(1.05)),
    Line(&[Mysql], &[Cycle], FAR, &[Current], Others(&[Table, TableUnprepared]), AtMost(0.55)),
    Line(&[Postgres], &[Server], NEAR, DEFAULT_APART, Others(&[SqlFloor]), AtMost(2.0)),
    Line(&[Mysql], &[Server], NEAR, DEFAULT_APART, Others(&[SqlFloor]), AtMost(2.5)),
    Line(SQL, &[Rate(Apart), Rate(Services)], BOTH, DEFAULT, Others(&[Table]), AtLeast(1.0)),
    Line(SQL, &[Rate(Processes)], NEAR, DEFAULT, Others(&[SqlFloor]), AtLeast(0.9)),
    Line(SQL, &[Served(Together), Served(Processes)], NEAR, DEFAULT, Alone, AtLeast(0.95)),
    Line(SQL, QUEUES, BOTH, OURS, Others(&[SqlFloor]), AtMost(1.5)),
    Line(SQL, &[Aged], NEAR, &[Current], Alone, AtMost(2.0)),
    Line(&[Mysql], &[Undone(Together), Undone(Processes)], NEAR, DEFAULT, Alone, AtMost(0.0)),
    Line(&[Etcd], &[Cycle], FAR, OURS, Others(&[EtcdFloor]), AtMost(1.05)),
    Line(&[Etcd], &[HandOver(one(100))], BOTH, OURS, Others(&[Clientv3]), AtMost(0.6)),
    Line(&[Etcd], &[Rate(Together)], BOTH, DEFAULT, Others(&[Clientv3]), AtLeast(3.0)),
    Line(&[Etcd], &[Rate(Apart)], BOTH, DEFAULT, Others(&[Clientv3]), AtLeast(2.0)),
    Line(&[Redis, Postgres], TAILS, BOTH, &[Current], P50, AtMost(5.0)),
    Line(&[File, ZooKeeper, Redis, Postgres, Mysql, Etcd], &[Held], NEAR, &[Current, Own], Alone, AtMost(1024.0)),
    Line(&[File, ZooKeeper, Redis, Postgres, Mysql, Etcd], &[Waiting], NEAR, &[Current, Own], Alone, AtMost(2048.0)),
];

/// The goals of the defaults: of every round.
const DEFAULTS: &[Line] = &[
    Line(&[Memory], &[Cycle], NEAR, DEFAULT, Alone, AtMost(3000.0)),
    Line(&[File], &[Cycle], NEAR, DEFAULT, Others(&[Floor]), AtMost(1.5)),
    Line(&[File], &[Cycle], NEAR, DEFAULT, Others(&[Filelock]), AtMost(0.5)),
    Line(&[File], &[HandOver(one(100)), HandOver(one(1000))], NEAR, DEFAULT, Others(&[Filelock]), AtMost(0.2)),
    Line(&[Redis], &[Cycle], NEAR, DEFAULT, Others(&[RedisFloor]), AtMost(1.15)),
    Line(&[Redis], &[Cycle], FAR, DEFAULT, Others(&[RedisFloor]), AtMost(1.1)),
    Line(&[Redis], &[HandOver(one(2)), HandOver(one(100))], FAR, DEFAULT, Others(&[RedisFloor]), AtMost(1.5)),
    Line(&[Redis], &[Rate(Apart)], FAR, DEFAULT, Others(&[RedisFloor]), AtLeast(0.95)),
    Line(&[ZooKeeper], &[Cycle], NEAR, DEFAULT, Others(&[ZkFloorListed]), AtMost(1.1)),
    Line(&[ZooKeeper], &[Cycle], FAR, DEFAULT, Others(&[ZkFloorListed]), AtMost(1.05)),
    Line(&[ZooKeeper], &[HandOver(one(2)), HandOver(one(100))], FAR, DEFAULT, Others(&[ZkFloor]), AtMost(1.2)),
    Line(&[ZooKeeper], &[Rate(Apart)], BOTH, DEFAULT, Others(&[ZkFloor]), AtLeast(0.95)),
    Line(&[Postgres], &[Cycle], NEAR, DEFAULT, Others(&[SqlFloor]), AtMost(1.6)),
    Line(&[Postgres], &[Cycle], FAR, DEFAULT, Others(&[SqlFloor]), AtMost(1.05)),
    Line(&[Postgres], QUEUES, NEAR, DEFAULT, Others(&[SqlFloor]), AtMost(1.5)),
    Line(&[Postgres], &[Held], NEAR, DEFAULT, Alone, AtMost(1024.0)),
    Line(&[Memory, File], &[Cycle], NEAR, DEFAULT, Others(&[Current]), AtMost(1.5)),
    Line(&[Memory, File, Redis, ZooKeeper], &[Client], NEAR, DEFAULT, Others(&[Current]), AtMost(1.5)),
    Line(&[Memory, File, Redis, ZooKeeper], &[Held], NEAR, DEFAULT, Alone, AtMost(1024.0)),
    Line(&[Memory, File, Redis, ZooKeeper], &[Waiting], NEAR, DEFAULT, Alone, AtMost(2048.0)),
];

/// A verdict on a goal.
struct Verdict {
    what: String,
    bound: String,
    is_met: bool,
    /// `None` without figures to compare.
    measured: Option<String>,
}

/// The goals of a store's section, or of the section of defaults; only goals with figures, unless everything was measured.
/// The document shows the unmet ones.
pub(crate) fn verdicts(section: Option<Store>, measured: &Measured, is_whole: bool, for_document: bool) -> String {
    let is_in = |store| section.is_none_or(|own| own == store || (own, store) == (Redis, Redlock));
    let mut verdicts = Vec::new();
    for Line(stores, whats, networks, ours, against, bound) in if section.is_none() { DEFAULTS } else { GOALS } {
        for &store in stores.iter().filter(|store| is_in(**store)) {
            for &what in *whats {
                for (&network, &ours) in networks.iter().flat_map(|on| ours.iter().map(move |who| (on, who))) {
                    let row = |who, what| measured.row(store, network, who, what);
                    let own = row(ours, what);
                    let mut judge = |against: &str, other: Option<Option<&Row>>| {
                        let rounds = compared(own, other, section.is_none());
                        let place =
                            if section == Some(store) { network.title().to_owned() } else { store.place(network) };
                        let of = format!("{}, {place}: {}{against}", what.title(), ours.short());
                        verdicts.push(verdict(of, what, other.is_none(), *bound, &rounds));
                    };
                    match against {
                        Alone => judge("", None),
                        Others(others) => others
                            .iter()
                            .for_each(|other| judge(&format!(" ÷ {}", other.short()), Some(row(*other, what)))),
                        P50 => judge(" ÷ p50", Some(row(ours, what.p50()))),
                        Itself(other) => judge(&format!(" ÷ {}", other.title()), Some(row(ours, *other))),
                    }
                }
            }
        }
    }
    verdicts.retain(|verdict| is_whole || verdict.measured.is_some());
    summary(&verdicts, for_document)
}

/// The figure, or its ratio to the other figure: for each round, or for all rounds. `None` if a contestant was not measured, or did nothing.
fn compared(own: Option<&Row>, other: Option<Option<&Row>>, each_round: bool) -> Vec<f64> {
    let figures = |row: &Row| if each_round { row.rounds.clone() } else { vec![row.value()] };
    let mut figures = match (own.map(figures), other.map(|other| other.map(figures))) {
        (Some(own), None) => own,
        (Some(own), Some(Some(other))) => own.iter().zip(other).map(|(own, other)| own / other).collect(),
        _ => Vec::new(),
    };
    figures.retain(|figure| figure.is_finite());
    figures
}

fn verdict(of: String, what: What, is_alone: bool, bound: Bound, figures: &[f64]) -> Verdict {
    // A time alone is written in microseconds.
    let (unit, divisor) = if is_alone && what == Cycle { (" µs", 1000.0) } else { ("", 1.0) };
    let least = figures.iter().copied().fold(f64::INFINITY, f64::min) / divisor;
    let most = figures.iter().copied().fold(f64::NEG_INFINITY, f64::max) / divisor;
    let (bound, holds) = match bound {
        AtMost(bound) => (format!("≤ {}{unit}", bound / divisor), most <= bound / divisor),
        AtLeast(bound) => (format!("≥ {bound}"), least >= bound),
    };
    let measured = match figures {
        [] => None,
        [_] => Some(format!("{least:.2}")),
        _ => Some(format!("{least:.2}–{most:.2}")),
    };
    Verdict { what: of, bound, is_met: holds && measured.is_some(), measured }
}

/// How many goals are met, and a line for each; in the document for each that is not.
fn summary(verdicts: &[Verdict], for_document: bool) -> String {
    let met = verdicts.iter().filter(|verdict| verdict.is_met).count();
    let shown = verdicts.iter().filter(|verdict| !for_document || !verdict.is_met);
    let lines: String = shown
        .map(|Verdict { what, bound, is_met, measured }| match measured {
            None => format!("- {what}: not measured ({bound})\n"),
            Some(measured) if *is_met => format!("- {what}: {measured} ({bound})\n"),
            Some(measured) => format!("- {what}: **{measured}** ({bound})\n"),
        })
        .collect();
    let end = if lines.is_empty() { "." } else { ":\n\n" };
    let not = if lines.is_empty() || !for_document { "" } else { ", not these" };
    format!("{met} of {} goals are met{not}{end}{lines}\n", verdicts.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(own: Contestant, ours: &[f64], theirs: &[f64]) -> Measured {
        let mut measured = Measured::default();
        for (who, rounds) in [(own, ours), (Floor, theirs)] {
            rounds.iter().for_each(|round| measured.add(File, Loopback, who, vec![(Cycle, *round)]));
        }
        measured
    }

    #[test]
    fn a_goal_is_met_missed_or_not_measured() {
        let file = measured(Current, &[20.0], &[10.0]);
        let whole = verdicts(Some(File), &file, true, true);
        assert!(whole.contains("÷ floor: **2.00** (≤ 1.5)\n"), "{whole}");
        assert!(whole.contains("÷ Python's `filelock`: not measured (≤ 0.5)\n"), "{whole}");
        assert!(!verdicts(Some(File), &file, false, true).contains("not measured"));
        let mut memory = Measured::default();
        memory.add(Memory, Loopback, Current, vec![(Cycle, 20.0)]);
        assert!(verdicts(Some(Memory), &memory, true, false).contains(": 0.02 (≤ 5 µs)\n"));
        assert_eq!(verdicts(Some(Memory), &memory, true, true), "1 of 1 goals are met.\n");
        let idle = measured(Current, &[1.0], &[0.0]);
        assert!(verdicts(Some(File), &idle, true, true).contains("÷ floor: not measured (≤ 1.5)\n"));
    }

    #[test]
    fn one_bad_round_misses_a_goal_of_the_defaults() {
        let verdict = |ours: &[f64]| verdicts(None, &measured(Own, ours, &[10.0, 20.0, 10.0]), true, false);
        assert!(verdict(&[10.0, 30.0, 15.0]).contains(": 1.00–1.50 (≤ 1.5)\n"), "{}", verdict(&[10.0, 30.0, 15.0]));
        assert!(verdict(&[10.0, 31.0, 15.0]).contains(": **1.00–1.55** (≤ 1.5)\n"));
    }
}
