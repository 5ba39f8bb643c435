//! What the figures are held to; a goal that is missed is said as plainly as one that is met.

use crate::bench::Store;
use crate::contestant::Contestant;
use crate::report::Table;
use crate::rows::contended::Contended;
use crate::rows::hand_over::HandOver;
use crate::rows::memory::Memory;
use crate::rows::{Row, figure_here};
use crate::stats::Times;

/// Everything that was measured in a run.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) cycle: Vec<Row<Times>>,
    pub(crate) contended: Vec<Row<Contended>>,
    pub(crate) hand_over: Vec<Row<HandOver>>,
    pub(crate) memory: Vec<Row<Memory>>,
}

/// One goal: at most, or at least, so much. `None` when there is nothing to compare with.
pub(crate) struct Goal {
    pub(crate) what: String,
    pub(crate) bound: Bound,
    pub(crate) value: Option<f64>,
}

#[derive(Clone, Copy)]
pub(crate) enum Bound {
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

pub(crate) fn table(store: Store, measured: &Measured) -> Table {
    let goals = match store {
        Store::File => file(measured),
        Store::Memory => memory(measured),
        // It has rows of its own.
        Store::ZooKeeper | Store::Redis | Store::Redlock => Vec::new(),
    };
    verdicts(goals)
}

pub(crate) fn verdicts(goals: Vec<Goal>) -> Table {
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

fn memory(measured: &Measured) -> Vec<Goal> {
    let cycle = figure_here(&measured.cycle, Contestant::Current).map(|times| times.p50 / 1000.0);
    let what = "cycle p50, µs, `Io::CurrentRuntime`".to_owned();
    vec![Goal { what, bound: Bound::AtMost(5.0), value: cycle }]
}

fn file(measured: &Measured) -> Vec<Goal> {
    let mut goals = cycle(&measured.cycle);
    goals.extend(
        measured
            .hand_over
            .iter()
            .filter(|row| row.contestant.is_fencelock())
            .flat_map(|row| hand_over(&measured.hand_over, row)),
    );
    goals.extend(measured.contended.iter().filter(|row| row.contestant.is_fencelock()).map(|row| Goal {
        what: format!(
            "least / most served, {} × {}, {}",
            row.figure.shape.processes,
            row.figure.shape.each,
            short(row)
        ),
        bound: Bound::AtLeast(0.95),
        value: Some(row.figure.served()),
    }));
    for row in &measured.memory {
        let goal = |what: &str, most, value| Goal {
            what: format!("client memory per {what}, bytes, {}", short(row)),
            bound: Bound::AtMost(most),
            value: Some(value),
        };
        goals.extend([
            goal("held lock", 1024.0, row.figure.held),
            goal("waiting lock, the caller's future aside", 2048.0, row.figure.waiting - row.figure.future),
        ]);
    }
    goals
}

fn cycle(rows: &[Row<Times>]) -> Vec<Goal> {
    let ours = figure_here(rows, Contestant::Current);
    let goal = |name: &str, other, most| Goal {
        what: format!("cycle p50 ÷ {name}, `Io::CurrentRuntime`"),
        bound: Bound::AtMost(most),
        value: ours.zip(figure_here(rows, other)).map(|(ours, other)| ours.p50 / other.p50),
    };
    vec![goal("bare system calls", Contestant::Floor, 1.5), goal("`filelock`'s", Contestant::Filelock, 0.5)]
}

/// With two waiters there is no goal.
fn hand_over(rows: &[Row<HandOver>], row: &Row<HandOver>) -> Vec<Goal> {
    let ours = &row.figure;
    if ours.waiters < 100 {
        return Vec::new();
    }
    let same = |other: &&Row<HandOver>| {
        let other = (other.contestant, other.figure.waiters, other.figure.processes);
        other == (Contestant::Filelock, ours.waiters, ours.processes)
    };
    let theirs = rows.iter().find(same).map(|other| other.figure.times.p50);
    let of = format!("{} waiters, {} process(es), {}", ours.waiters, ours.processes, short(row));
    let tail = ours.times.p99 / ours.times.p50;
    vec![
        Goal {
            what: format!("hand-over p50 ÷ `filelock`'s, {of}"),
            bound: Bound::AtMost(0.2),
            value: theirs.map(|theirs| ours.times.p50 / theirs),
        },
        Goal { what: format!("hand-over p99 ÷ p50, {of}"), bound: Bound::AtMost(10.0), value: Some(tail) },
    ]
}

fn short<T>(row: &Row<T>) -> &'static str {
    row.contestant.title().trim_start_matches("fencelock, ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_missed_or_not_measured() {
        let row = |contestant, p50| Row::here(contestant, Times { p50, p99: p50 });
        let cycle = vec![row(Contestant::Current, 20.0), row(Contestant::Floor, 10.0)];
        let measured = Measured { cycle, contended: Vec::new(), hand_over: Vec::new(), memory: Vec::new() };
        let table = table(Store::File, &measured).to_string();
        assert!(table.contains("| ≤ 1.5 | 2.000 | **missed** |"), "{table}");
        assert!(table.contains("| ≤ 0.5 | – | not measured |"), "{table}");
        assert!(super::table(Store::Memory, &measured).to_string().contains("| 0.020 | met |"));
        let nothing = Goal { what: String::new(), bound: Bound::AtLeast(2.0), value: Some(1.0 / 0.0) };
        assert!(verdicts(vec![nothing]).to_string().contains("| – | not measured |"));
    }
}
