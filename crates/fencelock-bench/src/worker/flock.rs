//! `flock(2)` as `flock(1)` uses it: every waiter is a thread with an open file of its own, and blocks in the kernel.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use rustix::fs::{FlockOperation, flock};

use super::workload::Obey;
use crate::protocol::{Order, Section, now, write_log, write_sections};

pub(super) struct Flock {
    path: PathBuf,
    entrants: Vec<JoinHandle<Result<Vec<Section>>>>,
    gate: Option<Sender<()>>,
}

impl Flock {
    pub(super) fn new(path: &Path) -> Result<Self> {
        File::options().create(true).append(true).open(path)?;
        Ok(Self { path: path.to_owned(), entrants: Vec::new(), gate: None })
    }

    fn cycle(&self, count: u64) -> Result<Vec<u64>> {
        let file = File::open(&self.path)?;
        let cycle = |_| {
            let before = now();
            flock(&file, FlockOperation::LockExclusive)?;
            flock(&file, FlockOperation::Unlock)?;
            Ok(now() - before)
        };
        (0..count).map(cycle).collect()
    }

    fn enter(&mut self, index: u64, hold: bool) -> Result<()> {
        let file = File::open(&self.path)?;
        let (held, holding) = channel();
        let gate = hold.then(|| {
            let (gate, opened) = channel();
            self.gate = Some(gate);
            opened
        });
        self.entrants.push(std::thread::spawn(move || once(&file, index, gate, &held)));
        if hold { holding.recv().map_err(|_| anyhow!("the holder did not get the lock")) } else { Ok(()) }
    }
}

impl Obey for Flock {
    async fn obey(&mut self, order: Order, log: &Path) -> Result<String> {
        match order {
            Order::Cycle { count } => {
                write_log(log, &self.cycle(count)?)?;
                Ok("done".to_owned())
            }
            Order::Enter { index, hold } => {
                self.enter(index, hold)?;
                Ok("in".to_owned())
            }
            Order::Go => {
                self.gate = None;
                write_sections(log, &joined(&mut self.entrants)?)?;
                Ok("done".to_owned())
            }
            Order::Contend { waiters, first, start, end } => {
                let contenders = (first..first + waiters).map(|who| {
                    let file = File::open(&self.path)?;
                    Ok(std::thread::spawn(move || contend(&file, who, start, end)))
                });
                write_sections(log, &joined(&mut contenders.collect::<Result<_>>()?)?)?;
                Ok("done".to_owned())
            }
            Order::Hold { .. } | Order::Wait { .. } => bail!("flock keeps no memory of its own"),
            Order::Fill { .. } | Order::Spread { .. } => bail!("flock is not asked for that"),
        }
    }
}

/// With a gate: reports that it has the lock, and keeps it until the gate's sender is dropped.
fn once(file: &File, who: u64, gate: Option<Receiver<()>>, held: &Sender<()>) -> Result<Vec<Section>> {
    flock(file, FlockOperation::LockExclusive)?;
    let acquired = now();
    if let Some(gate) = gate {
        let _ = held.send(());
        let _ = gate.recv();
    }
    let releasing = now();
    flock(file, FlockOperation::Unlock)?;
    Ok(vec![Section { who, acquired, releasing }])
}

fn contend(file: &File, who: u64, start: u64, end: u64) -> Result<Vec<Section>> {
    std::thread::sleep(Duration::from_nanos(start.saturating_sub(now())));
    let mut sections = Vec::new();
    loop {
        flock(file, FlockOperation::LockExclusive)?;
        let acquired = now();
        if acquired < end {
            sections.push(Section { who, acquired, releasing: now() });
        }
        flock(file, FlockOperation::Unlock)?;
        if acquired >= end {
            return Ok(sections);
        }
    }
}

fn joined(threads: &mut Vec<JoinHandle<Result<Vec<Section>>>>) -> Result<Vec<Section>> {
    let mut sections = Vec::new();
    for thread in threads.drain(..) {
        sections.extend(thread.join().map_err(|_| anyhow!("a thread of the worker panicked"))??);
    }
    Ok(sections)
}
