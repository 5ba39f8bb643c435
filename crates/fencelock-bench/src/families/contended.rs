//! Many tasks at once: each on a name of its own, or all on one. A server keeps to no core here, and its clients neither.

use anyhow::{Context as _, Result};

use crate::contestant::Contestant;
use crate::measured::Figures;
use crate::protocol::{Order, Section, now};
use crate::run::Run;
use crate::stats::{hand_overs, least_and_most};
use crate::what::{Network, Store, Way, What};

/// The time until every process has received the start order.
const LEAD_NANOS: u64 = 100_000_000;
/// The unmeasured start: until all contenders queue, the first ones have the lock more often.
const WARM_NANOS: u64 = 200_000_000;

/// Warms up the server's compiled code, and the disk.
pub(crate) fn warm(run: &Run) -> Result<()> {
    let first = run.bench.contestants(&[]).into_iter().next();
    first.map_or(Ok(()), |first| round(run, first, Network::Loopback, Way::Apart).map(drop))
}

pub(super) fn measure(run: &Run, way: Way) -> Result<()> {
    let contestants = contestants(run, way);
    run.everywhere(|network| {
        let what = format!("{}, {}", way.title(), network.title());
        run.turns(&contestants, network, &what, |contestant| round(run, contestant, network, way))
    })
}

fn contestants(run: &Run, way: Way) -> Vec<Contestant> {
    let store = run.bench.store;
    // No client keeps to a core near a server that keeps to none.
    let not: &[_] = if store.has_server() { &[Contestant::OwnApart] } else { &[] };
    let mut contestants = if way.is_apart() { run.bench.contestants(not) } else { run.bench.waiting(not) };
    contestants.retain(|contestant| match way {
        // The bare system calls and their peers lock one file.
        Way::Apart => store.has_server() || contestant.is_fencelock(),
        Way::Services => contestant.is_fencelock() || matches!(contestant, Contestant::SqlFloor | Contestant::Table),
        Way::Together => true,
        // Four Java machines on two cores would measure the machine; on Redis they are idle enough.
        Way::Processes => store == Store::Redis || !contestant.is_driven(),
    });
    contestants
}

fn order(way: Way, process: u64, start: u64, end: u64) -> Order {
    let (waiters, first) = (way.each(), process * way.each());
    match way.is_apart() {
        true => Order::Spread { waiters, first, start, end },
        false => Order::Contend { waiters, first, start, end },
    }
}

fn round(run: &Run, contestant: Contestant, network: Network, way: Way) -> Result<Figures> {
    let mut crew = run.crowd(contestant, way.processes(), network)?;
    for (process, worker) in (0..).zip(&mut crew.0) {
        worker.warm(|start, end| order(way, process, start, end))?;
    }
    let start = now() + LEAD_NANOS;
    let mut end = start + WARM_NANOS + u64::try_from(run.bench.effort.contend.as_nanos())?;
    let before = run.site.traffic()?;
    let (undone, processor) = (run.site.undone()?, crew.0[0].processor_time()?);
    for (process, worker) in (0..).zip(&mut crew.0) {
        worker.send(order(way, process, start, end))?;
    }
    let (_, mut sections) = crew.finish()?;
    // Each task takes the lock once more than it reports, after the end.
    let waiters = way.processes() * way.each();
    let all = sections.len() as f64 + waiters as f64;
    let requests = run.site.traffic()?.since(before).0 / all;
    let undone = run.site.undone()? - undone;
    let mut figures = vec![(What::Requests(way), requests), (What::Undone(way), undone as f64)];
    let mut from = start + WARM_NANOS;
    if way.is_apart() {
        if way == Way::Apart {
            let client = crew.0[0].processor_time()?.saturating_sub(processor);
            figures.push((What::Client, client.as_nanos() as f64 / all));
        }
        // The names may be ready only after the start, and a process with few of them before another one.
        from = sections.iter().map(|section| section.acquired).min().context("no task had its lock")? + WARM_NANOS;
        end = sections.iter().map(|section| section.acquired).max().context("no task had its lock")? + 1;
    } else {
        // Fails when two tasks had the lock at once.
        hand_overs(&mut sections)?;
    }
    sections.retain(|section: &Section| (from..end).contains(&section.acquired));
    let (least, most) = least_and_most(&sections, waiters);
    let seconds = end.saturating_sub(from).max(1) as f64 / 1e9;
    figures.push((What::Rate(way), sections.len() as f64 / seconds));
    figures.push((What::Served(way), least as f64 / most.max(1) as f64));
    Ok(figures)
}
