//! The processes of `verify`, and what is done to them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Random;
use super::register::Register;
use crate::die_with_parent::ourselves;
use crate::output::{Failure, Outcome, code};
use crate::settings::{Chosen, STORE_VARIABLE};

/// How often it is looked whether a worker has ended.
const LOOK: Duration = Duration::from_millis(20);

/// What was done.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Toll {
    pub(super) kills: u64,
    pub(super) pauses: u64,
    /// Of these, those beyond the ttl.
    pub(super) long_pauses: u64,
}

/// The workers. Killed when it is dropped.
pub(super) struct Crew<'a> {
    chosen: &'a Chosen,
    directory: &'a Path,
    prefix: &'a str,
    names: u32,
    limit: Duration,
    workers: Vec<Worker>,
    started: u64,
    pub(super) toll: Toll,
}

struct Worker {
    number: u64,
    child: Child,
    /// The worker ends when this is closed.
    word: Option<ChildStdin>,
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
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).spawn();
        let mut child = spawned.map_err(|error| Failure::os("cannot start a worker", &error))?;
        let (word, answers) = (child.stdin.take(), child.stdout.take());
        let mut worker = Worker { number: self.started, child, word };
        let mut answer = String::new();
        if let Some(answers) = answers {
            BufReader::new(answers).read_line(&mut answer)?;
        }
        if answer != "ready\n" {
            let status = worker.child.wait().map_err(|error| Failure::os("cannot wait for a worker", &error))?;
            return Err(Failure::silent(
                status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(code::SOFTWARE),
            ));
        }
        self.workers.push(worker);
        Ok(())
    }

    /// Lets those begin that were started.
    pub(super) fn begin(&mut self) -> Outcome<()> {
        self.workers.iter_mut().try_for_each(Worker::begin)
    }

    /// Fails when a worker has ended that nobody killed. It has said why, where it could.
    pub(super) fn look_for_the_dead(&mut self) -> Outcome<()> {
        for worker in &mut self.workers {
            if let Some(status) = worker.ended()? {
                return Err(Failure::new(code::SOFTWARE, format!("a worker ended by itself: {status}")));
            }
        }
        Ok(())
    }

    /// Stops and continues a worker, or kills it and starts another: often one that holds a lock. It takes no longer than `left`.
    pub(super) async fn hurt_somebody(
        &mut self,
        registers: &[Register],
        past: Option<Duration>,
        left: Duration,
        random: &mut Random,
    ) -> Outcome<()> {
        let mut at = random.below(self.workers.len() as u64) as usize;
        if random.below(3) > 0 {
            let register = &registers[random.below(registers.len() as u64) as usize];
            let holder = register.occupant()?;
            at = self.workers.iter().position(|worker| Some(worker.number) == holder).unwrap_or(at);
        }
        let pid = self.workers[at].pid();
        let signal = |signal| kill(pid, signal).map_err(|error| Failure::os("cannot signal a worker", &error.into()));
        match (random.below(3), past.filter(|past| *past < left)) {
            (0, _) => {
                registers.iter().try_for_each(|register| register.doom(self.workers[at].number))?;
                self.toll.kills += 1;
                self.workers.swap_remove(at);
                self.start()?;
                self.workers.last_mut().map_or(Ok(()), Worker::begin)
            }
            (1, Some(past)) => {
                signal(Signal::SIGSTOP)?;
                tokio::time::sleep(past).await;
                (self.toll.pauses, self.toll.long_pauses) = (self.toll.pauses + 1, self.toll.long_pauses + 1);
                signal(Signal::SIGCONT)
            }
            _ => {
                signal(Signal::SIGSTOP)?;
                tokio::time::sleep(Duration::from_millis(random.below(1_000)).min(left)).await;
                self.toll.pauses += 1;
                signal(Signal::SIGCONT)
            }
        }
    }

    /// Tells everybody to end, and waits; how many had not ended when `patience` was over.
    pub(super) async fn end(mut self, patience: Duration) -> Outcome<u64> {
        let until = Instant::now() + patience;
        self.workers.iter_mut().for_each(|worker| drop(worker.word.take()));
        loop {
            let mut running = 0;
            for worker in &mut self.workers {
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

impl Worker {
    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    fn begin(&mut self) -> Outcome<()> {
        self.word.as_mut().map_or(Ok(()), |word| Ok(word.write_all(b"go\n")?))
    }

    fn ended(&mut self) -> Outcome<Option<std::process::ExitStatus>> {
        self.child.try_wait().map_err(|error| Failure::os("cannot wait for a worker", &error))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
