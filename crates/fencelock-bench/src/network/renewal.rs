//! What it costs to keep many locks: requests per second while nobody takes or gives back anything.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::site::Network;
use crate::contestant::Contestant;
use crate::crew::{Crew, Placement};
use crate::protocol::Order;
use crate::report::Table;
use crate::rows::Row;
use crate::run::Run;

/// Two renewal periods of the workers' ttl, in a full run.
const LOOK: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy)]
pub(super) struct Renewal {
    /// Requests per minute.
    pub(super) requests: f64,
}

pub(super) fn measure(run: &Run) -> Result<Vec<Row<Renewal>>> {
    let target = run.site.target(Network::Loopback);
    let contestant = Contestant::Current;
    let mut crew = Crew::on(&run.bench, contestant, 1, &target, Placement::Free)?;
    crew.0[0].ask(Order::Hold { count: run.bench.effort.held, tasks: 64 })?;
    run.site.is_quiet()?;
    let (before, start) = (run.site.traffic()?, Instant::now());
    std::thread::sleep(if run.bench.quick { LOOK / 30 } else { LOOK });
    let (requests, _) = run.site.traffic()?.since(before);
    let requests = requests * 60.0 / start.elapsed().as_secs_f64();
    Ok(vec![Row { contestant, network: Network::Loopback, figure: Renewal { requests } }])
}

pub(super) fn table(run: &Run, rows: &[Row<Renewal>]) -> Table {
    let first = format!("{} locks held, and a ttl of 60 s", run.bench.effort.held);
    let mut table = Table::new(&[&first, "requests per minute"]);
    for Row { contestant, figure, .. } in rows {
        table.row([contestant.title().to_owned(), format!("{:.1}", figure.requests)]);
    }
    table
}
