//! Hand-over: from just before `release` is called to the instant that the next one has the lock.
//!
//! Somebody holds the lock while a known number of waiters queue. The holder lets go, and everybody takes the lock once. So
//! nobody can take it back from those who wait longer, and the order of arrival is known. With 1,000 waiters behind the
//! delay only the first hundred or two are measured; what is left of the queue goes without.

use std::time::Duration;

use anyhow::Result;

use super::{Row, find};
use crate::bench::Store;
use crate::contestant::Contestant;
use crate::crew::{Crew, Placement};
use crate::protocol::{Order, Section, now};
use crate::report::Table;
use crate::run::Run;
use crate::site::{Network, Traffic};
use crate::stats::{Times, hand_overs, in_order, median};

/// How many wait, and in how many sessions, each a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) waiters: u64,
    pub(crate) sessions: u64,
}

/// Everybody in one session.
const fn one(waiters: u64) -> Shape {
    Shape { waiters, sessions: 1 }
}

/// Waiters of four processes, without a server.
const fn four(waiters: u64) -> Shape {
    Shape { waiters, sessions: 4 }
}

/// Ten waiters and the holder, each in a session of its own.
pub(super) const EACH_ITS_OWN: Shape = Shape { waiters: 10, sessions: 11 };

const ON_SERVERS: [Shape; 3] = [one(2), one(100), one(1000)];
const HERE: [Shape; 5] = [one(2), one(100), one(1000), four(100), four(1000)];

/// What is looked at of a long queue behind the delay, in bytes on their way to the server: a release takes about 100 of
/// them, and a list half as many.
const WINDOW: u64 = 20_000;

/// Until those who ask again and again are out of step with the last one that entered.
const SETTLE: Duration = Duration::from_millis(100);

/// How often `filelock` looks whether the lock is free, by default.
const POLL: Duration = Duration::from_millis(50);

/// The most waiters of tables by hand, and of threads blocked in the kernel, of whom a thousand say nothing that a hundred do not.
const FEW_WAITERS: u64 = 100;

#[derive(Debug, Clone)]
pub(crate) struct HandOver {
    pub(crate) shape: Shape,
    pub(crate) times: Times,
    /// Neighbours served in the order of their arrival; from 0 to 1.
    in_order: f64,
}

pub(super) fn measure(run: &Run) -> Result<Vec<Row<HandOver>>> {
    let mut rows = Vec::new();
    for &network in run.site.networks() {
        for shape in shapes(run) {
            let Shape { waiters, sessions } = shape;
            let what = format!("hand-over, {}, {waiters} waiters in {sessions} sessions", network.title());
            eprintln!("measuring: {what}");
            let mut contestants = run.bench.waiting();
            contestants.retain(|contestant| *contestant != Contestant::Own);
            // Eleven Java machines on two cores would measure the machine.
            contestants.retain(|contestant| sessions == 1 || !contestant.is_driven());
            contestants.retain(|contestant| {
                waiters <= FEW_WAITERS || *contestant != Contestant::Flock && !contestant.is_table()
            });
            // A client that failed with so many waiters fails behind the delay as well, and takes minutes for it.
            contestants.retain(|contestant| {
                network == Network::Loopback || of(&rows, *contestant, Network::Loopback, shape).is_some()
            });
            let round = |contestant| round(run, contestant, network, shape);
            rows.extend(run.rows(&contestants, network, &what, round, |rounds| over(shape, &rounds))?);
        }
    }
    Ok(rows)
}

/// Those of the store that there is time for.
fn shapes(run: &Run) -> Vec<Shape> {
    let mut shapes = if run.bench.store.has_server() { &ON_SERVERS[..] } else { &HERE }.to_vec();
    // What one process has in its memory is not for several.
    shapes.retain(|shape| run.bench.store != Store::Memory || shape.sessions == 1);
    shapes.retain(|shape| shape.waiters <= run.bench.effort.waiters);
    shapes
}

fn round(run: &Run, contestant: Contestant, network: Network, shape: Shape) -> Result<HandOver> {
    let mut crew = run.crew(contestant, shape.sessions, network, Placement::Dealt)?;
    run.warm(contestant, &mut crew)?;
    let few = if run.bench.store.has_server() { shape.waiters.min(10) } else { shape.waiters };
    queues(run, &mut crew, contestant, network, shape, few)
}

/// As often as it takes to see enough hand-overs. Nobody looks at a first queue of `few` waiters: threads, watches and caches
/// are there afterwards.
pub(crate) fn queues(
    run: &Run,
    crew: &mut Crew,
    contestant: Contestant,
    network: Network,
    shape: Shape,
    few: u64,
) -> Result<HandOver> {
    Drain::fill(run, crew, contestant, Shape { waiters: few, ..shape })?.go(run, crew, network)?;
    let (mut times, mut order) = (Vec::new(), Vec::new());
    for _ in 0..run.bench.effort.hand_overs.div_ceil(shape.waiters) {
        let mut drained = Drain::fill(run, crew, contestant, shape)?.go(run, crew, network)?;
        times.extend(hand_overs(&mut drained.sections)?);
        order.push(in_order(&drained.sections));
    }
    Ok(HandOver { shape, times: Times::of(times)?, in_order: median(order) })
}

fn over(shape: Shape, rounds: &[HandOver]) -> HandOver {
    let times = Times::median(rounds.iter().map(|round| round.times));
    HandOver { shape, times, in_order: median(rounds.iter().map(|round| round.in_order)) }
}

