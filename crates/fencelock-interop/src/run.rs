//! A whole run: a server of each kind, every cell, a table.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use fencelock_interop::Built;
use fencelock_testbed::redis::Server;
use fencelock_testbed::zookeeper::{Ensemble, Settings};

use crate::cells::{self, Among, Cell, On, Scene};
use crate::clients::{Client, GO, Nodes, Program};
use crate::driver::Driver;
use crate::pair::OPTIONS;
use crate::play::{Played, SESSION, Stage};
use crate::pool::Pool;
use crate::redis;
use crate::report;
use crate::sql;
use crate::workloads::{self, PEERS};

/// The time that a whole run may take on an idle machine.
const BUDGET: Duration = Duration::from_secs(300);

/// For the cells of quorums.
const MASTERS: usize = 3;

/// Plays every cell whose line contains `only`, `jobs` at a time; if that is empty, the workloads too.
pub(crate) fn all(only: &str, among: Among, on: On, jobs: usize) -> Result<()> {
    let chosen = |mut cells: Vec<Cell>| {
        cells.retain(|cell| report::title(cell).contains(only));
        cells
    };
    let there = |server, cells| if on == server || on == On::All { chosen(cells) } else { Vec::new() };
    let on_zookeeper = there(On::Zookeeper, cells::all(among));
    let on_redis = there(On::Redis, redis::cells::all(among));
    let in_places = sql::PLACES.each_ref().map(|place| (place, there(place.on, place.cells(among))));
    let is_in_none = in_places.iter().all(|(_, cells)| cells.is_empty());
    ensure!(!on_zookeeper.is_empty() || !on_redis.is_empty() || !is_in_none, "no line of the table contains {only:?}");
    let scratch = tempfile::tempdir().context("no scratch directory")?;
    let zookeeper = (!on_zookeeper.is_empty()).then(Built::for_zookeeper).transpose()?;
    let redis = (!on_redis.is_empty()).then(Built::for_redis_cells).transpose()?;
    let build = |(place, cells): &(&sql::Place, Vec<Cell>)| (!cells.is_empty()).then(place.build).transpose();
    let built = in_places.iter().map(build).collect::<Result<Vec<_>>>()?;
    let start = Instant::now();
    // At once: most of a cell is waiting.
    let (of_zookeeper, of_redis, of_places) = std::thread::scope(|scope| {
        let of_redis = redis.map(|built| scope.spawn(|| on_redis_servers(built, &on_redis, scratch.path(), jobs)));
        let of_zookeeper =
            zookeeper.map(|built| on_zookeeper_servers(built, &on_zookeeper, scratch.path(), only, jobs));
        let of_places = in_places
            .iter()
            .zip(built)
            .filter_map(|((place, cells), built)| Some(in_place(built?, place, cells, scratch.path(), jobs)));
        let of_places = of_places.collect::<Result<Vec<_>>>();
        let joined = of_redis.map(|run| run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        (of_zookeeper, joined, of_places)
    });
    let (mut played, drilled) = of_zookeeper.transpose()?.unwrap_or_default();
    played.extend(of_redis.transpose()?.unwrap_or_default());
    played.extend(of_places?.into_iter().flatten());
    let took = start.elapsed();
    let cells = [on_zookeeper, on_redis, in_places.map(|(_, cells)| cells).concat()].concat();
    println!("\n{}", report::table(&cells, &played));
    let budget = BUDGET.as_secs();
    println!("{} cells in {:.0} s; the budget of a whole run is {budget} s", cells.len(), took.as_secs_f64());
    verdict(&played, &drilled)
}

/// The outcome of the workloads of each driver.
type Drilled = Vec<Result<()>>;

fn on_zookeeper_servers(
    built: Built,
    cells: &[Cell],
    scratch: &Path,
    only: &str,
    jobs: usize,
) -> Result<(Vec<Result<Played>>, Drilled)> {
    // The games do not depend on the disk, and a slow disk would only delay them.
    let settings = Settings::default().with("forceSync", "no");
    let options = format!("tick_ms={}", settings.tick_ms);
    let server = Ensemble::start(settings).context("no ZooKeeper")?;
    let log = scratch.join("driver.log");
    let pool = Pool::new(built, server.connect_string(), options, SESSION, log.clone());
    println!("versions: {}", versions(cells, &pool)?);
    let observer = Mutex::new(pool.hire(GO, "the observer")?.ready()?);
    let fencelock = Mutex::new(pool.hire(Program::Fencelock, "fencelock")?.ready()?);
    let stage = Stage { pool: &pool, scratch, observer: &observer, fencelock: &fencelock };
    Ok(std::thread::scope(|scope| {
        let drilled = scope.spawn(|| if only.is_empty() { drill_all(&pool, &log) } else { Vec::new() });
        let played = play_all(cells, jobs, |cell, number| stage.play(cell, number));
        (played, drilled.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }))
}

fn on_redis_servers(built: Built, cells: &[Cell], scratch: &Path, jobs: usize) -> Result<Vec<Result<Played>>> {
    with_servers(&built, 1, scratch, |alone| {
        println!("versions: {}", versions(cells, alone.pool)?);
        with_servers(&built, MASTERS, scratch, |masters| {
            let play = |cell: &Cell, number| match (cell.scene, cell.holder.nodes) {
                // No other game can use masters of which one fails.
                (Scene::Killed | Scene::Silent, _) => {
                    with_servers(&built, MASTERS, scratch, |own| own.play(cell, number))
                }
                (_, Nodes::Masters(_)) => masters.play(cell, number),
                _ => alone.play(cell, number),
            };
            Ok(play_all(cells, jobs, play))
        })
    })
}

fn in_place(
    built: Built,
    place: &sql::Place,
    cells: &[Cell],
    scratch: &Path,
    jobs: usize,
) -> Result<Vec<Result<Played>>> {
    let log = scratch.join("sql-driver.log");
    let pool = Pool::new(built, place.database()?, OPTIONS.to_owned(), sql::TTL, log);
    println!("versions on {}: {}", place.title, versions(cells, &pool)?);
    let stage = sql::Stage { pool: &pool, scratch, place: place.title };
    Ok(play_all(cells, jobs, |cell, number| stage.play(cell, number)))
}

fn with_servers<T>(
    built: &Built,
    servers: usize,
    scratch: &Path,
    act: impl FnOnce(&redis::Stage<'_>) -> Result<T>,
) -> Result<T> {
    let start = |_| Server::start(fencelock_testbed::redis::Settings::default()).context("no Redis");
    let servers = (0..servers).map(start).collect::<Result<Vec<_>>>()?;
    let urls = servers.iter().map(Server::url).collect::<Vec<_>>().join(",");
    let log = scratch.join("redis-driver.log");
    let pool = Pool::new(built.clone(), urls, OPTIONS.to_owned(), redis::TTL, log);
    let fencelock = Mutex::new(pool.hire(Program::Fencelock, "fencelock")?.ready()?);
    act(&redis::Stage { pool: &pool, scratch, servers: &servers, fencelock: &fencelock })
}

fn verdict(played: &[Result<Played>], drilled: &[Result<()>]) -> Result<()> {
    let failed = played.iter().filter(|played| played.is_err()).count();
    let broken = drilled.iter().filter(|drilled| drilled.is_err()).count();
    ensure!(failed == 0, "{failed} of {} cells are not as they should be", played.len());
    ensure!(broken == 0, "{broken} drivers do not do what benchmarks ask of them");
    Ok(())
}

/// The workloads of benchmarks, for the drivers of other clients. In turn, since they share a log.
fn drill_all(pool: &Pool, log: &Path) -> Vec<Result<()>> {
    let drill = |(number, peer): (usize, &&Client)| {
        let hired = pool.hire(peer.program, peer.title).and_then(Driver::ready);
        // The driver may still hold locks, so it is not dismissed.
        let done = hired.and_then(|mut driver| workloads::drill(&mut driver, peer, number, log));
        match &done {
            Ok(()) => println!("ok      {} does the workloads", peer.title),
            Err(fault) => println!("FAILED  {} and the workloads: {fault:#}", peer.title),
        }
        done
    };
    PEERS.iter().enumerate().map(drill).collect()
}

/// The versions of all programs: every program that takes part reports its own.
fn versions(cells: &[Cell], pool: &Pool) -> Result<String> {
    let programs: BTreeSet<_> = cells.iter().flat_map(|cell| [cell.holder.program, cell.contender.program]).collect();
    let mut said = Vec::new();
    for program in programs {
        let mut driver = pool.hire(program, "a client")?.ready()?;
        said.push(driver.ask("version")?);
        pool.dismiss(program, driver);
    }
    Ok(said.join("; "))
}

fn play_all(cells: &[Cell], jobs: usize, play: impl Fn(&Cell, usize) -> Result<Played> + Sync) -> Vec<Result<Played>> {
    let next = AtomicUsize::new(0);
    let played: Mutex<Vec<Option<Result<Played>>>> = Mutex::new(cells.iter().map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some((number, cell)) = take(&next, cells) {
                    let outcome = play(cell, number);
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
