//! The workers of a drill: started, killed, stopped and continued; none of them outlives the fleet.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::drill::{Drill, Fault};
use super::process::Process;
use super::site::Site;
use super::view::View;
use super::worker::{Orders, STORE, lock_name};
use crate::history::{LogEvent, LogWriter};

/// How often the harness looks.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// A process, and its successors.
#[derive(Debug)]
pub(super) struct Worker {
    process: Process,
    client: String,
    incarnation: usize,
    pub(super) view: View,
    pub(super) is_stopped: bool,
}

/// All the processes of a drill.
#[derive(Debug)]
pub(super) struct Fleet {
    binary: PathBuf,
    arguments: Vec<String>,
    orders: Orders,
    site: Arc<dyn Site>,
    /// Ends the drill early.
    stop: Arc<AtomicBool>,
    log: LogWriter,
    /// How many workers there are besides the crowd, and how many tasks that is.
    size: usize,
    crowd: usize,
    pub(super) workers: Vec<Worker>,
    /// Grants of workers that are gone, by lock.
    past_grants: Vec<u64>,
    /// Forbidden acts of workers.
    pub(super) faults: Vec<Fault>,
    /// Whether a process ended by itself.
    has_ended: bool,
}

impl Fleet {
    /// Starts the workers of `drill`, and one more with its crowd, if any.
    pub(super) fn start(drill: &Drill, orders: Orders) -> io::Result<Self> {
        let Drill { worker: binary, arguments, site, stop, processes: size, crowd, .. } = drill.clone();
        let log = LogWriter::create(&orders.directory.join("parent.log"), "parent")?;
        let past_grants = vec![0; orders.locks];
        let workers = Vec::new();
        let (faults, has_ended) = (Vec::new(), false);
        let mut fleet =
            Self { binary, arguments, orders, site, stop, log, size, crowd, workers, past_grants, faults, has_ended };
        for number in 0..size + usize::from(crowd > 0) {
            let worker = fleet.spawn(number, 0)?;
            fleet.workers.push(worker);
        }
        Ok(fleet)
    }

    fn spawn(&self, number: usize, incarnation: usize) -> io::Result<Worker> {
        let mut orders = self.orders.clone();
        orders.client = format!("w{number}.{incarnation}");
        if number == self.size {
            (orders.is_crowd, orders.is_patient, orders.tasks) = (true, true, self.crowd);
        }
        orders.seed = orders.seed.wrapping_mul(31).wrapping_add((number * 1_000 + incarnation) as u64);
        let mut command = Command::new(&self.binary);
        command.args(&self.arguments).arg(serde_json::to_string(&orders)?).env(STORE, self.site.url(number));
        // A process group of its own: the keyboard's signals are for the harness.
        let process = Process::start(command.process_group(0))?;
        let view = View::new(orders.directory.join(format!("{}.log", orders.client)));
        Ok(Worker { process, client: orders.client, incarnation, view, is_stopped: false })
    }

    /// Where the workers are.
    pub(super) fn site(&self) -> Arc<dyn Site> {
        Arc::clone(&self.site)
    }

    /// Notes something for the reader of the log.
    pub(super) fn note(&self, text: &str) -> io::Result<()> {
        self.log.write(0, LogEvent::Note { text })
    }

    /// Lets the workers work for the time `lasting`, or until the drill is stopped.
    pub(super) fn watch(&mut self, lasting: Duration) -> io::Result<()> {
        let stop = Arc::clone(&self.stop);
        self.wait_for(lasting, |_| stop.load(Ordering::Relaxed)).map(drop)
    }

    /// Kills a worker, and waits until it is dead.
    pub(super) fn kill(&mut self, number: usize) -> io::Result<()> {
        let worker = &mut self.workers[number];
        worker.process.kill()?;
        self.log.write(0, LogEvent::Dead { client: &worker.client })?;
        worker.view.look()
    }

