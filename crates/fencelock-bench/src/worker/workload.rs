//! The measured work, the same for every contestant that is an async lock in Rust.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::machine::memory;
use crate::protocol::{Order, Section, now, write_log, write_sections};

/// The waiters before the measured ones, whose memory is not counted.
const WARM_WAITERS: u64 = 32;

/// A lock to acquire and release.
pub(super) trait Take: Clone + Send + Sync + 'static {
    type Held: Send + 'static;

    /// Takes the lock, without a limit.
    fn acquire(&self) -> impl Future<Output = Result<Self::Held>> + Send;

    fn release(&self, held: Self::Held) -> impl Future<Output = Result<()>> + Send;
}

/// A lock of one contestant.
pub(super) trait Lock: Take {
    /// The lock of another name.
    fn named(&self, name: &str) -> Result<Self>;

    /// Takes a lock without contention, for which a floor need not look.
    fn acquire_free(&self) -> impl Future<Output = Result<Self::Held>> + Send {
        self.acquire()
    }

    /// A number that rises by one with every waiter.
    fn queued(&self) -> impl Future<Output = Result<u64>> + Send;

    /// Makes the lock's entries, where it needs some before its first use.
    fn prepare(&self) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// How often waiters were woken since the last time, where that is known.
    fn woken(&self) -> u64 {
        0
    }

    /// Ends the session.
    fn close(self) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }
}

/// A contestant in its process.
pub(super) trait Obey: Send {
    /// Carries out an order. Returns the answer for the parent.
    fn obey(&mut self, order: Order, log: &Path) -> impl Future<Output = Result<String>> + Send;

    /// Releases all locks.
    fn close(self) -> impl Future<Output = Result<()>> + Send
    where
        Self: Sized,
    {
        async { Ok(()) }
    }
}

pub(super) struct Workload<L: Lock> {
    lock: L,
    gate: Arc<Notify>,
    entrants: JoinSet<Result<Section>>,
    held: Arc<Mutex<Vec<L::Held>>>,
}

impl<L: Lock> Workload<L> {
    pub(super) fn new(lock: L) -> Self {
        Self { lock, gate: Arc::default(), entrants: JoinSet::new(), held: Arc::default() }
    }

    fn done(&self) -> String {
        format!("done woken={}", self.lock.woken())
    }

    async fn cycle(&self, count: u64) -> Result<Vec<u64>> {
        let mut took = Vec::with_capacity(usize::try_from(count)?);
        for _ in 0..count {
            let before = now();
            let held = self.lock.acquire_free().await?;
            self.lock.release(held).await?;
            took.push(now() - before);
        }
        Ok(took)
    }

    async fn enter(&mut self, index: u64, hold: bool) -> Result<()> {
        if !hold {
            return self.fill(index, 1).await;
        }
        let held = Arc::new(Notify::new());
        let gate = Some((Arc::clone(&held), Arc::clone(&self.gate)));
        self.entrants.spawn(once(self.lock.clone(), index, gate));
        tokio::select! {
            () = held.notified() => Ok(()),
            Some(ended) = self.entrants.join_next() => match ended {
                Ok(Err(fault)) => Err(fault),
                _ => bail!("the holder did not get the lock"),
            },
        }
    }

    async fn fill(&mut self, first: u64, count: u64) -> Result<()> {
        let before = self.lock.queued().await?;
        for index in first..first + count {
            self.entrants.spawn(once(self.lock.clone(), index, None));
        }
        while self.lock.queued().await? < before + count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    async fn hold(&mut self, count: u64, tasks: u64) -> Result<String> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).reserve_exact(usize::try_from(count)?);
        let (before, start) = (memory()?, now());
        let takers = (0..tasks).map(|first| {
            let (lock, held) = (self.lock.clone(), Arc::clone(&self.held));
            async move {
                for number in (first..count).step_by(usize::try_from(tasks)?) {
                    let one = lock.named(&format!("held-{number}"))?.acquire().await?;
                    held.lock().unwrap_or_else(PoisonError::into_inner).push(one);
                }
                Ok(())
            }
        });
        all(takers).await?;
        let took = now() - start;
        Ok(format!("done before={before} after={} took={took}", memory()?))
    }

    async fn wait(&mut self, count: u64) -> Result<String> {
        let held = self.lock.acquire().await?;
        self.held.lock().unwrap_or_else(PoisonError::into_inner).push(held);
        // The first waiters make a thread, its stack, and tables.
        for index in 0..WARM_WAITERS {
            self.enter(index, false).await?;
        }
        let before = memory()?;
        for index in 0..count {
            self.enter(index, false).await?;
        }
        let future = size_of_val(&once(self.lock.clone(), 0, None));
        Ok(format!("done before={before} after={} future={future}", memory()?))
    }
}

