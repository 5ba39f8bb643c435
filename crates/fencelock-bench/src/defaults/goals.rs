//! What the figures of the defaults are held to: every round of them.

use super::tables::{ends, store, what};
use super::{Row, What};
use crate::bench::Store::{self, File, Memory, Redis};
use crate::contestant::Contestant::{self, Current, Filelock, Floor, Own, RedisFloor};
use crate::report::Table;

/// Somebody else who is measured, and its name.
type Other = (Contestant, &'static str);

/// With nothing set: on a store, so much at most; of somebody else's in the same round, or by itself.
const GOALS: [(Store, What, Option<Other>, f64); 16] = [
    (Memory, What::Cycle, None, 3000.0),
    (File, What::Cycle, Some((Floor, "the bare system calls")), 1.5),
    (File, What::Cycle, Some((Filelock, "`filelock`")), 0.5),
    (File, What::HandOver(100), Some((Filelock, "`filelock`")), 0.2),
    (File, What::HandOver(1000), Some((Filelock, "`filelock`")), 0.2),
    (Redis, What::Cycle, Some((RedisFloor, "the bare scripts")), 1.15),
    (Memory, What::Cycle, Some((Current, CURRENT)), 1.5),
    (File, What::Cycle, Some((Current, CURRENT)), 1.5),
    (Memory, What::Processor, Some((Current, CURRENT)), 1.5),
    (File, What::Processor, Some((Current, CURRENT)), 1.5),
    (Redis, What::Processor, Some((Current, CURRENT)), 1.5),
    (Memory, What::Held, None, 1024.0),
    (File, What::Held, None, 1024.0),
    (Redis, What::Held, None, 1024.0),
    (File, What::Waiting, None, 2048.0),
    (Redis, What::Waiting, None, 2048.0),
];

const CURRENT: &str = "`Io::CurrentRuntime`";

/// Met when the worst round is; a goal that one round misses is missed.
pub(super) fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(&["goal, with nothing set", "bound", "least", "most", ""]);
    for (on, of, other, bound) in GOALS {
        let figures = rows.iter().find(|row| (row.store, row.what) == (on, of)).map(|row| &row.figures[..]);
        let rounds = figures.map_or_else(Vec::new, |figures| ratios(figures, other.map(|(other, _)| other)));
        let (least, most) = ends(&rounds);
        let verdict = match rounds.is_empty() {
            true => "not measured",
            false if most <= bound => "met",
            false => "**missed**",
        };
        let against = other.map_or_else(String::new, |(_, name)| format!(" ÷ {name}"));
        // Times alone are told in microseconds.
        let unit = if other.is_none() && of == What::Cycle { 1000.0 } else { 1.0 };
        let number = |value: f64| if value.is_finite() { format!("{:.2}", value / unit) } else { "–".to_owned() };
        let first = format!("{}: {}{against}", store(on), what(of));
        table.row([first, format!("≤ {}", bound / unit), number(least), number(most), verdict.to_owned()]);
    }
    table
}

/// Of each round ours over the other's, or ours alone.
fn ratios(figures: &[(Contestant, Vec<f64>)], other: Option<Contestant>) -> Vec<f64> {
    let of = |who| figures.iter().find(|(contestant, _)| *contestant == who).map(|(_, figures)| figures);
    let Some(ours) = of(Own) else { return Vec::new() };
    match other {
        None => ours.clone(),
        Some(other) => of(other).map_or_else(Vec::new, |theirs| ours.iter().zip(theirs).map(|(a, b)| a / b).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bad_round_misses_a_goal() {
        let row = |ours: [f64; 3]| Row {
            store: File,
            what: What::Cycle,
            figures: vec![(Own, ours.to_vec()), (Floor, vec![10.0, 20.0, 10.0])],
        };
        let verdict = |ours| table(&[row(ours)]).to_string();
        assert!(
            verdict([10.0, 30.0, 15.0]).contains("| ≤ 1.5 | 1.00 | 1.50 | met |"),
            "{}",
            verdict([10.0, 30.0, 15.0])
        );
        assert!(verdict([10.0, 31.0, 15.0]).contains("| ≤ 1.5 | 1.00 | 1.55 | **missed** |"));
        assert!(verdict([1.0; 3]).contains("÷ `filelock` | ≤ 0.5 | – | – | not measured |"));
    }
}
