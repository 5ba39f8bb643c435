//! What the figures are held to; a goal that is missed is said as plainly as one that is met.

mod here;
mod mysql;
mod postgres;
mod redis;
mod zookeeper;

use crate::bench::Store;
use crate::contestant::Contestant;
use crate::families::{Measured, figure};
use crate::site::Network;

/// One goal: at most, or at least, so much. `None` when there is nothing to compare with.
struct Goal {
    what: String,
    bound: Bound,
    value: Option<f64>,
}

#[derive(Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtMost(most) => format!("≤ {most}"),
            Self::AtLeast(least) => format!("≥ {least}"),
        }
    }
}

/// The goals of a store; only those with figures unless everything was measured. The document has those that are not met.
pub(crate) fn told(store: Store, measured: &Measured, is_whole: bool, for_document: bool) -> String {
    let mut goals = match store {
        Store::File => here::file(measured),
        Store::Memory => here::memory(measured),
        Store::ZooKeeper => zookeeper::all(measured),
        Store::Redis | Store::Redlock => redis::all(measured),
        Store::Postgres => postgres::all(measured),
        Store::Mysql => mysql::all(measured),
    };
    goals.retain(|goal| is_whole || goal.value.is_some());
    verdicts(goals, for_document)
}

fn verdicts(goals: Vec<Goal>, for_document: bool) -> String {
    let verdict = |Goal { what, bound, value }: Goal| {
        // Nobody is compared with somebody who did nothing.
        let value = value.filter(|value| value.is_finite());
        let is_met = value.is_some_and(|value| bound.holds(value));
        Verdict { what, bound: bound.text(), is_met, measured: value.map(|value| format!("{value:.2}")) }
    };
    summary(goals.into_iter().map(verdict).collect(), for_document)
}

/// What became of a goal.
pub(crate) struct Verdict {
    pub(crate) what: String,
    pub(crate) bound: String,
    pub(crate) is_met: bool,
    /// `None` when there was nothing to compare with.
    pub(crate) measured: Option<String>,
}

/// How many goals are met, and a line for each; in the document for each that is not.
pub(crate) fn summary(verdicts: Vec<Verdict>, for_document: bool) -> String {
    let (met, all) = (verdicts.iter().filter(|verdict| verdict.is_met).count(), verdicts.len());
    let told = verdicts.into_iter().filter(|verdict| !for_document || !verdict.is_met);
    let lines: String = told
        .map(|Verdict { what, bound, is_met, measured }| match measured {
            None => format!("- {what}: not measured ({bound})\n"),
            Some(measured) if is_met => format!("- {what}: {measured} ({bound})\n"),
            Some(measured) => format!("- {what}: **{measured}** ({bound})\n"),
        })
        .collect();
    let end = if lines.is_empty() { "." } else { ":\n\n" };
    format!(
        "{met} of {all} goals are met{}{end}{lines}\n",
        if lines.is_empty() || !for_document { "" } else { ", not these" }
    )
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

/// What a lock may cost the client's process, on every store; `sign` stands before the name of the contestant.
fn memory(measured: &Measured, sign: char) -> impl Iterator<Item = Goal> {
    [Contestant::Current, Contestant::Own].into_iter().flat_map(move |who| {
        let figure = figure(&measured.held, who, Network::Loopback);
        let of = |what: &str, most, value| {
            goal(format!("client memory per {what}, bytes{sign} {}", short(who)), Bound::AtMost(most), value)
        };
        let waiting = figure.map(|figure| figure.waiting - figure.future);
        [
            of("held lock", 1024.0, figure.map(|figure| figure.held)),
            of("waiting lock, the caller's future aside", 2048.0, waiting),
        ]
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::Row;
    use crate::stats::Times;

    #[test]
    fn a_goal_is_met_missed_or_not_measured() {
        let row = |contestant, p50| Row { contestant, network: Network::Loopback, figure: Times { p50, p99: p50 } };
        let cycle = vec![row(Contestant::Current, 20.0), row(Contestant::Floor, 10.0)];
        let measured = Measured { cycle, ..Measured::default() };
        let file = told(Store::File, &measured, true, true);
        assert!(file.contains(": **2.00** (≤ 1.5)\n"), "{file}");
        assert!(file.contains(": not measured (≤ 0.5)\n"), "{file}");
        assert!(!told(Store::File, &measured, false, true).contains("not measured"));
        assert!(told(Store::Memory, &measured, true, false).contains(": 0.02 (≤ 5)\n"));
        assert_eq!(told(Store::Memory, &measured, true, true), "1 of 1 goals are met.\n");
        let nothing = goal(String::new(), Bound::AtLeast(2.0), Some(1.0 / 0.0));
        assert!(verdicts(vec![nothing], true).contains(": not measured (≥ 2)\n"));
    }
}
