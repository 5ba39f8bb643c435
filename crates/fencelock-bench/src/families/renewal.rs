//! What it costs to keep many locks: requests per second while nobody takes or gives back anything.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::Row;
use crate::contestant::Contestant;
use crate::protocol::Order;
use crate::report::Table;
use crate::run::Run;
use crate::site::Network;

/// Two renewal periods of the workers' ttl, in a full run.
const LOOK: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Renewal {
    /// Requests per minute.
    requests: f64,
}

pub(super) fn measure(run: &Run) -> Result<Vec<Row<Renewal>>> {
    let contestant = Contestant::Current;
    let mut crew = run.crowd(contestant, 1, Network::Loopback)?;
    crew.0[0].ask(Order::Hold { count: run.bench.effort.held, tasks: 64 })?;
    run.site.is_quiet()?;
    let (before, start) = (run.site.traffic()?, Instant::now());
    std::thread::sleep(if run.bench.quick { LOOK / 30 } else { LOOK });
    let (requests, _) = run.site.traffic()?.since(before);
    let requests = requests * 60.0 / start.elapsed().as_secs_f64();
    Ok(vec![Row { contestant, network: Network::Loopback, figure: Renewal { requests } }])
}

pub(super) fn tables(run: &Run, rows: &[Row<Renewal>]) -> Vec<Table> {
    let first = format!("{} locks held, and a ttl of 60 s", run.bench.effort.held);
    let mut table = Table::new(&[&first, "requests per minute"]);
    for Row { contestant, figure, .. } in rows {
        table.row([contestant.title().to_owned(), format!("{:.1}", figure.requests)]);
    }
    vec![table]
}
