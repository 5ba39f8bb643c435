//! Redis as something that breaks.
//!
//! The test is the promise of a single Redis: no two holders at once, except one from before the server lost its
//! memory, or its clock jumped ahead, and one from after ([`Lapse`]). Even then the older one believes in its lock no longer
//! than its ttl, every token is higher than all before, and a resource that saw the newer one refuses the older one's writes.

mod contestants;
pub mod experiment;
mod findings;

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fencelock_lab::history::{Lapse, LogWriter};
use fencelock_lab::{Outage, Site};
use fencelock_testbed::redis::{Reply, Server, Settings};
use fencelock_testbed::{PATIENCE, Proxy, Way, wait_until};

use crate::{Bed, Ways};

/// How far the clock jumps, in seconds.
const JUMP: i64 = 60;

/// Further than any answer to one acquire reaches here.
const ANSWER_BYTES: u64 = 64;

/// How long an answer may lie unread in a client on a busy machine.
const UNREAD: Duration = Duration::from_secs(1);

/// Servers of their own, each for sites that know no other: the first keeps its memory on its disk, and has a clock that
/// jumps; the second forgets when it is killed. Never both in one: a counter that is lost while the clock is late falls behind,
/// as the capability says.
#[derive(Debug)]
pub struct Servers {
    servers: Vec<(Arc<Server>, bool)>,
    sites: AtomicUsize,
}

impl Servers {
    /// A server that keeps its memory.
    ///
    /// # Errors
    /// When it does not start.
    pub fn durable() -> io::Result<Self> {
        Self::start(&[true])
    }

    /// A server that forgets.
    ///
    /// # Errors
    /// When it does not start.
    pub fn forgetful() -> io::Result<Self> {
        Self::start(&[false])
    }

    /// Each kind once; sites are on the first and the second in turn.
    ///
    /// # Errors
    /// When they do not start.
    pub fn both() -> io::Result<Self> {
        Self::start(&[true, false])
    }

    fn start(kinds: &[bool]) -> io::Result<Self> {
        let start = |is_durable: &bool| {
            // Soon enough that a script without end is noticed as such.
            let settings = Settings { own_clock: *is_durable, ..Settings::default() }.with("lua-time-limit 100");
            // No test here is about the power going: written data outlives the process.
            let durable = |settings: Settings| settings.with("appendonly yes").with("appendfsync no");
            let settings = if *is_durable { durable(settings) } else { settings };
            Ok((Arc::new(Server::start(settings)?), *is_durable))
        };
        Ok(Self { servers: kinds.iter().map(start).collect::<io::Result<_>>()?, sites: AtomicUsize::new(0) })
    }
}

impl Bed for Servers {
    type Site = Redis;

    fn site(&self, name: &str, clients: usize) -> io::Result<Redis> {
        let number = self.sites.fetch_add(1, Ordering::Relaxed) % self.servers.len();
        let (server, is_durable) = &self.servers[number];
        Redis::new(server, *is_durable, name, clients)
    }

    fn heal(&self) -> io::Result<()> {
        self.servers.iter().try_for_each(|(server, _)| server.heal())
    }
}

/// A server, with keys and ways to it of one drill's own.
#[derive(Debug)]
pub struct Redis {
    server: Arc<Server>,
    is_durable: bool,
    ways: Ways,
    prefix: String,
    /// How far the clock is off, and when leases ended early.
    past: Mutex<Past>,
}

#[derive(Debug, Default)]
struct Past {
    clock: i64,
    lapses: Vec<Lapse>,
}

impl Redis {
    /// How long sessions live in the drills.
    pub const TTL: Duration = Duration::from_secs(3);

    fn new(server: &Arc<Server>, is_durable: bool, name: &str, clients: usize) -> io::Result<Self> {
        let ways = Ways::start(clients, &[server.address()])?;
        Ok(Self { server: Arc::clone(server), is_durable, ways, prefix: name.to_owned(), past: Mutex::default() })
    }

    /// The server.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    fn past(&self) -> MutexGuard<'_, Past> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what ends leases early, and remembers when that was.
    fn lapse(&self, ends: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let from = LogWriter::now();
        ends()?;
        let over = LogWriter::now();
        let by = over + nanos(UNREAD);
        self.past().lapses.push(Lapse { from, over, by, believed_until: over + nanos(Self::TTL) });
        Ok(())
    }

    /// Sets the clock, which ends leases early when that is ahead of before.
    fn set_clock(&self, seconds: i64) -> io::Result<()> {
        let before = std::mem::replace(&mut self.past().clock, seconds);
        match seconds > before {
            true => self.lapse(|| self.server.set_clock(seconds)),
            false => self.server.set_clock(seconds),
        }
    }

