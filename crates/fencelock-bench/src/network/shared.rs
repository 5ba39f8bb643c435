//! What several may have at once: one writer among many readers, and a semaphore. Nobody keeps to a core here.

use anyhow::Result;

use super::site::{Kept, Network};
use super::{Row, Run};
use crate::contestant::Contestant;
use crate::crew::{Crew, Placement};
use crate::report::Table;
use crate::rows::shared::{self, Shared};

/// Those who have both. Go's client has neither.
const CONTESTANTS: [Contestant; 4] = [Contestant::Current, Contestant::Own, Contestant::Curator, Contestant::Kazoo];

pub(super) fn measure(run: &Run) -> Result<Vec<Row<Shared>>> {
    run.site.keep(Kept::Any)?;
    let mut rows = Vec::new();
    for network in Network::BOTH {
        run.site.delays(network == Network::Delay);
        let contestants = run.bench.present(&CONTESTANTS);
        let mut rounds = vec![Vec::new(); contestants.len()];
        for _ in 0..run.bench.effort.rounds {
            for (contestant, rounds) in contestants.iter().zip(&mut rounds) {
                let start = || Crew::on(&run.bench, *contestant, 1, &run.site.target(network), Placement::Free);
                let round = || shared::round(&run.bench, start);
                rounds.extend(run.round(*contestant, &format!("shared, {}", network.title()), round)?);
            }
        }
        let row = |(contestant, rounds): (_, Vec<_>)| Row { contestant, network, figure: shared::over(&rounds) };
        rows.extend(contestants.into_iter().zip(rounds).filter(|(_, rounds)| !rounds.is_empty()).map(row));
    }
    run.site.delays(false);
    run.site.keep(Kept::Second)?;
    Ok(rows)
}

pub(super) fn table(rows: &[Row<Shared>], network: Network) -> Table {
    let (unit, write) = network.unit();
    let rows = rows.iter().filter(|row| row.network == network).map(|row| (row.contestant, &row.figure));
    shared::table(&format!("{}, {}", shared::TITLE, network.title()), unit, write, rows)
}
