//! Hand-over: from just before the call of `release` until the next waiter has the lock.
//!
//! A holder has the lock while a known number of waiters queue. The holder releases it, and each waiter takes the lock once. So no client
//! overtakes longer waiters, and the order of arrival is known. With 1,000 waiters behind the delay only the first hundred or two are
//! measured; the rest of the queue moves without the delay.

use std::time::Duration;

use anyhow::Result;

use crate::contestant::Contestant;
use crate::crew::{Crew, Placement};
use crate::measured::Figures;
use crate::protocol::{Order, Section, now};
use crate::run::Run;
use crate::site::Traffic;
use crate::stats::{Times, hand_overs, in_order, median};
use crate::what::{Network, Shape, Store, What, one};

/// Waiters of four processes, without a server.
const fn four(waiters: u64) -> Shape {
    Shape { waiters, sessions: 4 }
}

/// Ten waiters and the holder, each in a session of its own.
pub(super) const EACH_ITS_OWN: Shape = Shape { waiters: 10, sessions: 11 };

const ON_SERVERS: [Shape; 3] = [one(2), one(100), one(1000)];
const HERE: [Shape; 5] = [one(2), one(100), one(1000), four(100), four(1000)];
/// Waiters of two processes in turn, so that every hand-over goes from one process to the other.
const TWO_CLIENTS: Shape = Shape { waiters: 100, sessions: 2 };

/// The measured part of a long queue behind the delay, in bytes on their way to the server: a release takes about 100 of
/// them, and a list half as many.
const WINDOW: u64 = 20_000;

/// The time until polling waiters are out of step with the last waiter that entered.
const SETTLE: Duration = Duration::from_millis(100);

/// How often `filelock` looks whether the lock is free, by default.
const POLL: Duration = Duration::from_millis(50);

/// The most waiters of tables by hand, and of threads blocked in the kernel: a thousand show nothing more than a hundred.
const FEW_WAITERS: u64 = 100;

pub(super) fn measure(run: &Run) -> Result<()> {
    run.is_on(Network::Loopback)?;
    for network in run.networks() {
        for shape in shapes(run, network) {
            let what = format!("{}, {}", What::HandOver(shape).title(), network.title());
            eprintln!("measuring: {what}");
            let mut contestants = run.bench.waiting(&[Contestant::Own]);
            // Eleven Java machines on two cores would measure the machine.
            contestants.retain(|contestant| shape.sessions == 1 || !contestant.is_driven());
            contestants.retain(|contestant| {
                shape.waiters <= FEW_WAITERS || !matches!(contestant, Contestant::Flock | Contestant::Table)
            });
            // A client that failed with that many waiters fails behind the delay, too, after minutes.
            let failed = |contestant| {
                let near = run.bench.on.is_empty() && network == Network::Delay;
                let measured = run.measured.borrow();
                near && measured.row(run.bench.store, Network::Loopback, contestant, What::HandOver(shape)).is_none()
            };
            contestants.retain(|contestant| !failed(*contestant));
            run.turns(&contestants, network, &what, |contestant| round(run, contestant, network, shape))?;
        }
    }
    Ok(())
}

/// The measured queues of the store: a thousand waiters take a minute to queue behind the delay.
fn shapes(run: &Run, network: Network) -> Vec<Shape> {
    let mut shapes = match run.bench.store {
        _ if run.bench.as_used => [one(2), one(100), one(1000), TWO_CLIENTS].to_vec(),
        store if store.has_server() => ON_SERVERS.to_vec(),
        _ => HERE.to_vec(),
    };
    // The memory of one process is not for several.
    shapes.retain(|shape| run.bench.store != Store::Memory || shape.sessions == 1);
    let is_short = run.bench.as_used && network == Network::Delay;
    let most = if is_short { FEW_WAITERS } else { run.bench.effort.waiters };
    shapes.retain(|shape| shape.waiters <= most && !(is_short && run.bench.quick));
    shapes
}

