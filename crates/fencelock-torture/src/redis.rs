//! Redis, with faults: a single server, a primary that Sentinels watch, a Cluster, and the masters of Redlock.
//!
//! The test is the promise of a single Redis: no two holders at once, except around a [`Lapse`](fencelock_lab::history::Lapse), in which
//! the server lost its memory or its clock jumped ahead. Even then the older holder believes in its lock no longer than its ttl, tokens
//! rise, and a resource that saw the newer holder refuses the older holder's writes.

mod contestants;
pub mod experiment;
pub mod failovers;
mod findings;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use fencelock_lab::Outage;
use fencelock_testbed::Server;
use fencelock_testbed::redis::{self, Cluster, Settings, Watched};

use crate::bed::{Bed, Breakable, TTL, can_usually};

/// The settings of a server for a hundred workers.
fn settings(is_durable: bool) -> Settings {
    // Soon enough that an endless script is noticed.
    let settings = Settings::default().with("lua-time-limit 100");
    // No test here cuts the power: written data outlives the process.
    if is_durable { settings.with("appendonly yes").with("appendfsync no") } else { settings }
}

/// A server, with a prefix for each site. Either it keeps its memory on its disk, and has a clock that jumps; or it forgets when it is
/// killed. Never both: a counter that is lost while the clock is late falls behind, as the capability says.
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

    fn set_clock(&self, _name: &str, seconds: i64) -> io::Result<()> {
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

    /// A colon, a number that has 15 digits until the year 2217, and the end of the line: the ends of each, and in the middle.
    fn answer_fields(&self, _name: &str, _lock: &str) -> Vec<u64> {
        vec![0, 1, 2, 17, 18]
    }

    fn heal(&self, _site: &Breakable) -> io::Result<()> {
        self.server.heal()
    }
}

/// The slot of the hash tag under which a Cluster has the lock `job`.
const SLOT_OF_JOB: u16 = 5649;

/// Several servers that keep their memory, and the options of clients.
#[derive(Debug)]
pub(crate) enum Several {
    /// A primary and two replicas with three Sentinels.
    Watched(Watched, String),
    /// Three primaries of a Cluster, with a replica each.
    Cluster(Cluster, String),
    /// Masters for Redlock.
    Masters(Vec<redis::Server>),
}

impl Several {
    /// Each grant waits for both replicas, so that no failover loses one.
    pub(crate) fn watched() -> io::Result<Arc<dyn Bed>> {
        let options = format!("min_replicas=2&ttl_ms={}", TTL.as_millis());
        Ok(Arc::new(Self::Watched(Watched::start(2, &settings(true), &[])?, options)))
    }

    /// The replica of each primary acknowledges each grant.
    pub(crate) fn cluster() -> io::Result<Arc<dyn Bed>> {
        let options = format!("ttl_ms={}", TTL.as_millis());
        Ok(Arc::new(Self::Cluster(Cluster::start(true, 2000, &settings(true))?, options)))
    }

    pub(crate) fn masters() -> io::Result<Arc<dyn Bed>> {
        let masters = (0..3).map(|_| redis::Server::start(settings(true)));
        Ok(Arc::new(Self::Masters(masters.collect::<io::Result<_>>()?)))
    }

    fn all(&self) -> &[redis::Server] {
        match self {
            Self::Watched(watched, _) => &watched.servers,
            Self::Cluster(cluster, _) => &cluster.nodes,
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

    /// Clients reach each server by a proxy. They reach the Sentinels, and the nodes that name the other nodes, without a proxy.
    fn url(&self, ways: &[SocketAddr], name: &str) -> String {
        let text = |ways: &[SocketAddr]| ways.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",");
        let map = self.all().iter().zip(ways).map(|(server, way)| format!("{}={way}", server.address()));
        let map = map.collect::<Vec<_>>().join(",");
        match self {
            Self::Watched(watched, options) => watched.url("", &format!("prefix={name}&{options}&map={map}")),
            Self::Cluster(cluster, options) => cluster.url(&format!("prefix={name}&{options}&map={map}")),
            Self::Masters(_) => format!("redlock://{}?prefix={name}&ttl_ms={}", text(ways), TTL.as_millis()),
        }
    }

    /// In a Cluster, the owner of a third of the locks, among them `job`.
    fn leader(&self) -> usize {
        let primary = match self {
            Self::Watched(watched, _) => watched.primary().address(),
            Self::Cluster(cluster, _) => cluster.owner(SLOT_OF_JOB).expect("an owner").address(),
            Self::Masters(_) => return 0,
        };
        self.all().iter().position(|server| server.address() == primary).unwrap_or(0)
    }

    fn heal(&self, _site: &Breakable) -> io::Result<()> {
        self.servers().into_iter().try_for_each(Server::heal)?;
        match self {
            Self::Watched(watched, _) => watched.wait_until_watched(2),
            Self::Cluster(cluster, _) => cluster.wait_until_whole(),
            Self::Masters(_) => Ok(()),
        }
    }
}
