//! PostgreSQL, with faults.
//!
//! The test is the promise of one server that writes its answers to its disk: no two holders at once, except one from before its
//! clock jumped ahead and one from after ([`Lapse`](fencelock_lab::history::Lapse)).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use fencelock_lab::Outage;
use fencelock_testbed::Server;
use fencelock_testbed::postgres::{self, OWNER, Settings};

use crate::bed::{Bed, TTL, can_usually};

/// A server whose clock can be moved, with a schema for each site.
#[derive(Debug)]
pub(crate) struct Postgres(postgres::Server);

impl Postgres {
    /// Starts the server.
    pub(crate) fn start() -> io::Result<Arc<dyn Bed>> {
        let settings = Settings { own_clock: true, ..Settings::default() };
        // No test here cuts the power: written data outlives the process.
        Ok(Arc::new(Self(postgres::Server::start(settings.with("fsync = off"))?)))
    }
}

impl Bed for Postgres {
    fn servers(&self) -> Vec<&dyn Server> {
        vec![&self.0]
    }

    fn url(&self, ways: &[SocketAddr], name: &str) -> String {
        format!("postgres://{OWNER}@{}/{OWNER}?schema={name}&ttl_ms={}", ways[0], TTL.as_millis())
    }

    fn can(&self, outage: Outage) -> bool {
        can_usually(1, outage) || matches!(outage, Outage::ClockAhead | Outage::ClockBehind)
    }

    fn set_clock(&self, _name: &str, seconds: i64) -> io::Result<()> {
        self.0.set_clock(seconds)
    }

    fn answer_bytes(&self) -> u64 {
        120
    }

    /// BindComplete, a row with an array of two numbers, CommandComplete and ReadyForQuery: where each begins, and in the middle of each.
    fn answer_fields(&self, _name: &str, _lock: &str) -> Vec<u64> {
        vec![0, 1, 4, 5, 6, 10, 12, 16, 24, 36, 44, 48, 56, 60, 61, 66, 74, 75, 78, 80]
    }
}
