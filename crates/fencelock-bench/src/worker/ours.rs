//! fencelock itself, through its public interface.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use fencelock::{Client, Event, Guard, Io, Mutex, Observer};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::contestant::Contestant;
use crate::machine::memory;
use crate::protocol::{Order, Section, now, write_log, write_sections};

/// So long that a machine on which we starve measures badly, rather than not at all.
const TTL: Duration = Duration::from_secs(60);

/// Waiters that are there before the memory of others is looked at.
const WARM_WAITERS: u64 = 32;

/// What the observer counts.
#[derive(Debug, Default)]
struct Counts {
    waiting: watch::Sender<u64>,
    woken: AtomicU64,
}

impl Observer for Counts {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Waiting { .. } => self.waiting.send_modify(|waiting| *waiting += 1),
            Event::Woken { .. } => {
                self.woken.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

pub(super) struct Ours {
    client: Client,
    lock: Mutex,
    counts: Arc<Counts>,
    gate: Arc<Notify>,
    entrants: JoinSet<Result<Section>>,
    held: Vec<Guard>,
}

impl Ours {
    pub(super) async fn connect(contestant: Contestant, url: &str) -> Result<Self> {
        let counts = Arc::new(Counts::default());
        let io = if contestant == Contestant::Current { Io::CurrentRuntime } else { Io::OwnThread };
        let observer = Arc::clone(&counts) as Arc<dyn Observer>;
        let client = Client::builder().ttl(TTL).io(io).observer(observer).connect(url).await?;
        let lock = client.mutex("bench")?;
        Ok(Self { client, lock, counts, gate: Arc::default(), entrants: JoinSet::new(), held: Vec::new() })
    }

    pub(super) async fn obey(&mut self, order: Order, log: &Path) -> Result<String> {
        match order {
            Order::Cycle { count } => {
                write_log(log, &self.cycle(count).await?)?;
                Ok("done".to_owned())
            }
            Order::Enter { index, hold } => {
                self.enter(index, hold).await?;
                Ok("in".to_owned())
            }
            Order::Go => {
                self.gate.notify_one();
                let sections = joined(&mut self.entrants).await?;
                write_sections(log, &sections)?;
                Ok(self.done())
            }
            Order::Contend { waiters, first, start, end } => {
                let mut contenders = JoinSet::new();
                for who in first..first + waiters {
                    contenders.spawn(contend(self.lock.clone(), who, start, end));
                }
                write_sections(log, &joined(&mut contenders).await?.concat())?;
                Ok(self.done())
            }
            Order::Hold { count } => self.hold(count).await,
            Order::Wait { count } => self.wait(count).await,
        }
    }

    /// How often waiters were woken since the last time.
    fn done(&self) -> String {
        format!("done woken={}", self.counts.woken.swap(0, Ordering::Relaxed))
    }

    async fn cycle(&self, count: u64) -> Result<Vec<u64>> {
        let mut took = Vec::with_capacity(usize::try_from(count)?);
        for _ in 0..count {
            let before = now();
            self.lock.acquire().await?.release().await?;
            took.push(now() - before);
        }
        Ok(took)
    }

    async fn enter(&mut self, index: u64, hold: bool) -> Result<()> {
        let mut waiting = self.counts.waiting.subscribe();
        let before = *waiting.borrow_and_update();
        let held = Arc::new(Notify::new());
        let gate = hold.then(|| (Arc::clone(&held), Arc::clone(&self.gate)));
        self.entrants.spawn(once(self.lock.clone(), index, gate));
        if hold {
            held.notified().await;
        } else {
            waiting.wait_for(|now| *now > before).await.context("the observer is gone")?;
        }
        Ok(())
    }

    async fn hold(&mut self, count: u64) -> Result<String> {
        self.held.reserve_exact(usize::try_from(count)?);
        let before = memory()?;
        for number in 0..count {
            let name = format!("held-{number}");
            self.held.push(self.client.mutex(&name)?.acquire().await?);
        }
        Ok(format!("done before={before} after={}", memory()?))
    }

    async fn wait(&mut self, count: u64) -> Result<String> {
        self.held.push(self.lock.acquire().await?);
        // What the first waiters bring with them: a thread, its stack, tables.
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

/// Takes the lock once. With a gate: tells that it has it, and keeps it until the gate opens.
async fn once(lock: Mutex, who: u64, gate: Option<(Arc<Notify>, Arc<Notify>)>) -> Result<Section> {
    let guard = lock.acquire().await?;
    let acquired = now();
    if let Some((held, gate)) = gate {
        held.notify_one();
        gate.notified().await;
    }
    let releasing = now();
    guard.release().await?;
    Ok(Section { who, acquired, releasing })
}

/// Takes the lock again and again from `start` to `end`.
async fn contend(lock: Mutex, who: u64, start: u64, end: u64) -> Result<Vec<Section>> {
    tokio::time::sleep(Duration::from_nanos(start.saturating_sub(now()))).await;
    let mut sections = Vec::new();
    loop {
        let guard = lock.acquire().await?;
        let acquired = now();
        if acquired >= end {
            guard.release().await?;
            return Ok(sections);
        }
        // Where nothing has to be waited for, a cycle may run without giving way; nobody else would come to queue.
        tokio::task::yield_now().await;
        sections.push(Section { who, acquired, releasing: now() });
        guard.release().await?;
    }
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
