//! Hand-over: from just before `release` is called to the instant that the next one has the lock.
//!
//! Somebody holds the lock while a known number of waiters queue. The holder lets go, and everybody takes the lock once.
//! With 1,000 waiters behind the delay only the first hundred or two are measured; what is left of the queue goes without.

use std::time::Duration;

use anyhow::Result;

use super::site::{Network, Traffic};
use crate::contestant::Contestant;
use crate::crew::{Crew, Placement};
use crate::protocol::{Order, Section, now};
use crate::report::{Table, decimals};
use crate::rows::Row;
use crate::run::Run;
use crate::stats::{Times, hand_overs, in_order, median};

/// How many wait, and in how many sessions, each a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) waiters: u64,
    pub(super) sessions: u64,
}

/// Everybody in one session.
const fn one(waiters: u64) -> Shape {
    Shape { waiters, sessions: 1 }
}

/// Ten waiters and the holder, each in a session of its own.
pub(super) const EACH_ITS_OWN: Shape = Shape { waiters: 10, sessions: 11 };

const SHAPES: [Shape; 5] = [one(2), one(10), EACH_ITS_OWN, one(100), one(1000)];

/// What is looked at of a long queue behind the delay, in bytes on their way to the server: a release takes about 100 of
/// them, and a list half as many.
const WINDOW: u64 = 20_000;

/// Until those who ask again and again are out of step with whoever entered last.
const SETTLE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone)]
pub(super) struct HandOver {
    pub(super) shape: Shape,
    pub(super) times: Times,
    /// Neighbours served in the order of their arrival; from 0 to 1.
    pub(super) in_order: f64,
}

pub(super) fn measure(run: &Run) -> Result<Vec<Row<HandOver>>> {
    let mut rows = Vec::new();
    for network in Network::BOTH {
        for shape in SHAPES.into_iter().filter(|shape| shape.waiters <= run.bench.effort.waiters) {
            let Shape { waiters, sessions } = shape;
            let what = format!("hand-over, {}, {waiters} waiters in {sessions} sessions", network.title());
            eprintln!("measuring: {what}");
            let mut contestants = run.bench.waiting();
            // Eleven Java machines on two cores would measure the machine.
            contestants.retain(|contestant| shape.sessions == 1 || !contestant.is_driven());
            // Who failed with so many waiters fails behind the delay as well, and takes minutes for it.
            contestants.retain(|contestant| {
                network == Network::Loopback || find(&rows, *contestant, Network::Loopback, shape).is_some()
            });
            let found = run.turns(&contestants, &what, |contestant| round(run, contestant, network, shape))?;
            rows.extend(found.into_iter().map(|(contestant, rounds)| {
                let of = |figure: fn(&HandOver) -> f64| median(rounds.iter().map(figure));
                let times = Times { p50: of(|round| round.times.p50), p99: of(|round| round.times.p99) };
                Row { contestant, network, figure: HandOver { shape, times, in_order: of(|round| round.in_order) } }
            }));
        }
    }
    Ok(rows)
}

/// As often as it takes to see enough hand-overs.
fn round(run: &Run, contestant: Contestant, network: Network, shape: Shape) -> Result<HandOver> {
    let target = run.site.target(network);
    let mut crew = Crew::on(&run.bench, contestant, shape.sessions, &target, Placement::Dealt)?;
    run.warm(contestant, &mut crew)?;
    // One that nobody looks at: threads and caches are there afterwards.
    let few = Shape { waiters: shape.waiters.min(10), ..shape };
    Drain::fill(run, &mut crew, contestant, few)?.go(run, &mut crew, network)?;
    let (mut times, mut order) = (Vec::new(), Vec::new());
    for _ in 0..run.bench.effort.hand_overs.div_ceil(shape.waiters) {
        let mut sections = Drain::fill(run, &mut crew, contestant, shape)?.go(run, &mut crew, network)?.sections;
        times.extend(hand_overs(&mut sections)?);
        order.push(in_order(&sections));
    }
    Ok(HandOver { shape, times: Times::of(times)?, in_order: median(order) })
}

/// A queue that is about to move.
pub(super) struct Drain {
    shape: Shape,
    /// Watches that came with the waiters.
    pub(super) watches: u64,
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
    /// A holder, and the waiters behind it.
    pub(super) fn fill(run: &Run, crew: &mut Crew, contestant: Contestant, shape: Shape) -> Result<Self> {
        run.site.delays(false);
        let watches = run.site.watches()?;
        crew.0[0].ask(Order::Enter { index: 0, hold: true })?;
        if shape.sessions == 1 && !contestant.is_driven() {
            crew.0[0].ask(Order::Fill { first: 1, count: shape.waiters })?;
        } else {
            for index in 1..=shape.waiters {
                let worker = usize::try_from(index % shape.sessions)?;
                crew.0[worker].ask(Order::Enter { index, hold: false })?;
            }
        }
        // Whoever queues watches a node at last: one that is slow to come to that would else ask within the window.
        run.site.has_watches(watches + shape.waiters)?;
        if contestant.is_restless() {
            // Everybody has been refused by now, which is all there is to wait for.
            std::thread::sleep(SETTLE);
        } else {
            run.site.is_quiet()?;
        }
        let own_watches = run.site.own_watches()?;
        Ok(Self { shape, watches: run.site.watches()?.saturating_sub(watches), own_watches })
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

/// The row of that contestant, network and shape.
pub(super) fn find(
    rows: &[Row<HandOver>],
    contestant: Contestant,
    network: Network,
    shape: Shape,
) -> Option<&HandOver> {
    let is_it = |row: &&Row<HandOver>| (row.contestant, row.network, row.figure.shape) == (contestant, network, shape);
    rows.iter().find(is_it).map(|row| &row.figure)
}

/// The same for so many waiters in one session.
pub(super) fn with(
    rows: &[Row<HandOver>],
    contestant: Contestant,
    network: Network,
    waiters: u64,
) -> Option<&HandOver> {
    find(rows, contestant, network, one(waiters))
}

pub(super) fn table(run: &Run, rows: &[Row<HandOver>], network: Network) -> Table {
    let (unit, write) = network.unit();
    let first = format!("hand-over, {}, p50 (p99) {unit}", network.title());
    let mut table = Table::new(&[&first, "2", "10", "10, each its session", "100", "1,000", "order kept"]);
    for contestant in run.bench.waiting() {
        let cells = SHAPES.map(|shape| find(rows, contestant, network, shape));
        let order = cells.iter().flatten().map(|figure| figure.in_order).reduce(f64::min);
        let cell = |figure: &HandOver| format!("{} ({})", write(figure.times.p50), write(figure.times.p99));
        let cells = cells.map(|figure| figure.map_or_else(|| "–".to_owned(), cell));
        let order = order.map_or_else(|| "–".to_owned(), |order| format!("{} %", decimals(100.0 * order)));
        table.row([contestant.title().to_owned()].into_iter().chain(cells).chain([order]));
    }
    table
}
