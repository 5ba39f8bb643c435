//! The processes of `verify`, and what is done to them.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use fencelock::time::{Clock as _, SystemClock};
use fencelock_lab::{Process, Register};
use serde::Serialize;

use crate::commands::bench::{begin, ready, start_worker};
use crate::die_with_parent::ourselves;
use crate::output::{Failure, Outcome, code};
use crate::settings::{Chosen, STORE_VARIABLE};

const LOOK: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Toll {
    pub(super) kills: u64,
    pub(super) pauses: u64,
    /// The pauses beyond the ttl among them.
    pub(super) long_pauses: u64,
}

/// The workers. Killed when it is dropped.
pub(super) struct Crew<'a> {
    chosen: &'a Chosen,
    directory: &'a Path,
    prefix: &'a str,
    names: u32,
    limit: Duration,
    workers: Vec<(u64, Process)>,
    started: u64,
    pub(super) toll: Toll,
}

impl<'a> Crew<'a> {
    pub(super) fn new(chosen: &'a Chosen, directory: &'a Path, prefix: &'a str, names: u32, limit: Duration) -> Self {
        let toll = Toll::default();
        Self { chosen, directory, prefix, names, limit, workers: Vec::new(), started: 0, toll }
    }

    /// Starts one more worker, and waits until it is connected.
    pub(super) fn start(&mut self) -> Outcome<()> {
        self.started += 1;
        let mut command = ourselves("verify-worker")?;
        command.env(STORE_VARIABLE, self.chosen.inherited(false)).arg("--directory").arg(self.directory);
        command.args(["--prefix", self.prefix, "--names", &self.names.to_string()]);
        command.args(["--number", &self.started.to_string(), "--limit-seconds", &self.limit.as_secs().to_string()]);
        // The keyboard's signals are for us.
        let mut worker = start_worker(command.process_group(0))?;
        ready(&mut worker)?;
        self.workers.push((self.started, worker));
        Ok(())
    }

    pub(super) fn begin(&mut self) -> Outcome<()> {
        self.workers.iter_mut().try_for_each(|(_, worker)| begin(worker))
    }

    /// Fails when a worker has ended that was not killed. The worker has said why, where it could.
    pub(super) fn look_for_the_dead(&mut self) -> Outcome<()> {
        for (_, worker) in &mut self.workers {
            if let Some(status) = worker.ended()? {
                return Err(Failure::new(code::SOFTWARE, format!("a worker ended by itself: {status}")));
            }
        }
        Ok(())
    }

    /// Stops and continues a worker, or kills it and starts another: often one that holds a lock. The call takes no longer than `left`.
    pub(super) async fn hurt_somebody(
        &mut self,
        registers: &[Register],
        past: Option<Duration>,
        left: Duration,
    ) -> Outcome<()> {
        let mut at = fastrand::usize(..self.workers.len());
        if fastrand::u8(..3) > 0 {
            let register = &registers[fastrand::usize(..registers.len())];
            let holder = register.occupant()?;
            at = self.workers.iter().position(|(number, _)| Some(*number) == holder).unwrap_or(at);
        }
        let (number, ref worker) = self.workers[at];
        let stop = || worker.stop().map_err(|error| Failure::os("cannot signal a worker", &error));
        let resume = || worker.resume().map_err(|error| Failure::os("cannot signal a worker", &error));
        match (fastrand::u8(..3), past.filter(|past| *past < left)) {
            (0, _) => {
                let now = SystemClock.now().as_nanos();
                registers.iter().try_for_each(|register| register.doom(number, now))?;
                self.toll.kills += 1;
                self.workers.swap_remove(at);
                self.start()?;
                self.workers.last_mut().map_or(Ok(()), |(_, worker)| begin(worker))
            }
            (1, Some(past)) => {
                stop()?;
                tokio::time::sleep(past).await;
                (self.toll.pauses, self.toll.long_pauses) = (self.toll.pauses + 1, self.toll.long_pauses + 1);
                resume()
            }
            _ => {
                stop()?;
                tokio::time::sleep(Duration::from_millis(fastrand::u64(..1_000)).min(left)).await;
                self.toll.pauses += 1;
                resume()
            }
        }
    }

    /// Asks all workers to end, and waits; how many had not ended when `patience` had passed.
    pub(super) async fn end(mut self, patience: Duration) -> Outcome<u64> {
        let until = Instant::now() + patience;
        self.workers.iter_mut().for_each(|(_, worker)| worker.dismiss());
        loop {
            let mut running = 0;
            for (_, worker) in &mut self.workers {
                match worker.ended()? {
                    None => running += 1,
                    Some(status) if status.success() => {}
                    Some(status) => {
                        return Err(Failure::new(code::SOFTWARE, format!("a worker ended by itself: {status}")));
                    }
                }
            }
            if running == 0 || Instant::now() > until {
                return Ok(running);
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}
