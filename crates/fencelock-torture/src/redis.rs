//! Redis as something that breaks: a server alone, a primary that Sentinels watch, a Cluster, and the masters of Redlock.
//!
//! The test is the promise of a single Redis: no two holders at once, except one from before the server lost its
//! memory, or its clock jumped ahead, and one from after ([`Lapse`](fencelock_lab::history::Lapse)). Even then the older one believes in
//! its lock no longer than its ttl, every token is higher than all before, and a resource that saw the newer one refuses the older one's
//! writes.

mod contestants;
pub mod experiment;
mod findings;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use fencelock_lab::Outage;
use fencelock_testbed::redis::{self, Cluster, Reply, Settings, Watched};
use fencelock_testbed::{Server, wait_for};

use crate::bed::{Bed, Breakable, TTL, can_usually};

/// The settings of a server that is asked no more than a hundred workers ask.
fn settings(is_durable: bool) -> Settings {
    // Soon enough that a script without end is noticed as such.
    let settings = Settings::default().with("lua-time-limit 100");
    // No test here is about the power going: written data outlives the process.
    if is_durable { settings.with("appendonly yes").with("appendfsync no") } else { settings }
}

/// A server, with a prefix for each site. Either it keeps its memory on its disk, and has a clock that jumps; or it forgets when it is
/// killed. Never both in one: a counter that is lost while the clock is late falls behind, as the capability says.
#[derive(Debug)]
pub(crate) struct One {
    server: redis::Server,
    is_durable: bool,
}

impl One {
    /// Starts the server.
    pub(crate) fn start(is_durable: bool) -> io::Result<Arc<dyn Bed>> {
        let server = redis::Server::start(Settings { own_clock: is_durable, ..settings(is_durable) })?;
        Ok(Arc::new(Self { server, is_durable }))
    }

    /// For how many milliseconds each session of the site `name` lives without another renewal.
    fn leases(&self, name: &str) -> io::Result<Vec<(String, i64)>> {
        let mut hands = self.server.hands()?;
        let sessions = hands.ask(&["KEYS", &format!("{name}:1:session:*")])?;
        let sessions = sessions.items().iter().map(Reply::to_string);
        sessions.map(|session| Ok((session.clone(), hands.ask(&["PTTL", &session])?.number().unwrap_or(0)))).collect()
    }

    /// Waits until all sessions that were not renewed from now on have ended: the clock cannot lengthen the life of the dead.
    fn wait_for_the_dead(&self, name: &str) -> io::Result<()> {
        let mut unrenewed = self.leases(name)?;
        wait_for("sessions end that are not renewed", || {
            let Ok(leases) = self.leases(name) else { return false };
            unrenewed.retain_mut(|(session, lowest)| {
                let left = leases.iter().find(|(other, _)| other == session).map(|(_, left)| *left);
                let lives_on = left.is_some_and(|left| left <= *lowest);
                *lowest = left.unwrap_or(0).min(*lowest);
                lives_on
            });
            unrenewed.is_empty()
        })
    }

    /// Waits until no session lives longer than its ttl: some were renewed by a clock that was ahead.
    fn wait_for_the_clock(&self, name: &str) -> io::Result<()> {
        let longest = TTL.as_millis().try_into().unwrap_or(i64::MAX);
        let settled = || self.leases(name).is_ok_and(|leases| leases.iter().all(|(_, left)| *left <= longest));
        wait_for("no lease is longer than its ttl", settled)
    }
}

impl Bed for One {
    fn servers(&self) -> Vec<&dyn Server> {
        vec![&self.server]
    }

    fn url(&self, ways: &[SocketAddr], name: &str) -> String {
        format!("redis://{}?prefix={name}&ttl_ms={}", ways[0], TTL.as_millis())
    }

    fn can(&self, outage: Outage) -> bool {
        match outage {
            Outage::ClockAhead | Outage::ClockBehind => self.is_durable,
            Outage::MemoryLost => !self.is_durable,
            other => can_usually(1, other) || other.is_of_memory_and_clock(),
        }
    }

    fn forgets(&self) -> bool {
        !self.is_durable
    }

    fn set_clock(&self, name: &str, seconds: i64) -> io::Result<()> {
        if seconds < 0 {
            self.wait_for_the_dead(name)?;
        }
        self.server.set_clock(seconds)
    }

