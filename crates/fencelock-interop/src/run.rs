//! A whole run: one server, every cell, a table.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use fencelock_interop::Built;
use fencelock_testbed::zookeeper::{Ensemble, Settings};

use crate::cells::{self, Among, Cell};
use crate::clients::{Client, GO, Program};
use crate::driver::Driver;
use crate::play::{Played, Stage};
use crate::report;
use crate::workloads::{self, PEERS};

/// Plays every cell whose line contains `only`, `jobs` at a time; if that is empty, the workloads too.
pub(crate) fn all(only: &str, among: Among, jobs: usize) -> Result<()> {
    let start = Instant::now();
    let mut cells = cells::all(among);
    cells.retain(|cell| report::title(cell).contains(only));
    ensure!(!cells.is_empty(), "no line of the table contains {only:?}");
    let built = Built::all()?;
    // What is played does not depend on the disk, and a slow one would only make everybody late.
    let settings = Settings::default().with("forceSync", "no");
    let options = format!("tick_ms={}", settings.tick_ms);
    let server = Ensemble::start(settings).context("no ZooKeeper")?;
    let scratch = tempfile::tempdir().context("no scratch directory")?;
    let servers = server.connect_string();
    let log = scratch.path().join("driver.log");
    let start_driver = |program: Program| {
        let mut command = program.command(&built)?;
        command.arg(program.servers(&servers, &options)).arg("10000").arg(&log);
        Driver::start("a client", command)?.ready()
    };
    println!("versions: {}", versions(&cells, start_driver)?);
    let observer = Mutex::new(start_driver(GO)?);
    let fencelock = Mutex::new(start_driver(Program::Fencelock)?);
    let stage = Stage {
        servers: &servers,
        options: &options,
        built: &built,
        scratch: scratch.path(),
        observer: &observer,
        fencelock: &fencelock,
    };
    let played = play_all(&stage, &cells, jobs);
    let drilled = if only.is_empty() { drill_all(&start_driver, &log) } else { Vec::new() };
    println!("\n{}", report::table(&cells, &played));
    println!("{} cells in {:.0} s", cells.len(), start.elapsed().as_secs_f64());
    verdict(&played, &drilled)
}

fn verdict(played: &[Result<Played>], drilled: &[Result<()>]) -> Result<()> {
    let failed = played.iter().filter(|played| played.is_err()).count();
    let broken = drilled.iter().filter(|drilled| drilled.is_err()).count();
    ensure!(failed == 0, "{failed} of {} cells are not as they should be", played.len());
    ensure!(broken == 0, "{broken} drivers do not do what benchmarks ask of them");
    Ok(())
}

/// What benchmarks ask of the drivers of others.
fn drill_all(start: &impl Fn(Program) -> Result<Driver>, log: &Path) -> Vec<Result<()>> {
    let drill = |(number, peer): (usize, &&Client)| {
        let done = start(peer.program).and_then(|mut driver| workloads::drill(&mut driver, peer, number, log));
        match &done {
            Ok(()) => println!("ok      {} does the workloads", peer.title),
            Err(fault) => println!("FAILED  {} and the workloads: {fault:#}", peer.title),
        }
        done
    };
    PEERS.iter().enumerate().map(drill).collect()
}

/// What runs: every program that takes part says so itself.
fn versions(cells: &[Cell], start: impl Fn(Program) -> Result<Driver>) -> Result<String> {
    let takes_part =
        |program: &Program| cells.iter().any(|c| c.holder.program == *program || c.contender.program == *program);
    let said = Program::all().filter(takes_part).map(|program| start(program)?.ask("version"));
    Ok(said.collect::<Result<Vec<_>>>()?.join("; "))
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
