//! The uncontended cycle: acquire and release, with nobody else about.

use anyhow::Result;

use super::{Row, cell, figure};
use crate::bench::Store;
use crate::contestant::Contestant;
use crate::crew::{Crew, Placement};
use crate::protocol::Order;
use crate::report::Table;
use crate::run::Run;
use crate::site::Network;
use crate::stats::Times;

/// Everybody takes turns; of each the median over the rounds.
pub(super) fn measure(run: &Run) -> Result<Vec<Row<Times>>> {
    let mut rows = Vec::new();
    // Whether two cores wake each other fast is luck, and more than a request that no disk waits for.
    let one_core = (run.bench.store == Store::Redis).then_some(Network::OneCore);
    for &network in one_core.iter().chain(run.site.networks()) {
        run.site.is_on(network)?;
        let (count, rounds) = match network {
            Network::OneCore | Network::Loopback => (run.bench.effort.cycles, run.bench.effort.rounds * 3),
            Network::Delay => (run.bench.effort.cycles.div_ceil(8), run.bench.effort.rounds + 2),
        };
        rows.extend(on(run, network, count, rounds)?);
    }
    run.site.is_on(Network::Loopback)?;
    Ok(rows)
}

fn on(run: &Run, network: Network, count: u64, rounds: usize) -> Result<Vec<Row<Times>>> {
    let what = format!("cycle, {}", network.title());
    let mut crews = Vec::new();
    for contestant in run.bench.present_but(&[Contestant::Own]) {
        let start = || {
            let mut crew = run.crew(contestant, 1, network, Placement::Dealt)?;
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
    let row = |(contestant, _, rounds): (_, _, Vec<_>)| Row {
        contestant,
        network,
        figure: Times::median(rounds.into_iter()),
    };
    Ok(measured.map(row).collect())
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

/// With a column for each way to the store.
pub(super) fn table(what: &str, rows: &[Row<Times>], store: Store) -> Table {
    let networks = [Network::OneCore, Network::Loopback, Network::Delay];
    let networks: Vec<_> = networks.into_iter().filter(|on| rows.iter().any(|row| row.network == *on)).collect();
    let head = networks.iter().map(|network| {
        let (unit, _) = network.unit();
        if store.has_server() { format!("{}, {unit}", network.title()) } else { unit.to_owned() }
    });
    let mut table = Table::new(&[what.to_owned()].into_iter().chain(head).collect::<Vec<_>>());
    for Row { contestant, .. } in rows.iter().filter(|row| row.network == Network::Loopback) {
        let cells = networks.iter().map(|network| cell(figure(rows, *contestant, *network), *network));
        table.row([contestant.title().to_owned()].into_iter().chain(cells));
    }
    table
}
