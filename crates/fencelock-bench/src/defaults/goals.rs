//! What the figures of the defaults are held to: every round of them.

use super::tables::{ends, place, what};
use super::{Figure, What};
use crate::bench::Store::{self, File, Memory, Postgres, Redis, ZooKeeper};
use crate::contestant::Contestant::{self, Current, Filelock, Floor, Own, PgFloor, RedisFloor, ZkFloor, ZkFloorListed};
use crate::families::Row;
use crate::goals::{Verdict, summary};
use crate::site::Network;

/// Somebody else who is measured, and its name.
type Other = (Contestant, &'static str);

/// With nothing set: so much at most, of somebody else's in the same round, or by itself.
struct Goal {
    store: Store,
    network: Network,
    what: What,
    other: Option<Other>,
    bound: f64,
}

const fn on(store: Store, network: Network, what: What, other: Option<Other>, bound: f64) -> Goal {
    Goal { store, network, what, other, bound }
}

/// On loopback, or where there is no server.
const fn near(store: Store, what: What, other: Option<Other>, bound: f64) -> Goal {
    on(store, Network::Loopback, what, other, bound)
}

/// Behind the delay.
const fn far(store: Store, what: What, other: Other, bound: f64) -> Goal {
    on(store, Network::Delay, what, Some(other), bound)
}

const CURRENT: Other = (Current, "`Io::CurrentRuntime`");
const CALLS: Other = (Floor, "the bare system calls");
const FILELOCK: Other = (Filelock, "`filelock`");
const SCRIPTS: Other = (RedisFloor, "the bare scripts");
const LISTED: Other = (ZkFloorListed, "the bare requests, with a list");
const STATEMENTS: Other = (PgFloor, "the bare statements");
const UNLISTED: Other = (ZkFloor, "the bare requests, without a list");

const GOALS: [Goal; 36] = [
    near(Memory, What::Cycle, None, 3000.0),
    near(File, What::Cycle, Some(CALLS), 1.5),
    near(File, What::Cycle, Some(FILELOCK), 0.5),
    near(File, What::HandOver(100), Some(FILELOCK), 0.2),
    near(File, What::HandOver(1000), Some(FILELOCK), 0.2),
    near(Redis, What::Cycle, Some(SCRIPTS), 1.15),
    far(Redis, What::Cycle, SCRIPTS, 1.1),
    far(Redis, What::HandOver(2), SCRIPTS, 1.5),
    far(Redis, What::HandOver(100), SCRIPTS, 1.5),
    far(Redis, What::Names, SCRIPTS, 1.05),
    near(ZooKeeper, What::Cycle, Some(LISTED), 1.1),
    near(ZooKeeper, What::Names, Some(UNLISTED), 1.05),
    far(ZooKeeper, What::Cycle, LISTED, 1.05),
    far(ZooKeeper, What::HandOver(2), UNLISTED, 1.2),
    far(ZooKeeper, What::HandOver(100), UNLISTED, 1.2),
    far(ZooKeeper, What::Names, UNLISTED, 1.05),
    near(Postgres, What::Cycle, Some(STATEMENTS), 1.3),
    far(Postgres, What::Cycle, STATEMENTS, 1.05),
    near(Postgres, What::HandOver(2), Some(STATEMENTS), 1.5),
    near(Postgres, What::HandOver(100), Some(STATEMENTS), 1.5),
    near(Postgres, What::HandOver(1000), Some(STATEMENTS), 1.5),
    near(Postgres, What::Held, None, 1024.0),
    near(Memory, What::Cycle, Some(CURRENT), 1.5),
    near(File, What::Cycle, Some(CURRENT), 1.5),
    near(Memory, What::Processor, Some(CURRENT), 1.5),
    near(File, What::Processor, Some(CURRENT), 1.5),
    near(Redis, What::Processor, Some(CURRENT), 1.5),
    near(ZooKeeper, What::Processor, Some(CURRENT), 1.5),
    near(Memory, What::Held, None, 1024.0),
    near(File, What::Held, None, 1024.0),
    near(Redis, What::Held, None, 1024.0),
    near(ZooKeeper, What::Held, None, 1024.0),
    near(Memory, What::Waiting, None, 2048.0),
    near(File, What::Waiting, None, 2048.0),
    near(Redis, What::Waiting, None, 2048.0),
    near(ZooKeeper, What::Waiting, None, 2048.0),
];

/// Met when the worst round is; a goal that one round misses is missed.
pub(super) fn told(rows: &[Row<Figure>], for_document: bool) -> String {
    let verdict = |Goal { store, network, what: of, other, bound }: Goal| {
        let figures = |who| {
            let is_it = |row: &&Row<Figure>| {
                (row.figure.store, row.network, row.figure.what, row.contestant) == (store, network, of, who)
            };
            rows.iter().find(is_it).map(|row| &row.figure.rounds[..])
        };
        let rounds = ratios(figures(Own), other.map(|(other, _)| figures(other)));
        let (least, most) = ends(&rounds);
        let against = other.map_or_else(String::new, |(_, name)| format!(" ÷ {name}"));
        // Times alone are told in microseconds.
        let unit = if other.is_none() && of == What::Cycle { 1000.0 } else { 1.0 };
        Verdict {
            what: format!("{}: {}{against}", place(store, network), what(of)),
            bound: format!("≤ {}", bound / unit),
            is_met: !rounds.is_empty() && most <= bound,
            measured: (!rounds.is_empty()).then(|| format!("{:.2}–{:.2}", least / unit, most / unit)),
        }
    };
    summary(GOALS.into_iter().map(verdict).collect(), for_document)
}

/// Of each round ours over the other's, or ours alone; none where somebody was not measured.
fn ratios(ours: Option<&[f64]>, theirs: Option<Option<&[f64]>>) -> Vec<f64> {
    match (ours, theirs) {
        (Some(ours), None) => ours.to_vec(),
        (Some(ours), Some(Some(theirs))) => ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bad_round_misses_a_goal() {
        let row = |contestant, rounds: [f64; 3]| Row {
            contestant,
            network: Network::Loopback,
            figure: Figure { store: File, what: What::Cycle, rounds: rounds.to_vec() },
        };
        let verdict = |ours| told(&[row(Own, ours), row(Floor, [10.0, 20.0, 10.0])], false);
        assert!(verdict([10.0, 30.0, 15.0]).contains(": 1.00–1.50 (≤ 1.5)\n"), "{}", verdict([10.0, 30.0, 15.0]));
        assert!(verdict([10.0, 31.0, 15.0]).contains(": **1.00–1.55** (≤ 1.5)\n"));
        assert!(verdict([1.0; 3]).contains("÷ `filelock`: not measured (≤ 0.5)\n"));
    }
}
