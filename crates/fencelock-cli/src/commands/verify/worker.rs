//! A process of `verify`: a client that takes each of the locks in turn, until an order to end.

use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use clap::Args;
use fencelock::observe::{Event, Observer};
use fencelock::time::{Clock as _, SystemClock};
use fencelock::{Client, Error, ErrorKind, Guard, Mutex, Name};
use fencelock_lab::{Count, Grant, Register};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use tokio::task::JoinSet;

use super::name_of;
use crate::commands::{StoreArguments, connect, farewell};
use crate::output::{Failure, Outcome, chain, code};

const WRITES: usize = 2;

/// How long a section rests before each write, and a worker between two sections, at most.
const REST_MICROS: u64 = 4_000;

const AFTER_FAILURE: Duration = Duration::from_millis(200);

/// Not for people: `verify` starts these.
#[derive(Debug, Args)]
pub(crate) struct VerifyWorker {
    #[arg(long)]
    directory: PathBuf,
    #[arg(long)]
    prefix: String,
    #[arg(long)]
    names: u32,
    /// The number of this worker, counted from 1, which no other one has or had.
    #[arg(long)]
    number: u64,
    #[arg(long)]
    limit_seconds: u64,
}

impl VerifyWorker {
    pub(in crate::commands) async fn run(&self, store: &StoreArguments) -> Outcome<u8> {
        // No process would continue a stopped worker when `verify` is killed.
        set_pdeathsig(Some(Signal::SIGKILL)).map_err(|error| Failure::os("cannot be bound", &error.into()))?;
        let waits =
            Arc::new(Waits((0..self.names).map(|name| self.name(name).map(Wait::new)).collect::<Outcome<_>>()?));
        let observer: Arc<dyn Observer> = Arc::clone(&waits) as Arc<dyn Observer>;
        let client = connect(Client::builder().observer(observer), &store.choose(true, &[])?, false).await?;
        io::stdout().lock().write_all(b"ready\n")?;
        let mut stdin = io::stdin();
        if stdin.lock().read(&mut [0; 8])? == 0 {
            return Err(Failure::silent(code::SOFTWARE));
        }
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        thread::spawn(move || {
            let _ = stdin.read(&mut [0; 8]);
            told.store(true, Ordering::Relaxed);
        });
        let mut working = JoinSet::new();
        for name in 0..self.names {
            let worker = Worker {
                number: self.number,
                lock: client.mutex(self.name(name)?)?,
                at: name as usize,
                register: Register::open(&self.directory, &name.to_string())?,
                waits: Arc::clone(&waits),
                limit: Duration::from_secs(self.limit_seconds),
                over: Arc::clone(&over),
            };
            working.spawn(worker.work());
        }
        let mut all = Ok(());
        while let (true, Some(ended)) = (all.is_ok(), working.join_next().await) {
            all = ended.unwrap_or_else(|error| Err(Failure::new(code::SOFTWARE, error.to_string())));
        }
        drop(working);
        farewell(&client, all.is_err()).await;
        all.map(|()| 0)
    }

    fn name(&self, number: u32) -> Outcome<Name> {
        Ok(name_of(&self.prefix, number)?)
    }
}

/// When the acquire that is under way for each name was queued, as the store said; 0 when it was not.
struct Waits(Vec<Wait>);

struct Wait {
    name: Name,
    queued: AtomicU64,
}

impl Wait {
    fn new(name: Name) -> Self {
        Self { name, queued: AtomicU64::new(0) }
    }
}

impl Observer for Waits {
    fn observe(&self, event: &Event<'_>) {
        let (name, queued) = match event {
            Event::Waiting { name, .. } => (*name, SystemClock.now().as_nanos()),
            // Its place is gone, and it joins at the tail.
            Event::Requeued { name, .. } => (*name, 0),
            _ => return,
        };
        if let Some(wait) = self.0.iter().find(|wait| wait.name == *name) {
            wait.queued.store(queued, Ordering::Relaxed);
        }
    }
}

struct Worker {
    number: u64,
    lock: Mutex,
    at: usize,
    register: Register,
    waits: Arc<Waits>,
    limit: Duration,
    over: Arc<AtomicBool>,
}

impl Worker {
    async fn work(self) -> Outcome<()> {
        while !self.over.load(Ordering::Relaxed) {
            self.rest().await;
            self.register.count(Count::Waits)?;
            self.waits.0[self.at].queued.store(0, Ordering::Relaxed);
            let asked = SystemClock.now().as_nanos();
            let acquired = self.lock.acquire_within(self.limit).await;
            let queued = Some(self.waits.0[self.at].queued.load(Ordering::Relaxed)).filter(|queued| *queued != 0);
            let mut grant = Grant { worker: self.number, token: None, asked, queued };
            match acquired {
                Ok(guard) => {
                    grant.token = guard.token().map(|token| token.to_i64().cast_unsigned());
                    self.section(&guard, &grant).await?;
                    if let Err(error) = guard.release().await {
                        self.failed(&error, &grant)?;
                    }
                }
                Err(error) => {
                    self.failed(&error, &grant)?;
                    tokio::time::sleep(AFTER_FAILURE).await;
                }
            }
        }
        Ok(())
    }

    async fn section(&self, guard: &Guard, grant: &Grant) -> Outcome<()> {
        let valid = || {
            let now = SystemClock.now();
            let until = guard.check().is_ok().then(|| guard.remaining());
            (now.as_nanos(), until.map(|left| now.after(left).as_nanos()))
        };
        if self.register.enter(grant, valid)? {
            for _ in 0..WRITES {
                self.rest().await;
                self.register.write(grant, valid)?;
            }
        }
        Ok(self.register.leave(self.number)?)
    }

    fn failed(&self, error: &Error, grant: &Grant) -> Outcome<()> {
        match error.kind() {
            ErrorKind::Lost => self.register.count(Count::Lost)?,
            ErrorKind::TimedOut if error.contention().is_some() => {
                self.register.note(Count::Stuck, grant, &chain(error))?
            }
            _ => self.register.note(Count::Failed, grant, &chain(error))?,
        }
        Ok(())
    }

    async fn rest(&self) {
        tokio::time::sleep(Duration::from_micros(fastrand::u64(..REST_MICROS))).await;
    }
}