    /// Starts another worker in the place of a dead one.
    pub(super) fn replace(&mut self, number: usize) -> io::Result<()> {
        let incarnation = self.workers[number].incarnation + 1;
        let worker = self.spawn(number, incarnation)?;
        let dead = std::mem::replace(&mut self.workers[number], worker);
        for (lock, past) in self.past_grants.iter_mut().enumerate() {
            *past += dead.view.grants_of(&lock_name(&self.orders.prefix, lock));
        }
        Ok(())
    }

    /// Stops a worker, and waits until it is stopped.
    pub(super) fn stop(&mut self, number: usize) -> io::Result<()> {
        let worker = &mut self.workers[number];
        worker.process.stop()?;
        worker.is_stopped = true;
        worker.view.look()?;
        let note = format!("stopped {}", worker.client);
        self.note(&note)
    }

    /// Continues a stopped worker.
    pub(super) fn go_on(&mut self, number: usize) -> io::Result<()> {
        self.note(&format!("continued {}", self.workers[number].client))?;
        let worker = &mut self.workers[number];
        worker.process.resume()?;
        worker.is_stopped = false;
        Ok(())
    }

    /// Reads on in all logs, and notices workers that ended unbidden.
    pub(super) fn look(&mut self) -> io::Result<()> {
        for number in 0..self.workers.len() {
            self.workers[number].view.look()?;
            if let Some(status) = self.workers[number].process.ended()? {
                self.kill(number)?;
                let Worker { client, view, .. } = &self.workers[number];
                self.faults.push(Fault::Failed(format!("{client} ended by itself: {status}: {}", view.failure())));
                self.has_ended = true;
                self.replace(number)?;
            }
        }
        Ok(())
    }

    /// How often each lock was granted so far.
    pub(super) fn grants(&self) -> Vec<u64> {
        let past = self.past_grants.iter().enumerate();
        let of = |lock: &str| -> u64 { self.workers.iter().map(|worker| worker.view.grants_of(lock)).sum() };
        past.map(|(lock, past)| past + of(&lock_name(&self.orders.prefix, lock))).collect()
    }

    /// Looks until a worker holds a lock, for as long as dead workers may keep it. No worker has to hold one.
    pub(super) fn wait_for_a_holder(&mut self) -> io::Result<()> {
        let (start, patience) = (Instant::now(), self.site.ttl() * 2 + Duration::from_secs(1));
        while start.elapsed() < patience {
            self.look()?;
            if self.workers.iter().any(|worker| worker.view.holds()) {
                break;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Looks until `is_enough` of the grants so far; false when `patience` ends before. Once a worker has ended by itself,
    /// the drill has failed and waits for nothing more.
    pub(super) fn wait_for(&mut self, patience: Duration, is_enough: impl Fn(&[u64]) -> bool) -> io::Result<bool> {
        let start = Instant::now();
        loop {
            self.look()?;
            if self.has_ended || is_enough(&self.grants()) {
                return Ok(true);
            }
            if start.elapsed() >= patience {
                return Ok(false);
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Orders all workers to finish, and waits until they have.
    pub(super) fn finish(&mut self, patience: Duration) -> io::Result<()> {
        for worker in &mut self.workers {
            // A worker that ended before this order is noticed below.
            let _ = worker.process.order("finish");
        }
        let start = Instant::now();
        for worker in &mut self.workers {
            loop {
                match worker.process.ended()? {
                    Some(status) if status.success() => break,
                    Some(status) => {
                        worker.view.look()?;
                        let failed = format!("{} failed: {status}: {}", worker.client, worker.view.failure());
                        self.faults.push(Fault::Failed(failed));
                        break;
                    }
                    None if start.elapsed() >= patience => {
                        self.faults.push(Fault::Stuck(format!("{} does not finish", worker.client)));
                        break;
                    }
                    None => std::thread::sleep(LOOK_AGAIN),
                }
            }
        }
        Ok(())
    }
}
