//! The uncontended cycle: acquire and release, with nobody else about.

use anyhow::Result;

use super::site::Network;
use super::{Row, Run, figure};
use crate::contestant::Contestant;
use crate::crew::{Crew, Placement};
use crate::protocol::Order;
use crate::report::{Table, decimals, micros, millis};
use crate::stats::Times;

const CONTESTANTS: [Contestant; 9] = [
    Contestant::ZkFloor,
    Contestant::ZkFloorListed,
    Contestant::Current,
    Contestant::Own,
    Contestant::OwnApart,
    Contestant::ZkCrate,
    Contestant::Curator,
    Contestant::GoZk,
    Contestant::Kazoo,
];

/// Everybody takes turns; of each the median over the rounds.
pub(super) fn measure(run: &Run) -> Result<Vec<Row<Times>>> {
    let mut rows = Vec::new();
    for network in Network::ALL {
        let (count, rounds) = match network {
            Network::Loopback => (run.bench.effort.cycles, run.bench.effort.rounds * 3),
            Network::Delay => (run.bench.effort.cycles.div_ceil(8), run.bench.effort.rounds + 2),
        };
        rows.extend(on(run, network, count, rounds)?);
    }
    run.site.delays(false);
    Ok(rows)
}

fn on(run: &Run, network: Network, count: u64, rounds: usize) -> Result<Vec<Row<Times>>> {
    let what = format!("cycle, {}", network.title());
    let mut crews = Vec::new();
    for contestant in run.bench.present(&CONTESTANTS) {
        let start = || {
            let mut crew = Crew::on(&run.bench, contestant, 1, &run.site.target(network), Placement::Dealt)?;
            run.warm(contestant, &mut crew)?;
            Ok(crew)
        };
        let mut crew = run.round(contestant, &what, start)?;
        run.site.delays(network == Network::Delay);
        cycle(run, contestant, &what, &mut crew, count)?;
        crews.push((contestant, crew, Vec::new()));
    }
    for _ in 0..rounds {
        for (contestant, crew, rounds) in &mut crews {
            rounds.extend(cycle(run, *contestant, &what, crew, count)?);
        }
    }
    let measured = crews.into_iter().filter(|(_, _, rounds)| !rounds.is_empty());
    Ok(measured.map(|(contestant, _, rounds)| Row { contestant, network, figure: Times::median(&rounds) }).collect())
}

/// One round; a crew that fails is sent home.
fn cycle(run: &Run, contestant: Contestant, what: &str, crew: &mut Option<Crew>, count: u64) -> Result<Option<Times>> {
    let Some(worker) = crew.as_mut().map(|crew| &mut crew.0[0]) else { return Ok(None) };
    let times = run.round(contestant, what, || {
        worker.ask(Order::Cycle { count })?;
        Times::of(worker.log()?)
    })?;
    if times.is_none() {
        *crew = None;
    }
    Ok(times)
}

pub(super) fn table(rows: &[Row<Times>]) -> Table {
    let mut table =
        Table::new(&["cycle", "loopback p50 µs", "p99 µs", "× floor", "2 ms each way p50 ms", "p99 ms", "× floor"]);
    let floor = |network| figure(rows, Contestant::ZkFloorListed, network).map_or(f64::NAN, |times| times.p50);
    for Row { contestant, figure: near, .. } in rows.iter().filter(|row| row.network == Network::Loopback) {
        let Some(far) = figure(rows, *contestant, Network::Delay) else { continue };
        table.row([
            contestant.title().to_owned(),
            micros(near.p50),
            micros(near.p99),
            decimals(near.p50 / floor(Network::Loopback)),
            millis(far.p50),
            millis(far.p99),
            decimals(far.p50 / floor(Network::Delay)),
        ]);
    }
    table
}