/// Repeats until it has measured enough hand-overs. A first queue of few waiters warms up threads, watches and caches, and is not
/// measured.
fn round(run: &Run, contestant: Contestant, network: Network, shape: Shape) -> Result<Figures> {
    let mut crew = run.crew(contestant, shape.sessions, network, Placement::Dealt)?;
    run.warm(contestant, &mut crew)?;
    let few = if run.bench.store.has_server() { shape.waiters.min(10) } else { shape.waiters };
    Drain::fill(run, &mut crew, contestant, Shape { waiters: few, ..shape })?.go(run, &mut crew, network)?;
    let (mut times, mut order) = (Vec::new(), Vec::new());
    for _ in 0..run.bench.effort.hand_overs.div_ceil(shape.waiters) {
        let mut drained = Drain::fill(run, &mut crew, contestant, shape)?.go(run, &mut crew, network)?;
        times.extend(hand_overs(&mut drained.sections)?);
        order.push(in_order(&drained.sections));
    }
    let times = Times::of(times)?;
    let both = [(What::HandOver(shape), times.p50), (What::HandOverTail(shape), times.p99)];
    Ok(both.into_iter().chain([(What::Order(shape), median(order))]).collect())
}

/// A queue that is about to move.
pub(super) struct Drain {
    shape: Shape,
    /// The watches of contenders on their own nodes, which notify no waiter of the release.
    pub(super) own_watches: usize,
}

/// A queue that is empty again.
pub(super) struct Drained {
    pub(super) sections: Vec<Section>,
    pub(super) before: Traffic,
    /// Notifications that woke waiters.
    pub(super) woken: u64,
}

impl Drain {
    /// A holder, and the waiters behind it. All of them wait before the first release: a server at rest has received
    /// all requests of the waiters.
    pub(super) fn fill(run: &Run, crew: &mut Crew, contestant: Contestant, shape: Shape) -> Result<Self> {
        run.delays(false);
        let watches = run.site.watches()?;
        crew.0[0].ask(Order::Enter { index: 0, hold: true })?;
        if run.bench.store.has_server() && shape.sessions == 1 && !contestant.is_driven() {
            crew.0[0].ask(Order::Fill { first: 1, count: shape.waiters })?;
        } else {
            for index in 1..=shape.waiters {
                if contestant == Contestant::Filelock {
                    // Otherwise all waiters would look at the same moment, in step with the release.
                    std::thread::sleep(random(POLL * 2 / u32::try_from(shape.waiters)?));
                }
                let worker = usize::try_from(index % shape.sessions)?;
                crew.0[worker].ask(Order::Enter { index, hold: false })?;
            }
        }
        // Waits until each waiter watches a node: otherwise a slow waiter would send requests within the window.
        run.site.has_watches(watches + shape.waiters)?;
        if contestant.is_restless() {
            // Each waiter has failed once, and no later state can be read.
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

    /// Each waiter takes the lock once.
    pub(super) fn go(self, run: &Run, crew: &mut Crew, network: Network) -> Result<Drained> {
        let before = run.site.traffic()?;
        run.delays(network == Network::Delay);
        // The first session is the holder's.
        for worker in crew.0.iter_mut().rev() {
            worker.send(Order::Go)?;
        }
        let cut = (network == Network::Delay && self.shape.waiters >= 1000).then(|| {
            run.carries(WINDOW);
            let cut = now();
            run.delays(false);
            cut
        });
        let (woken, mut sections) = crew.finish()?;
        run.delays(false);
        sections.retain(|section| cut.is_none_or(|cut| section.acquired < cut));
        Ok(Drained { sections, before, woken })
    }
}

/// A random time up to `most`, so that waiters are out of step.
fn random(most: Duration) -> Duration {
    let mixed = now().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    most.mul_f64(mixed as f64 / f64::from(u32::MAX))
}
