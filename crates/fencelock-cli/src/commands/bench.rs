//! `fencelock bench`: the classic drill. Workers in several processes add to a plain counter file under one lock; the
//! counter must end exact, and the logs of all sections say how fast and how fair it was.

mod figures;
mod log;
mod report;
mod workers;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use fencelock::Name;
use fencelock_lab::Process;
use tokio::signal::unix::{SignalKind, signal};

use self::figures::{Figures, in_order};
use self::log::Log;
pub(crate) use self::workers::Workers;
use super::StoreArguments;
use crate::arguments;
use crate::job::ended_early;
use crate::output::{Failure, Outcome};
use crate::settings::{Chosen, STORE_VARIABLE};
use crate::show::print_judged;

/// Drill a store: many workers, several processes, one lock, one counter.
///
/// Every section reads an unprotected counter file, adds one and writes it back. Exits with 1 if the counter ends wrong,
/// two sections overlap, or a token does not rise.
///
/// Hand-over is the time from just before a release is called to the instant the next waiter has the lock; a wait is
/// the time from the call to the grant. An overtake is a section that was granted before a section that asked earlier;
/// requests that were under way at the same time may swap.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// How many workers want the lock.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    workers: u32,
    /// How many processes they live in.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    processes: u32,
    /// Stop after this many sections, instead of after --seconds.
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..))]
    sections: Option<u64>,
    /// Stop after this many seconds.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// The lock's name; by default a new name.
    #[arg(long, value_name = "NAME", value_parser = arguments::name)]
    name: Option<Name>,
    /// Print JSON: the same figures, times in microseconds.
    #[arg(long)]
    json: bool,
    /// Write the figures into this file, as a page of HTML with plots of throughput, cycles, hand-overs and each worker's share.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

impl Bench {
    pub(super) async fn run(&self, store: &StoreArguments) -> Outcome<u8> {
        let chosen = store.choose(false, &[])?;
        // Before the drill: an unwritable path should not cost a long run.
        let report = self.report.as_deref().map(std::fs::File::create).transpose()?;
        // Where our parent ignores SIGCHLD, the kernel reaps the workers, and no process can wait for them. A handler ends that.
        let _children = signal(SignalKind::child()).map_err(|error| Failure::os("cannot wait for signals", &error))?;
        // A connection made here reports a wrong URL once, not once per process.
        let client = super::connect(fencelock::Client::builder(), &chosen, false).await?;
        super::farewell(&client, false).await;
        let directory = tempfile::Builder::new().prefix("fencelock-bench-").tempdir()?;
        let counter = directory.path().join("counter");
        std::fs::write(&counter, "0")?;
        let logs = self.drill(&chosen, directory.path(), &counter)?;
        let counted = std::fs::read_to_string(&counter)?;
        let figures = Figures::new(&logs, self.workers, self.processes, counted.trim().parse().ok());
        if let Some(mut report) = report {
            report.write_all(report::page(&chosen.name(), &figures, &in_order(&logs)).as_bytes())?;
        }
        print_judged(&figures, self.json, figures.fault())
    }

    fn drill(&self, chosen: &Chosen, directory: &Path, counter: &Path) -> Outcome<Vec<Log>> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => Name::new(format!("fencelock-bench-{}", std::process::id()))?,
        };
        let processes = self.processes.min(self.workers);
        let log_of = |process| directory.join(format!("log-{process}"));
        let mut started = Vec::new();
        for process in 0..processes {
            let mut command = Command::new(std::env::current_exe()?);
            command.env(STORE_VARIABLE, chosen.inherited(false)).arg("bench-workers");
            command.arg("--counter").arg(counter).arg("--log").arg(log_of(process));
            let share = (process..self.workers).step_by(processes as usize).count();
            command.args(["--first", &process.to_string(), "--step", &processes.to_string()]);
            command.args(["--workers", &share.to_string()]);
            match self.sections {
                Some(sections) => command.args(["--sections", &sections.to_string()]),
                None => command.args(["--seconds", &self.seconds.to_string()]),
            };
            started.push(start_worker(command.arg("--").arg(name.as_str()))?);
        }
        started.iter_mut().try_for_each(ready)?;
        started.iter_mut().try_for_each(begin)?;
        for worker in &mut started {
            let status = worker.wait()?;
            if !status.success() {
                return Err(ended_early("a worker", status));
            }
        }
        (0..processes).map(|process| Ok(Log::read(&log_of(process))?)).collect()
    }
}

pub(super) fn start_worker(command: &mut Command) -> Outcome<Process> {
    Process::start(command).map_err(|error| Failure::os("cannot start a worker", &error))
}

/// Waits until a worker is connected.
pub(super) fn ready(worker: &mut Process) -> Outcome<()> {
    worker.ready()?.map_or(Ok(()), |status| Err(ended_early("a worker", status)))
}

pub(super) fn begin(worker: &mut Process) -> Outcome<()> {
    worker.order("go").map_err(|error| Failure::os("a worker ended early", &error))
}
