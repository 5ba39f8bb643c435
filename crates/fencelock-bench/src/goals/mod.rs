//! What the figures are held to; a goal that is missed is said as plainly as one that is met.

mod here;
mod mysql;
mod postgres;
mod redis;
mod zookeeper;

use crate::bench::Store;
use crate::contestant::Contestant;
use crate::families::{Measured, figure};
use crate::report::Table;
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

/// The goals of a store; only those with figures unless everything was measured.
pub(crate) fn table(store: Store, measured: &Measured, is_whole: bool) -> Table {
    let mut goals = match store {
        Store::File => here::file(measured),
        Store::Memory => here::memory(measured),
        Store::ZooKeeper => zookeeper::all(measured),
        Store::Redis | Store::Redlock => redis::all(measured),
        Store::Postgres => postgres::all(measured),
        Store::Mysql => mysql::all(measured),
    };
    goals.retain(|goal| is_whole || goal.value.is_some());
    verdicts(goals)
}

fn verdicts(goals: Vec<Goal>) -> Table {
    let mut table = Table::new(&["goal", "bound", "measured", ""]);
    for Goal { what, bound, value } in goals {
        // Nobody is compared with somebody who did nothing.
        let value = value.filter(|value| value.is_finite());
        let verdict = match value {
            None => "not measured",
            Some(value) if bound.holds(value) => "met",
            Some(_) => "**missed**",
        };
        let value = value.map_or_else(|| "–".to_owned(), |value| format!("{value:.3}"));
        table.row([what, bound.text(), value, verdict.to_owned()]);
    }
    table
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
        let file = table(Store::File, &measured, true).to_string();
        assert!(file.contains("| ≤ 1.5 | 2.000 | **missed** |"), "{file}");
        assert!(file.contains("| ≤ 0.5 | – | not measured |"), "{file}");
        assert!(!table(Store::File, &measured, false).to_string().contains("not measured"));
        assert!(table(Store::Memory, &measured, true).to_string().contains("| 0.020 | met |"));
        let nothing = goal(String::new(), Bound::AtLeast(2.0), Some(1.0 / 0.0));
        assert!(verdicts(vec![nothing]).to_string().contains("| – | not measured |"));
    }
}
