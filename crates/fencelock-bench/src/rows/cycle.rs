//! The uncontended cycle: acquire and release, with nobody else about.

use anyhow::Result;

use super::{Row, figure};
use crate::bench::Bench;
use crate::contestant::Contestant;
use crate::crew::Crew;
use crate::protocol::Order;
use crate::report::{Table, decimals, micros};
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

/// With a column for everybody to compare with who took part.
pub(crate) fn table(rows: &[Row<Times>]) -> Table {
    let others = [("× floor", Contestant::Floor), ("× filelock", Contestant::Filelock)];
    let others: Vec<_> =
        others.into_iter().filter_map(|(title, other)| Some((title, figure(rows, other)?.p50))).collect();
    let mut head = vec!["cycle", "p50 µs", "p99 µs"];
    head.extend(others.iter().map(|(title, _)| *title));
    let mut table = Table::new(&head);
    for Row { contestant, figure: times } in rows {
        let mut cells = vec![contestant.title().to_owned(), micros(times.p50), micros(times.p99)];
        cells.extend(others.iter().map(|(_, other)| decimals(times.p50 / other)));
        table.row(cells);
    }
    table
}
