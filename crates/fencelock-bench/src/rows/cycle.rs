//! The uncontended cycle: acquire and release, with nobody else about.

use anyhow::Result;

use super::{Row, figure};
use crate::bench::Bench;
use crate::contestant::Contestant;
use crate::crew::Crew;
use crate::protocol::Order;
use crate::report::{Table, micros, ratio};
use crate::stats::Times;

const CONTESTANTS: [Contestant; 7] = [
    Contestant::Floor,
    Contestant::Current,
    Contestant::Own,
    Contestant::OwnApart,
    Contestant::Flock,
    Contestant::FlockOpening,
    Contestant::Filelock,
];

/// Everybody takes turns; of each the median over the rounds.
pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row<Times>>> {
    let mut crews = Vec::new();
    for contestant in bench.present(&CONTESTANTS) {
        let mut crew = Crew::start(bench, contestant, 1)?;
        crew.0[0].ask(Order::Cycle { count: bench.effort.cycles / 4 })?;
        crews.push((contestant, crew, Vec::new()));
    }
    for _ in 0..bench.effort.rounds * 3 {
        for (_, crew, rounds) in &mut crews {
            crew.0[0].ask(Order::Cycle { count: bench.effort.cycles })?;
            rounds.push(Times::of(crew.0[0].log()?)?);
        }
    }
    Ok(crews
        .iter()
        .map(|(contestant, _, rounds)| Row { contestant: *contestant, figure: Times::median(rounds) })
        .collect())
}

pub(crate) fn table(rows: &[Row<Times>]) -> Table {
    let against = |times: &Times, other| ratio(figure(rows, other).map(|other| times.p50 / other.p50));
    let mut table = Table::new(&["cycle", "p50 µs", "p99 µs", "× floor", "× filelock"]);
    for Row { contestant, figure: times } in rows {
        table.row([
            contestant.title().to_owned(),
            micros(times.p50),
            micros(times.p99),
            against(times, Contestant::Floor),
            against(times, Contestant::Filelock),
        ]);
    }
    table
}
