//! The uncontended cycle: acquire and release by one client. On a database also the processor time of the server.

use anyhow::Result;

use crate::contestant::Contestant;
use crate::crew::{Placement, Worker};
use crate::measured::Figures;
use crate::protocol::Order;
use crate::run::Run;
use crate::stats::Times;
use crate::what::{Network, Store, What};

pub(super) fn measure(run: &Run) -> Result<()> {
    // A wake-up across cores takes a time that varies, and longer than a request without a disk: Redis is measured on a
    // single core, too.
    let has_one_core = run.bench.store == Store::Redis && !run.bench.as_used;
    let one_core = has_one_core && (run.bench.on.is_empty() || run.bench.on.contains(&Network::OneCore));
    for network in one_core.then_some(Network::OneCore).into_iter().chain(run.networks()) {
        run.is_on(network)?;
        on(run, network)?;
    }
    run.is_on(Network::Loopback)
}

/// All crews stay for all rounds. The first round warms up.
fn on(run: &Run, network: Network) -> Result<()> {
    let what = format!("cycle, {}", network.title());
    let effort = run.bench.effort;
    let (count, rounds) = match network {
        Network::Delay => (effort.cycles.div_ceil(8), effort.rounds + 2),
        Network::OneCore | Network::Loopback => (effort.cycles, effort.rounds * 3),
    };
    let rounds = if run.bench.as_used { effort.rounds } else { rounds };
    let mut crews = Vec::new();
    for contestant in run.bench.contestants(&[Contestant::Own]) {
        let start = || {
            let mut crew = run.crew(contestant, 1, network, Placement::Dealt)?;
            run.warm(contestant, &mut crew)?;
            Ok(crew)
        };
        crews.extend(run.round(contestant, &what, start)?.map(|crew| (contestant, crew)));
    }
    run.delays(network == Network::Delay);
    for round in 0..=rounds {
        let mut failed = Vec::new();
        for (contestant, crew) in &mut crews {
            match run.round(*contestant, &what, || cycle(run, &mut crew.0[0], count))? {
                None => failed.push(*contestant),
                Some(figures) if round > 0 => run.found(*contestant, network, figures),
                Some(_) => {}
            }
        }
        crews.retain(|(contestant, _)| !failed.contains(contestant));
    }
    Ok(())
}

fn cycle(run: &Run, worker: &mut Worker, count: u64) -> Result<Figures> {
    let before = run.site.processor_time();
    worker.ask(Order::Cycle { count })?;
    let spent = run.site.processor_time().saturating_sub(before);
    let times = Times::of(worker.log()?)?;
    let mut figures = vec![(What::Cycle, times.p50), (What::CycleTail, times.p99)];
    if run.bench.store.is_sql() {
        figures.push((What::Server, spent.as_nanos() as f64 / count as f64));
    }
    Ok(figures)
}