impl<L: Lock> Obey for Workload<L> {
    async fn obey(&mut self, order: Order, log: &Path) -> Result<String> {
        match order {
            Order::Cycle { count } => {
                write_log(log, &self.cycle(count).await?)?;
                Ok("done".to_owned())
            }
            Order::Enter { index, hold } => {
                self.enter(index, hold).await?;
                Ok("in".to_owned())
            }
            Order::Fill { first, count } => {
                self.fill(first, count).await?;
                Ok("in".to_owned())
            }
            Order::Go => {
                self.gate.notify_one();
                let sections = joined(&mut self.entrants).await?;
                write_sections(log, &sections)?;
                Ok(self.done())
            }
            Order::Contend { waiters, first, start, end } => {
                let contenders = (first..first + waiters).map(|who| contend(self.lock.clone(), who, start, end));
                write_sections(log, &all(contenders).await?.concat())?;
                Ok(self.done())
            }
            Order::Spread { waiters, first, start, end } => {
                let mut locks = Vec::new();
                for who in first..first + waiters {
                    let lock = self.lock.named(&format!("bench-{who}"))?;
                    lock.prepare().await?;
                    locks.push((lock, who));
                }
                // Behind a delay the names may be ready only after the start.
                let late = now().saturating_sub(start);
                let contenders = locks.into_iter().map(|(lock, who)| alone(lock, who, start + late, end + late));
                write_sections(log, &all(contenders).await?.concat())?;
                Ok(self.done())
            }
            Order::Hold { count, tasks } => self.hold(count, tasks).await,
            Order::Wait { count } => self.wait(count).await,
        }
    }

    async fn close(self) -> Result<()> {
        let Self { lock, mut entrants, held, .. } = self;
        entrants.shutdown().await;
        drop((entrants, held));
        lock.close().await
    }
}

/// Takes the lock once. With a gate: reports the grant, and keeps the lock until the gate opens.
async fn once<L: Lock>(lock: L, who: u64, gate: Option<(Arc<Notify>, Arc<Notify>)>) -> Result<Section> {
    let guard = lock.acquire().await?;
    let acquired = now();
    if let Some((held, gate)) = gate {
        held.notify_one();
        gate.notified().await;
    }
    let releasing = now();
    lock.release(guard).await?;
    Ok(Section { who, acquired, releasing })
}

/// Takes the lock again and again from `start` to `end`.
pub(super) async fn contend<L: Take>(lock: L, who: u64, start: u64, end: u64) -> Result<Vec<Section>> {
    tokio::time::sleep(Duration::from_nanos(start.saturating_sub(now()))).await;
    let mut sections = Vec::new();
    loop {
        let guard = lock.acquire().await?;
        let acquired = now();
        if acquired >= end {
            lock.release(guard).await?;
            return Ok(sections);
        }
        // A cycle without waits may never yield, and then no other task would queue.
        tokio::task::yield_now().await;
        sections.push(Section { who, acquired, releasing: now() });
        lock.release(guard).await?;
    }
}

/// Sections without contention. The first one counts, however late: on a busy machine no task may have the lock in time.
async fn alone<L: Lock>(lock: L, who: u64, start: u64, end: u64) -> Result<Vec<Section>> {
    tokio::time::sleep(Duration::from_nanos(start.saturating_sub(now()))).await;
    let mut sections = Vec::new();
    loop {
        let guard = lock.acquire_free().await?;
        let acquired = now();
        if acquired < end || sections.is_empty() {
            sections.push(Section { who, acquired, releasing: acquired });
        }
        lock.release(guard).await?;
        if acquired >= end {
            return Ok(sections);
        }
    }
}

pub(super) async fn all<T: Send + 'static>(
    work: impl IntoIterator<Item: Future<Output = Result<T>> + Send + 'static>,
) -> Result<Vec<T>> {
    let mut tasks: JoinSet<_> = work.into_iter().collect();
    joined(&mut tasks).await
}

async fn joined<T: 'static>(tasks: &mut JoinSet<Result<T>>) -> Result<Vec<T>> {
    let mut results = Vec::with_capacity(tasks.len());
    while let Some(result) = tasks.join_next().await {
        match result {
            Ok(result) => results.push(result?),
            Err(panic) => bail!("a task of the worker: {panic}"),
        }
    }
    Ok(results)
}