/// A queue that is about to move.
pub(super) struct Drain {
    shape: Shape,
    /// Those of contenders on their own nodes, which tell nobody else of the release.
    pub(super) own_watches: usize,
}

/// A queue that is empty again.
pub(super) struct Drained {
    pub(super) sections: Vec<Section>,
    pub(super) before: Traffic,
    /// How often waiters heard that they are next, or of anything else that is not the store's own business.
    pub(super) woken: u64,
}

impl Drain {
    /// A holder, and the waiters behind it. All of them wait before the first release: a server that comes to rest has been
    /// asked for everything that a waiter asks for.
    pub(super) fn fill(run: &Run, crew: &mut Crew, contestant: Contestant, shape: Shape) -> Result<Self> {
        run.site.delays(false);
        let watches = run.site.watches()?;
        crew.0[0].ask(Order::Enter { index: 0, hold: true })?;
        if run.bench.store.has_server() && shape.sessions == 1 && !contestant.is_driven() {
            crew.0[0].ask(Order::Fill { first: 1, count: shape.waiters })?;
        } else {
            for index in 1..=shape.waiters {
                if contestant == Contestant::Filelock {
                    // Else all of them would look at the same moment, in step with the release.
                    std::thread::sleep(random(POLL * 2 / u32::try_from(shape.waiters)?));
                }
                let worker = usize::try_from(index % shape.sessions)?;
                crew.0[worker].ask(Order::Enter { index, hold: false })?;
            }
        }
        // Each waiter watches a node at last: one that is slow to come to that would else ask within the window.
        run.site.has_watches(watches + shape.waiters)?;
        if contestant.is_restless() {
            // Everybody has been refused by now, which is all there is to wait for.
            std::thread::sleep(SETTLE);
        } else {
            run.site.is_quiet()?;
        }
        if contestant == Contestant::Filelock {
            std::thread::sleep(random(POLL));
        }
        let own_watches = run.site.own_watches()?;
        Ok(Self { shape, own_watches })
    }

    /// Everybody takes the lock once.
    pub(super) fn go(self, run: &Run, crew: &mut Crew, network: Network) -> Result<Drained> {
        let before = run.site.traffic()?;
        run.site.delays(network == Network::Delay);
        // The first one has the holder.
        for worker in crew.0.iter_mut().rev() {
            worker.send(Order::Go)?;
        }
        let cut = (network == Network::Delay && self.shape.waiters >= 1000).then(|| {
            run.site.carries(WINDOW);
            let cut = now();
            run.site.delays(false);
            cut
        });
        let (woken, mut sections) = crew.finish()?;
        run.site.delays(false);
        sections.retain(|section| cut.is_none_or(|cut| section.acquired < cut));
        Ok(Drained { sections, before, woken })
    }
}

/// Some time up to `most`: good enough to be out of step.
fn random(most: Duration) -> Duration {
    let mixed = now().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    most.mul_f64(mixed as f64 / f64::from(u32::MAX))
}

/// The row of that contestant, network and shape.
pub(crate) fn of(rows: &[Row<HandOver>], who: Contestant, network: Network, shape: Shape) -> Option<&HandOver> {
    find(rows, who, network, |figure| figure.shape == shape)
}

/// The same for so many waiters in one session.
pub(crate) fn with(rows: &[Row<HandOver>], who: Contestant, network: Network, waiters: u64) -> Option<&HandOver> {
    of(rows, who, network, one(waiters))
}

/// With a column for each shape on each way to the store.
pub(super) fn table(run: &Run, rows: &[Row<HandOver>]) -> Table {
    let shown = |network, shape| rows.iter().any(|row| row.network == network && row.figure.shape == shape);
    let networks = run.site.networks().iter().copied();
    let columns = networks.flat_map(|network| shapes(run).into_iter().map(move |shape| (network, shape)));
    let columns: Vec<_> = columns.filter(|(network, shape)| shown(*network, *shape)).collect();
    let head = columns.iter().map(|(network, Shape { waiters, sessions })| {
        let way = if run.bench.store.has_server() { format!("{}: ", network.title()) } else { String::new() };
        let of = if *sessions > 1 { format!(" of {sessions} processes") } else { String::new() };
        format!("{way}{waiters}{of}, {}", network.unit().0)
    });
    let head = ["hand-over, p50".to_owned()].into_iter().chain(head).chain(["order kept".to_owned()]);
    let mut table = Table::new(&head.collect::<Vec<_>>());
    let mut contestants = run.bench.waiting();
    contestants.retain(|contestant| rows.iter().any(|row| row.contestant == *contestant));
    for contestant in contestants {
        let found = columns.iter().map(|(network, shape)| (of(rows, contestant, *network, *shape), *network));
        let found: Vec<_> = found.collect();
        let order = found.iter().filter_map(|(figure, _)| Some(figure.as_ref()?.in_order)).reduce(f64::min);
        let order = order.map_or_else(|| "–".to_owned(), |order| format!("{:.0} %", 100.0 * order));
        let cells = found.iter().map(|(figure, network)| {
            let (_, write) = network.unit();
            figure.map_or_else(|| "–".to_owned(), |figure| write(figure.times.p50))
        });
        table.row([contestant.title().to_owned()].into_iter().chain(cells).chain([order]));
    }
    table
}