    /// For how many milliseconds each session lives without another renewal.
    fn leases(&self) -> io::Result<Vec<(String, i64)>> {
        let mut hands = self.server.hands()?;
        let sessions = hands.ask(&["KEYS", &format!("{}:1:session:*", self.prefix)])?;
        let sessions = sessions.items().iter().map(Reply::to_string);
        sessions.map(|session| Ok((session.clone(), hands.ask(&["PTTL", &session])?.number().unwrap_or(0)))).collect()
    }

    /// Waits until all sessions that were not renewed from now on are over: the clock cannot lengthen the life of the dead.
    fn wait_for_the_dead(&self) -> io::Result<()> {
        let mut unheard_of = self.leases()?;
        let all_told = wait_until(PATIENCE, || {
            let Ok(leases) = self.leases() else { return false };
            unheard_of.retain_mut(|(session, lowest)| {
                let left = leases.iter().find(|(other, _)| other == session).map(|(_, left)| *left);
                let lives_on = left.is_some_and(|left| left <= *lowest);
                *lowest = left.unwrap_or(0).min(*lowest);
                lives_on
            });
            unheard_of.is_empty()
        });
        if all_told { Ok(()) } else { Err(io::Error::other(format!("sessions live on unrenewed: {unheard_of:?}"))) }
    }

    /// Waits until no session lives longer than its ttl: some were renewed by a clock that was ahead.
    fn wait_for_the_clock(&self) -> io::Result<()> {
        let longest = Self::TTL.as_millis().try_into().unwrap_or(i64::MAX);
        let settled = || self.leases().is_ok_and(|leases| leases.iter().all(|(_, left)| *left <= longest));
        if wait_until(PATIENCE * 2, settled) {
            Ok(())
        } else {
            Err(io::Error::other("leases are too long for their ttl"))
        }
    }

    fn busy(&self) -> io::Result<()> {
        self.server.hands()?.send(&["EVAL", "while true do end", "0"])
    }
}

impl Site for Redis {
    fn url(&self, worker: usize) -> String {
        let ttl = Self::TTL.as_millis();
        format!("redis://{}?prefix={}&ttl_ms={ttl}", self.ways.connect_string(worker), self.prefix)
    }

    fn ttl(&self) -> Duration {
        Self::TTL
    }

    fn can(&self, outage: Outage) -> bool {
        match outage {
            Outage::FollowerCut | Outage::NumbersEnd | Outage::QueuesOverflow => false,
            Outage::ClockAhead | Outage::ClockBehind => self.is_durable,
            Outage::MemoryLost => !self.is_durable,
            _ => true,
        }
    }

    fn strike(&self, outage: Outage, worker: usize, random: u64) -> io::Result<()> {
        match outage {
            Outage::LeaderKilled if self.is_durable => self.server.kill(),
            Outage::LeaderKilled => self.lapse(|| {
                self.server.kill();
                Ok(())
            })?,
            Outage::ServerRestarted if self.is_durable => self.server.restart()?,
            Outage::ServerRestarted => self.lapse(|| self.server.restart())?,
            Outage::MemoryLost => self.lapse(|| self.server.ask(&["FLUSHALL"]).map(drop))?,
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
            Outage::ClockBehind => {
                self.wait_for_the_dead()?;
                self.set_clock(-JUMP)?;
            }
            Outage::ServerBusy => self.busy()?,
            Outage::ServerWaits => self.server.ask(&["CLIENT", "PAUSE", "600000", "WRITE"]).map(drop)?,
            Outage::ScriptsForgotten => self.server.ask(&["SCRIPT", "FLUSH"]).map(drop)?,
            other => return Err(io::Error::new(io::ErrorKind::Unsupported, format!("{other:?}"))),
        }
        Ok(())
    }

    fn cuts(&self) -> u64 {
        self.ways.all().map(Proxy::cuts).sum()
    }

    /// Its number alone, which has 15 digits until the year 2217.
    fn answer_fields(&self, _name: &str) -> Vec<u64> {
        let words = [":", "123456789012345\r\n"];
        let mut end = 0;
        let cuts = words.iter().flat_map(|word| {
            let before = end;
            end += word.len() as u64;
            [before + 1, end - 1, end]
        });
        [0].into_iter().chain(cuts).collect()
    }

    fn lapses(&self) -> Vec<Lapse> {
        self.past().lapses.clone()
    }

    fn heal(&self) -> io::Result<()> {
        self.ways.heal();
        if self.past().clock != 0 {
            self.set_clock(0)?;
        }
        self.server.heal()?;
        self.wait_for_the_clock()
    }
}
