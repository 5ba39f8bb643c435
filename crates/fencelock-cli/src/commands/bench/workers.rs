//! A process of the drill: connects, waits for the start, and works until the end.

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use fencelock::observe::{Event, Observer};
use fencelock::time::{Clock as _, Moment, SystemClock};
use fencelock::{Client, FencingToken, Mutex, Name};
use tokio::task::JoinSet;

use super::log::{Log, Section};
use crate::arguments;
use crate::commands::{StoreArguments, connect, farewell};
use crate::output::{Failure, Outcome, code};

/// Not for people: `bench` starts these.
#[derive(Debug, Args)]
pub(crate) struct Workers {
    #[arg(long)]
    counter: PathBuf,
    #[arg(long)]
    log: PathBuf,
    #[arg(long)]
    first: u32,
    #[arg(long)]
    step: u32,
    #[arg(long)]
    workers: u32,
    #[arg(long)]
    sections: Option<u64>,
    #[arg(long)]
    seconds: Option<u64>,
    #[arg(last = true, value_parser = arguments::name)]
    name: Name,
}

impl Workers {
    pub(in crate::commands) async fn run(&self, store: &StoreArguments) -> Outcome<u8> {
        let wakes = Arc::new(Wakes(AtomicU64::new(0)));
        let observer: Arc<dyn Observer> = Arc::clone(&wakes) as Arc<dyn Observer>;
        let client = connect(Client::builder().observer(observer), &store.choose(true, &[])?, false).await?;
        io::stdout().lock().write_all(b"ready\n")?;
        if io::stdin().lock().read(&mut [0; 8])? == 0 {
            return Err(Failure::silent(code::SOFTWARE));
        }
        let sections = self.work(&client).await;
        farewell(&client, sections.is_err()).await;
        let sections = sections?;
        Log { woken: wakes.0.load(Ordering::Relaxed), sections }.write(&self.log)?;
        Ok(0)
    }

    async fn work(&self, client: &Client) -> Outcome<Vec<Section>> {
        let until = self.seconds.map_or(Moment::NEVER, |seconds| SystemClock.now().after(Duration::from_secs(seconds)));
        let limit = self.sections.unwrap_or(u64::MAX);
        let over = Arc::new(AtomicBool::new(false));
        let mut working = JoinSet::new();
        for number in 0..self.workers {
            let worker = Worker {
                number: self.first + number * self.step,
                lock: client.mutex(&self.name)?,
                counter: self.counter.clone(),
                until,
                limit,
                over: Arc::clone(&over),
            };
            working.spawn(worker.work());
        }
        let mut sections = Vec::new();
        while let Some(ended) = working.join_next().await {
            sections.extend(ended.map_err(|error| Failure::new(code::SOFTWARE, error.to_string()))??);
        }
        Ok(sections)
    }
}

struct Wakes(AtomicU64);

impl Observer for Wakes {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Woken { .. } = event {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

struct Worker {
    number: u32,
    lock: Mutex,
    counter: PathBuf,
    until: Moment,
    limit: u64,
    over: Arc<AtomicBool>,
}

impl Worker {
    async fn work(self) -> Outcome<Vec<Section>> {
        let mut sections = Vec::new();
        while !self.has_ended() {
            let asked = SystemClock.now();
            let guard = self.lock.acquire().await?;
            let granted = SystemClock.now();
            // A worker that waited past the end leaves without a section.
            if !self.has_ended() {
                if add_one(&self.counter, self.limit)? {
                    let token = guard.token().map_or(0, FencingToken::to_i64);
                    let releasing = SystemClock.now();
                    sections.push(self.section(asked, granted, releasing, token));
                } else {
                    self.over.store(true, Ordering::Relaxed);
                }
            }
            guard.release().await?;
        }
        Ok(sections)
    }

    fn section(&self, asked: Moment, granted: Moment, releasing: Moment, token: i64) -> Section {
        let (asked, granted, releasing) = (asked.as_nanos(), granted.as_nanos(), releasing.as_nanos());
        Section { worker: self.number, asked, granted, releasing, token }
    }

    fn has_ended(&self) -> bool {
        self.over.load(Ordering::Relaxed) || SystemClock.now() >= self.until
    }
}

/// Adds one to the number in the file at `counter`, unless it is at `limit`. Nothing protects the file but the lock.
fn add_one(counter: &Path, limit: u64) -> Outcome<bool> {
    let text = std::fs::read_to_string(counter)?;
    // A file that another process is writing reads as empty. An empty file counts as zero, so that the sum will not be
    // exact.
    let count: u64 = text.trim().parse().unwrap_or_default();
    if count >= limit {
        return Ok(false);
    }
    std::fs::write(counter, (count + 1).to_string())?;
    Ok(true)
}
