//! The uncontended cycle: acquire and release, with nobody else about.

use anyhow::Result;

use super::{Row, figure};
use crate::bench::Store;
use crate::contestant::Contestant;
use crate::crew::{Crew, Placement};
use crate::protocol::Order;
use crate::report::{Table, decimals};
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
    for contestant in run.bench.present_but(&[]) {
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

/// With a column for each floor or peer to compare with, and for a store with a server all that for each way to it.
pub(super) fn tables(what: &str, rows: &[Row<Times>], store: Store) -> Vec<Table> {
    let networks = [Network::OneCore, Network::Loopback, Network::Delay];
    let networks: Vec<_> = networks.into_iter().filter(|on| rows.iter().any(|row| row.network == *on)).collect();
    let mut others = vec![("× floor", store.floor()), ("× filelock", Contestant::Filelock)];
    others.retain(|(_, other)| figure(rows, *other, Network::Loopback).is_some());
    let mut head = vec![what.to_owned()];
    for network in &networks {
        let (unit, _) = network.unit();
        let way = if store.has_server() { format!("{}, ", network.title()) } else { String::new() };
        head.extend([format!("{way}p50 {unit}"), format!("p99 {unit}")]);
        head.extend(others.iter().map(|(title, _)| (*title).to_owned()));
    }
    let mut table = Table::new(&head.iter().map(String::as_str).collect::<Vec<_>>());
    for Row { contestant, .. } in rows.iter().filter(|row| row.network == Network::Loopback) {
        let cells = networks.iter().map(|network| cells(rows, *contestant, *network, &others));
        table.row([contestant.title().to_owned()].into_iter().chain(cells.flatten()));
    }
    vec![table]
}

fn cells(rows: &[Row<Times>], who: Contestant, network: Network, others: &[(&str, Contestant)]) -> Vec<String> {
    let Some(times) = figure(rows, who, network) else { return vec!["–".to_owned(); 2 + others.len()] };
    let (_, write) = network.unit();
    let ratio = |other| times.p50 / figure(rows, other, network).map_or(f64::NAN, |other| other.p50);
    let ratios = others.iter().map(|(_, other)| decimals(ratio(*other)));
    [write(times.p50), write(times.p99)].into_iter().chain(ratios).collect()
}
