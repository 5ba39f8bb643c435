//! The parent's side of the workers: processes that are measured, each with one contestant.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use fencelock_lab::Process;
use fencelock_testbed::process::bound;

use crate::bench::Bench;
use crate::contestant::Contestant;
use crate::machine;
use crate::protocol::{Order, Section, now, read_log, read_sections};

/// How long a worker may take to release its locks.
const FAREWELL: Duration = Duration::from_secs(10);

/// How long a worker may work on an order.
const PATIENCE: Duration = Duration::from_secs(90);

/// How long a client of another language contends before the measurement.
const WARM_UP_NANOS: u64 = 1_500_000_000;

/// The lock of a crew: a store of ours by its URL, and the file that other contestants lock.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) url: String,
    pub(crate) file: PathBuf,
}

/// A worker process. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Worker {
    contestant: Contestant,
    process: Process,
    log: PathBuf,
}

impl Worker {
    /// Starts a worker that keeps to `cores`, the first of which is its main thread's, and waits until the worker is
    /// ready.
    pub(crate) fn start(
        bench: &Bench,
        contestant: Contestant,
        target: &Target,
        cores: &[usize],
        placement: Placement,
    ) -> Result<Self> {
        let log = bench.scratch.fresh("log");
        let mut command = command(bench, contestant, target, &log, cores)?;
        if placement == Placement::AsUsed && !contestant.is_driven() && contestant != Contestant::Filelock {
            command.arg("--multi-thread");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = machine::pinned(cores, || command.spawn().context("cannot start a worker"))?;
        let mut worker = Self { contestant, process: Process::of(child), log };
        let said = worker.answer()?;
        ensure!(said == "ready", "a worker said {said:?} for a start");
        if let Some((_, recipe)) = contestant.driver() {
            let (_, parent) = for_driver(&target.url)?;
            worker.tell(&format!("use {recipe} {parent} bench"))?;
            worker.answer()?;
        }
        Ok(worker)
    }

    /// Sends an order, without waiting for the answer.
    pub(crate) fn send(&mut self, order: Order) -> Result<()> {
        self.tell(&order.to_string())
    }

    fn tell(&mut self, order: &str) -> Result<()> {
        let gone = || format!("{order}: {} is gone", self.contestant.title());
        self.process.order(order).with_context(gone)
    }

    /// Waits for the next answer.
    pub(crate) fn answer(&mut self) -> Result<String> {
        let who = self.contestant.title();
        let line = match self.process.says(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => bail!("{who}: no answer for {} s", PATIENCE.as_secs()),
            Err(RecvTimeoutError::Disconnected) => bail!("{who}: the worker is gone"),
        };
        match line.strip_prefix("failed ") {
            Some(why) => bail!("{who}: {why}"),
            None => Ok(line),
        }
    }

    /// Sends an order, and waits for the answer.
    pub(crate) fn ask(&mut self, order: Order) -> Result<String> {
        self.send(order)?;
        self.answer()
    }

    /// Lets a client of another language run the order for a while: the client compiles its code.
    pub(crate) fn warm(&mut self, order: impl Fn(u64, u64) -> Order) -> Result<()> {
        if self.contestant.is_driven() {
            let start = now();
            self.ask(order(start, start + WARM_UP_NANOS))?;
        }
        Ok(())
    }

    /// The version that the driver of a peer reports.
    pub(crate) fn version(&mut self) -> Result<String> {
        self.tell("version")?;
        Ok(self.answer()?.trim_start_matches("done ").replace('=', " "))
    }

    /// Processor time of the worker's threads so far.
    pub(crate) fn processor_time(&self) -> Result<Duration> {
        machine::threads_time(self.process.id())
    }

    /// The numbers that the last order left.
    pub(crate) fn log(&self) -> Result<Vec<u64>> {
        read_log(&self.log)
    }

    /// The sections that the last order left.
    pub(crate) fn sections(&self) -> Result<Vec<Section>> {
        read_sections(&self.log)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.contestant.is_session() {
            // A killed worker's locks would stay for as long as its session.
            self.process.dismiss();
            let process = &mut self.process;
            fencelock_testbed::wait_until(FAREWELL, || !matches!(process.ended(), Ok(None)));
        }
        let _ = self.process.kill();
    }
}

fn command(bench: &Bench, contestant: Contestant, target: &Target, log: &Path, cores: &[usize]) -> Result<Command> {
    if contestant == Contestant::Filelock {
        let Some(python) = &bench.python else { bail!("filelock takes no part in this run") };
        let mut command = bound(python);
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/peers/filelock_driver.py")).arg(&target.file).arg(log);
        return Ok(command);
    }
    if let Some((driver, _)) = contestant.driver() {
        let Some(peers) = &bench.peers else { bail!("peers take no part in this run") };
        let (servers, _) = for_driver(&target.url)?;
        return Ok(peers.command(driver, &servers, log));
    }
    let mut command = bound(std::env::current_exe().context("where is this program?")?);
    command.args(["worker", "--contestant", &value(contestant), "--url", &target.url]);
    command.arg("--file").arg(&target.file).arg("--log").arg(log);
    for core in cores {
        command.arg("--core").arg(core.to_string());
    }
    Ok(command)
}

fn value(contestant: Contestant) -> String {
    use clap::ValueEnum as _;
    contestant.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// The servers and the parent node that a URL of `zk:` names.
pub(crate) fn servers_and_parent(url: &str) -> Result<(&str, &str)> {
    let rest = url.strip_prefix("zk://").with_context(|| url.to_owned())?;
    let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
    let slash = rest.find('/').with_context(|| url.to_owned())?;
    Ok(rest.split_at(slash))
}

/// The servers and the parent of the locks in the form of a driver, from a URL of ours. The servers of Redis are URLs of their own. The URL
/// of etcd names the parent, too.
fn for_driver(url: &str) -> Result<(String, &str)> {
    if url.starts_with("etcd:") {
        return Ok((url.to_owned(), "-"));
    }
    if let Ok((servers, parent)) = servers_and_parent(url) {
        return Ok((servers.to_owned(), parent));
    }
    let (servers, options) = url.split_once('?').with_context(|| url.to_owned())?;
    let (_, prefix) = options.split_once("prefix=").with_context(|| url.to_owned())?;
    let (_, hosts) = servers.split_once("://").with_context(|| url.to_owned())?;
    Ok((hosts.split(',').map(|host| format!("redis://{host}")).collect::<Vec<_>>().join(","), prefix))
}

/// The cores of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// A single process keeps to the first one, several are dealt out over two.
    Dealt,
    /// Each of the two cores.
    Free,
    /// Any core, on a runtime of several threads, as users run fencelock.
    AsUsed,
}

/// Workers of one contestant that lock the same thing.
#[derive(Debug)]
pub(crate) struct Crew(pub(crate) Vec<Worker>);

impl Crew {
    /// Starts `processes` workers.
    pub(crate) fn on(
        bench: &Bench,
        contestant: Contestant,
        processes: u64,
        target: &Target,
        placement: Placement,
    ) -> Result<Self> {
        let (first, second) = (bench.cores.first, bench.cores.second);
        let workers = (0..processes).map(|number| {
            let cores = match (contestant, number % 2) {
                _ if placement != Placement::Dealt => vec![first, second],
                (Contestant::OwnApart, 0) => vec![first, second],
                (Contestant::OwnApart, _) => vec![second, first],
                (_, 0) => vec![first],
                _ => vec![second],
            };
            Worker::start(bench, contestant, target, &cores, placement)
        });
        workers.collect::<Result<_>>().map(Self)
    }

