//! A whole run: one server, every cell, a table.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use fencelock_interop::Built;
use fencelock_testbed::zookeeper::{Ensemble, Settings};

use crate::cells::{self, Among, Cell};
use crate::clients::{Client, GO, Program};
use crate::driver::Driver;
use crate::play::{Played, Stage};
use crate::pool::Pool;
use crate::report;
use crate::workloads::{self, PEERS};

/// What a whole run may take on a machine that does nothing else.
const BUDGET: Duration = Duration::from_secs(240);

/// Plays every cell whose line contains `only`, `jobs` at a time; if that is empty, the workloads too.
pub(crate) fn all(only: &str, among: Among, jobs: usize) -> Result<()> {
    let mut cells = cells::all(among);
    cells.retain(|cell| report::title(cell).contains(only));
    ensure!(!cells.is_empty(), "no line of the table contains {only:?}");
    let built = Built::for_zookeeper()?;
    let start = Instant::now();
    // What is played does not depend on the disk, and a slow one would only make everybody late.
    let settings = Settings::default().with("forceSync", "no");
    let options = format!("tick_ms={}", settings.tick_ms);
    let server = Ensemble::start(settings).context("no ZooKeeper")?;
    let scratch = tempfile::tempdir().context("no scratch directory")?;
    let log = scratch.path().join("driver.log");
    let pool = Pool::new(built, server.connect_string(), options, log.clone());
    println!("versions: {}", versions(&cells, &pool)?);
    let observer = Mutex::new(pool.hire(GO, "the observer")?.ready()?);
    let fencelock = Mutex::new(pool.hire(Program::Fencelock, "fencelock")?.ready()?);
    let stage = Stage { pool: &pool, scratch: scratch.path(), observer: &observer, fencelock: &fencelock };
    let (played, drilled) = std::thread::scope(|scope| {
        let drilled = scope.spawn(|| if only.is_empty() { drill_all(&pool, &log) } else { Vec::new() });
        (play_all(&stage, &cells, jobs), drilled.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    println!("\n{}", report::table(&cells, &played));
    let (took, budget) = (start.elapsed().as_secs_f64(), BUDGET.as_secs());
    println!("{} cells in {took:.0} s; the budget of a whole run is {budget} s", cells.len());
    verdict(&played, &drilled)
}

fn verdict(played: &[Result<Played>], drilled: &[Result<()>]) -> Result<()> {
    let failed = played.iter().filter(|played| played.is_err()).count();
    let broken = drilled.iter().filter(|drilled| drilled.is_err()).count();
    ensure!(failed == 0, "{failed} of {} cells are not as they should be", played.len());
    ensure!(broken == 0, "{broken} drivers do not do what benchmarks ask of them");
    Ok(())
}

/// What benchmarks ask of the drivers of others. One after the other, since they share a log.
fn drill_all(pool: &Pool, log: &Path) -> Vec<Result<()>> {
    let drill = |(number, peer): (usize, &&Client)| {
        let hired = pool.hire(peer.program, peer.title).and_then(Driver::ready);
        // What it holds at the end is nobody else's business, so it is not dismissed.
        let done = hired.and_then(|mut driver| workloads::drill(&mut driver, peer, number, log));
        match &done {
            Ok(()) => println!("ok      {} does the workloads", peer.title),
            Err(fault) => println!("FAILED  {} and the workloads: {fault:#}", peer.title),
        }
        done
    };
    PEERS.iter().enumerate().map(drill).collect()
}

/// What runs: every program that takes part says so itself.
fn versions(cells: &[Cell], pool: &Pool) -> Result<String> {
    let takes_part =
        |program: &Program| cells.iter().any(|c| c.holder.program == *program || c.contender.program == *program);
    let mut said = Vec::new();
    for program in Program::all().filter(takes_part) {
        let mut driver = pool.hire(program, "a client")?.ready()?;
        said.push(driver.ask("version")?);
        pool.dismiss(program, driver);
    }
    Ok(said.join("; "))
}

fn play_all(stage: &Stage<'_>, cells: &[Cell], jobs: usize) -> Vec<Result<Played>> {
    let next = AtomicUsize::new(0);
    let played: Mutex<Vec<Option<Result<Played>>>> = Mutex::new(cells.iter().map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some((number, cell)) = take(&next, cells) {
                    let outcome = stage.play(cell, number);
                    println!("{}", report::line(cell, &outcome));
                    played.lock().unwrap_or_else(PoisonError::into_inner)[number] = Some(outcome);
                }
            });
        }
    });
    let played = played.into_inner().unwrap_or_else(PoisonError::into_inner);
    played.into_iter().map(|outcome| outcome.unwrap_or_else(|| bail!("it was not played"))).collect()
}

fn take<'c>(next: &AtomicUsize, cells: &'c [Cell]) -> Option<(usize, &'c Cell)> {
    let number = next.fetch_add(1, Ordering::Relaxed);
    Some((number, cells.get(number)?))
}
