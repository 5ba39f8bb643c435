//! PostgreSQL as something that breaks.
//!
//! The test is the promise of one server that writes its answers to its disk: no two holders at once, except one from before its
//! clock jumped ahead and one from after ([`Lapse`]).

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fencelock_lab::history::{Lapse, LogWriter};
use fencelock_lab::{Outage, Site};
use fencelock_testbed::postgres::{OWNER, Server, Settings};
use fencelock_testbed::{Proxy, Way};

use crate::{Bed, Ways};

/// How far the clock jumps, in seconds.
const JUMP: i64 = 60;

/// Further than any answer to one acquire reaches here.
const ANSWER_BYTES: u64 = 120;

/// How long an answer may lie unread in a client on a busy machine.
const UNREAD: Duration = Duration::from_secs(1);

/// A server for one site after the other, each with a schema of its own.
#[derive(Debug)]
pub struct Servers(Arc<Server>);

impl Servers {
    /// A server whose clock can be moved.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start() -> io::Result<Self> {
        let settings = Settings { own_clock: true, ..Settings::default() };
        // No test here is about the power going: written data outlives the process.
        Ok(Self(Arc::new(Server::start(settings.with("fsync = off"))?)))
    }
}

impl Bed for Servers {
    type Site = Postgres;

    fn site(&self, name: &str, clients: usize) -> io::Result<Postgres> {
        let ways = Ways::start(clients, &[self.0.address()])?;
        Ok(Postgres { server: Arc::clone(&self.0), ways, schema: name.to_owned(), past: Mutex::default() })
    }

    fn heal(&self) -> io::Result<()> {
        self.0.heal()
    }
}

/// A server, with a schema and ways to it of one drill's own.
#[derive(Debug)]
pub struct Postgres {
    server: Arc<Server>,
    ways: Ways,
    schema: String,
    /// How far the clock is off, and when leases ended early.
    past: Mutex<(i64, Vec<Lapse>)>,
}

impl Postgres {
    /// How long sessions live in the drills.
    pub const TTL: Duration = Duration::from_secs(3);

    /// The server.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    fn past(&self) -> MutexGuard<'_, (i64, Vec<Lapse>)> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the clock, which ends leases early when that is ahead of before.
    fn set_clock(&self, seconds: i64) -> io::Result<()> {
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let before = std::mem::replace(&mut self.past().0, seconds);
        let from = LogWriter::now();
        self.server.set_clock(seconds)?;
        if seconds > before {
            let over = LogWriter::now();
            let (by, believed_until) = (over + nanos(UNREAD), over + nanos(Self::TTL));
            self.past().1.push(Lapse { from, over, by, believed_until });
        }
        Ok(())
    }
}

impl Site for Postgres {
    fn url(&self, worker: usize) -> String {
        let (way, ttl) = (self.ways.connect_string(worker), Self::TTL.as_millis());
        format!("postgres://{OWNER}@{way}/{OWNER}?schema={}&ttl_ms={ttl}", self.schema)
    }

    fn ttl(&self) -> Duration {
        Self::TTL
    }

    fn can(&self, outage: Outage) -> bool {
        !matches!(
            outage,
            Outage::FollowerCut
                | Outage::NumbersEnd
                | Outage::QueuesOverflow
                | Outage::MemoryLost
                | Outage::ServerBusy
                | Outage::ServerWaits
                | Outage::ScriptsForgotten
        )
    }

    fn strike(&self, outage: Outage, worker: usize, random: u64) -> io::Result<()> {
        match outage {
            Outage::LeaderKilled => self.server.kill(),
            Outage::ServerRestarted => self.server.restart()?,
            Outage::LeaderPaused => self.server.pause(),
            Outage::LeaderCutOff => self.ways.all().for_each(|proxy| proxy.hold(Way::Both)),
            Outage::WorkerCut => self.ways.cut(worker),
            Outage::WorkerHoled => self.ways.of(worker).iter().for_each(|proxy| proxy.hole(Way::Both)),
            Outage::WorkerHeldBack => self.ways.of(worker).iter().for_each(|proxy| proxy.hold_existing(Way::Up)),
            Outage::ServerHoled => self.ways.all().for_each(|proxy| proxy.hole(Way::Both)),
            Outage::ConnectionsReset => self.ways.all().for_each(Proxy::reset),
            Outage::AnswerCut => {
                self.ways.of(worker).iter().for_each(|proxy| proxy.cut_after(random % ANSWER_BYTES, Way::Down));
            }
            Outage::ClockAhead => self.set_clock(JUMP)?,
            Outage::ClockBehind => self.set_clock(-JUMP)?,
            other => return Err(io::Error::new(io::ErrorKind::Unsupported, format!("{other:?}"))),
        }
        Ok(())
    }

    fn cuts(&self) -> u64 {
        self.ways.all().map(Proxy::cuts).sum()
    }

    /// BindComplete, a row with an array of two numbers, CommandComplete and ReadyForQuery: where each begins, and in the middle of each.
    fn answer_fields(&self, _name: &str) -> Vec<u64> {
        vec![0, 1, 4, 5, 6, 10, 12, 16, 24, 36, 44, 48, 56, 60, 61, 66, 74, 75, 78, 80]
    }

    fn lapses(&self) -> Vec<Lapse> {
        self.past().1.clone()
    }

    fn heal(&self) -> io::Result<()> {
        self.ways.heal();
        if self.past().0 != 0 {
            self.set_clock(0)?;
        }
        self.server.heal()
    }
}