    fn strike(&self, _site: &Breakable, outage: Outage, _random: u64) -> io::Result<()> {
        let request: &[&str] = match outage {
            Outage::ServerBusy => return self.server.hands()?.send(&["EVAL", "while true do end", "0"]),
            Outage::ServerWaits => &["CLIENT", "PAUSE", "600000", "WRITE"],
            Outage::ScriptsForgotten => &["SCRIPT", "FLUSH"],
            Outage::MemoryLost => &["FLUSHALL"],
            other => return Err(io::Error::new(io::ErrorKind::Unsupported, format!("{other:?}"))),
        };
        self.server.ask(request).map(drop)
    }

    fn answer_bytes(&self) -> u64 {
        64
    }

    /// Its number alone, which has 15 digits until the year 2217.
    fn answer_fields(&self, _name: &str, _lock: &str) -> Vec<u64> {
        let words = [":", "123456789012345\r\n"];
        let mut end = 0;
        let cuts = words.iter().flat_map(|word| {
            let before = end;
            end += word.len() as u64;
            [before + 1, end - 1, end]
        });
        [0].into_iter().chain(cuts).collect()
    }

    fn heal(&self, site: &Breakable) -> io::Result<()> {
        self.server.heal()?;
        self.wait_for_the_clock(&site.name)
    }
}

/// Several servers that keep their memory.
#[derive(Debug)]
pub(crate) enum Several {
    /// A primary and two replicas with three Sentinels. Each grant waits for both replicas, so that no failover loses one.
    Watched(Watched),
    /// Three primaries of a Cluster, with a replica each that acknowledges each grant.
    Cluster(Cluster),
    /// Masters for Redlock.
    Masters(Vec<redis::Server>),
}

impl Several {
    pub(crate) fn watched() -> io::Result<Arc<dyn Bed>> {
        Ok(Arc::new(Self::Watched(Watched::start(2, &settings(true), &[])?)))
    }

    pub(crate) fn cluster() -> io::Result<Arc<dyn Bed>> {
        Ok(Arc::new(Self::Cluster(Cluster::start(true, 2000, &settings(true))?)))
    }

    pub(crate) fn masters() -> io::Result<Arc<dyn Bed>> {
        let masters = (0..3).map(|_| redis::Server::start(settings(true)));
        Ok(Arc::new(Self::Masters(masters.collect::<io::Result<_>>()?)))
    }

    fn all(&self) -> &[redis::Server] {
        match self {
            Self::Watched(watched) => &watched.servers,
            Self::Cluster(cluster) => &cluster.nodes,
            Self::Masters(masters) => masters,
        }
    }
}

impl Bed for Several {
    fn servers(&self) -> Vec<&dyn Server> {
        self.all().iter().map(|server| server as &dyn Server).collect()
    }

    fn shares(&self) -> bool {
        !matches!(self, Self::Masters(_))
    }

    /// Clients come to each server by a proxy, and to the Sentinels, and to nodes that they ask for the others, without one.
    fn url(&self, ways: &[SocketAddr], name: &str) -> String {
        let (options, text) = (format!("prefix={name}&ttl_ms={}", TTL.as_millis()), SocketAddr::to_string);
        let map = self.all().iter().zip(ways).map(|(server, way)| format!("{}={way}", server.address()));
        let map = map.collect::<Vec<_>>().join(",");
        match self {
            Self::Watched(watched) => watched.url("", &format!("{options}&min_replicas=2&map={map}")),
            Self::Cluster(cluster) => cluster.url(&format!("{options}&map={map}")),
            Self::Masters(_) => format!("redlock://{}?{options}", ways.iter().map(text).collect::<Vec<_>>().join(",")),
        }
    }

    /// In a Cluster the owner of a third of the locks.
    fn leader(&self) -> usize {
        let primary = match self {
            Self::Watched(watched) => watched.primary().address(),
            Self::Cluster(cluster) => cluster.owner(0).expect("an owner").address(),
            Self::Masters(_) => return 0,
        };
        self.all().iter().position(|server| server.address() == primary).unwrap_or(0)
    }

    fn heal(&self, _site: &Breakable) -> io::Result<()> {
        self.servers().into_iter().try_for_each(Server::heal)?;
        match self {
            Self::Watched(watched) => watched.wait_until_watched(2),
            Self::Cluster(cluster) => cluster.wait_until_whole(),
            Self::Masters(_) => Ok(()),
        }
    }
}