    /// Waits until all workers are done. Returns how often waiters were woken meanwhile, and every section.
    pub(crate) fn finish(&mut self) -> Result<(u64, Vec<Section>)> {
        let (mut woken, mut sections) = (0, Vec::new());
        for worker in &mut self.0 {
            let answer = worker.answer()?;
            woken += number(&answer, "woken").unwrap_or(0);
            sections.extend(worker.sections()?);
        }
        Ok((woken, sections))
    }
}

/// The value of `key=value` in an answer.
pub(crate) fn number(answer: &str, key: &str) -> Option<u64> {
    answer.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('=')?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_receives_the_address_of_every_server() {
        let one = |servers: &str, parent| (servers.to_owned(), parent);
        assert_eq!(for_driver("zk://a:1,b:2/bench-1?tick_ms=2").unwrap(), one("a:1,b:2", "/bench-1"));
        assert_eq!(for_driver("redis://a:1?prefix=p").unwrap(), one("redis://a:1", "p"));
        assert_eq!(
            for_driver("redlock://a:1,b:2,c:3?rejoin_ms=0&prefix=p").unwrap(),
            one("redis://a:1,redis://b:2,redis://c:3", "p")
        );
        assert_eq!(for_driver("etcd://a:1/bench-1").unwrap(), one("etcd://a:1/bench-1", "-"));
        assert!(for_driver("file:///tmp").is_err());
    }
}
