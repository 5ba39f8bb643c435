//! Hand-over: from just before `release` is called to the instant that the next one has the lock.
//!
//! Somebody holds the lock while a known number of waiters queue, one after the other. The holder lets go, and everybody
//! takes the lock once. So nobody can take it back from those who wait longer, and the order of arrival is known.

use std::time::Duration;

use anyhow::Result;

use super::{Row, take_turns};
use crate::bench::Store;
use crate::contestant::Contestant;
use crate::crew::Crew;
use crate::network::server::Site;
use crate::protocol::{Order, now};
use crate::report::{Table, decimals, micros};
use crate::run::Run;
use crate::stats::{Times, hand_overs, in_order, median};

const CONTESTANTS: [Contestant; 5] =
    [Contestant::Current, Contestant::Own, Contestant::OwnApart, Contestant::Flock, Contestant::Filelock];

/// Waiters, and the processes that they are spread over.
const SHAPES: [(u64, u64); 5] = [(2, 1), (100, 1), (1000, 1), (100, 4), (1000, 4)];

/// How often `filelock` looks whether the lock is free, by default.
const POLL: Duration = Duration::from_millis(50);

/// A thousand threads blocked in the kernel say nothing that a hundred do not.
const FLOCK_WAITERS: u64 = 100;

#[derive(Debug, Clone)]
pub(crate) struct HandOver {
    pub(crate) waiters: u64,
    pub(crate) processes: u64,
    pub(crate) times: Times,
    /// Neighbours served in the order of their arrival; from 0 to 1.
    pub(crate) in_order: f64,
    /// Waiters woken per release; only ours can tell.
    pub(crate) woken: f64,
}

pub(crate) fn measure(run: &Run) -> Result<Vec<Row<HandOver>>> {
    let mut rows = Vec::new();
    let bench = &run.bench;
    for (waiters, processes) in SHAPES {
        let fits = waiters <= bench.effort.waiters && (bench.store == Store::File || processes == 1);
        let mut contestants = bench.present(&CONTESTANTS);
        contestants.retain(|contestant| fits && (*contestant != Contestant::Flock || waiters <= FLOCK_WAITERS));
        let turn = |contestant| round(run, contestant, waiters, processes).map(Some);
        let found = take_turns(&contestants, bench.effort.rounds, turn)?;
        let row = |(contestant, rounds): (_, Vec<_>)| Row::here(contestant, over(&rounds, waiters, processes));
        rows.extend(found.into_iter().map(row));
    }
    Ok(rows)
}

/// As often as it takes to see enough hand-overs.
fn round(run: &Run, contestant: Contestant, waiters: u64, processes: u64) -> Result<HandOver> {
    let mut crew = run.crew(contestant, processes)?;
    let (mut times, mut order, mut woken) = (Vec::new(), Vec::new(), 0);
    // One that nobody looks at: threads, watches and caches are there afterwards.
    for is_warm in [false].into_iter().chain((0..run.bench.effort.hand_overs.div_ceil(waiters)).map(|_| true)) {
        let (woken_now, mut sections) = drain(&mut crew, contestant, waiters, &*run.site)?;
        let times_now = hand_overs(&mut sections)?;
        if is_warm {
            woken += woken_now;
            order.push(in_order(&sections));
            times.extend(times_now);
        }
    }
    let woken = woken as f64 / times.len() as f64;
    Ok(HandOver { waiters, processes, times: Times::of(times)?, in_order: median(order), woken })
}

/// Lets so many queue and be served, once; how often waiters were woken, and every section. All of them wait before the
/// first release: a server that comes to rest has been asked for everything that a waiter asks for.
pub(crate) fn drain(
    crew: &mut Crew,
    contestant: Contestant,
    waiters: u64,
    site: &dyn Site,
) -> Result<(u64, Vec<crate::protocol::Section>)> {
    let processes = crew.0.len() as u64;
    for index in 0..=waiters {
        if contestant == Contestant::Filelock {
            // Else all of them would look at the same moment, in step with the release.
            std::thread::sleep(random(POLL * 2 / u32::try_from(waiters)?));
        }
        let worker = &mut crew.0[usize::try_from(index % processes)?];
        worker.ask(Order::Enter { index, hold: index == 0 })?;
    }
    site.is_quiet()?;
    if contestant == Contestant::Filelock {
        std::thread::sleep(random(POLL));
    }
    // The first one has the holder.
    for worker in crew.0.iter_mut().rev() {
        worker.send(Order::Go)?;
    }
    crew.finish()
}

/// Some time up to `most`: good enough to be out of step.
fn random(most: Duration) -> Duration {
    let mixed = now().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    most.mul_f64(mixed as f64 / f64::from(u32::MAX))
}

fn over(rounds: &[HandOver], waiters: u64, processes: u64) -> HandOver {
    let of = |figure: fn(&HandOver) -> f64| median(rounds.iter().map(figure));
    let times = Times { p50: of(|round| round.times.p50), p99: of(|round| round.times.p99) };
    HandOver { waiters, processes, times, in_order: of(|round| round.in_order), woken: of(|round| round.woken) }
}

pub(crate) fn table(rows: &[Row<HandOver>]) -> Table {
    let head = ["hand-over", "waiters", "processes", "p50 µs", "p99 µs", "order kept", "woken per release"];
    let mut table = Table::new(&head);
    for Row { contestant, figure, .. } in rows {
        table.row([
            contestant.title().to_owned(),
            figure.waiters.to_string(),
            figure.processes.to_string(),
            micros(figure.times.p50),
            micros(figure.times.p99),
            format!("{:.1} %", 100.0 * figure.in_order),
            if contestant.is_fencelock() { decimals(figure.woken) } else { "–".to_owned() },
        ]);
    }
    table
}
