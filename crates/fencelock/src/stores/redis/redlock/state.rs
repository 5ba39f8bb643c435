//! What lives as long as a session over several servers does: its lines, and which servers have a vote.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_core::future::BoxFuture;
use redis::RedisError;

use super::Times;
use super::attempt;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::fault::Meaning;
use crate::kit::try_again::Places;
use crate::store::{Loss, Opening};
use crate::stores::redis::try_again::dialect::Dialect;
use crate::stores::redis::wire::{Chores, Connection, LinkUser, Script, Server};
use crate::time::Moment;

/// What the connections to all servers share.
pub(super) struct SessionState {
    pub(super) dialect: Arc<Dialect>,
    pub(super) opening: Opening,
    pub(super) times: Times,
    pub(super) places: Places,
    /// Before the newest request was sent by which the session counts as living; 0 before it is open.
    confirmed: AtomicU64,
    met: Mutex<Vec<Met>>,
}

/// What is known of one server.
#[derive(Default)]
struct Met {
    /// The `run_id` that was met last; `Some(None)` when it may not be asked for.
    run_id: Option<Option<String>>,
    /// Which stream of changes it sends to its replicas.
    replication: Option<String>,
    /// From when on it has a vote.
    counts_from: u64,
}

impl SessionState {
    pub(super) fn new(dialect: Arc<Dialect>, opening: Opening, times: Times, places: Places, servers: usize) -> Self {
        let met = Mutex::new((0..servers).map(|_| Met::default()).collect());
        Self { dialect, opening, times, places, confirmed: AtomicU64::new(0), met }
    }

    fn servers(&self) -> MutexGuard<'_, Vec<Met>> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn ttl(&self) -> Duration {
        self.opening.ttl
    }

    /// How long a majority's grant is good for, from before the first request for it was sent.
    pub(super) fn validity(&self) -> Duration {
        self.ttl().saturating_sub(self.times.drift(self.ttl()))
    }

    /// How long a server that was started anew has no vote.
    fn rejoin(&self) -> Duration {
        self.times.rejoin.unwrap_or(self.ttl())
    }

    /// Whether this server has a vote on what it was asked for at `sent`.
    pub(super) fn counts(&self, index: usize, sent: Moment) -> bool {
        self.servers()[index].counts_from <= sent.as_nanos()
    }

    /// How long it is until this server has a vote.
    pub(super) fn counts_in(&self, index: usize) -> Duration {
        Moment::from_nanos(self.servers()[index].counts_from).since(self.opening.clock.now())
    }

    pub(super) fn confirmed(&self) -> Moment {
        Moment::from_nanos(self.confirmed.load(Ordering::Acquire))
    }

    pub(super) fn confirm(&self, sent: Moment) {
        self.confirmed.fetch_max(sent.as_nanos(), Ordering::AcqRel);
    }

    /// Refuses what only a living session can do. One that was not renewed for its ttl has no key left.
    pub(super) fn alive(&self, operation: &'static str) -> Result<()> {
        let confirmed = self.confirmed();
        if confirmed.as_nanos() != 0 && self.opening.clock.now() >= confirmed.after(self.ttl()) {
            self.places.end(Loss::Expired);
        }
        self.places.alive(operation)
    }

    /// Whether every server that was met tells its `run_id`.
    pub(super) fn sees_all_restarts(&self) -> bool {
        self.servers().iter().all(|met| met.run_id.as_ref().is_none_or(Option::is_some))
    }

    /// Notes that `server` answers there. Says whether it may have forgotten what it knew.
    fn meet(&self, index: usize, server: &Server) -> bool {
        let now = self.opening.clock.now();
        let met = &mut self.servers()[index];
        let before = met.run_id.replace(server.run_id.clone());
        met.replication.clone_from(&server.replication);
        let rest = match (&before, &server.run_id) {
            (Some(before), now) if now.is_some() && before == now => return false,
            (None, Some(_)) => server.rest_of(self.rejoin()),
            _ => self.rejoin(),
        };
        met.counts_from = if rest.is_zero() { 0 } else { now.after(rest).as_nanos() };
        before.is_some()
    }

    /// Refuses one server under two names, and one that has the same data as another.
    fn is_another(&self, index: usize, server: &Server) -> Result<()> {
        for (_, met) in self.servers().iter().enumerate().filter(|(other, _)| *other != index) {
            let is_same = server.run_id.is_some() && met.run_id.as_ref() == Some(&server.run_id);
            if is_same {
                let message = "two of the servers are one server: name each server once, for one that is named twice has two votes";
                return Err(Error::new(ErrorKind::Config, "connect", message));
            }
            if server.replication.is_some() && met.replication == server.replication {
                let message = "one of the servers copies another: name servers that know nothing of each other";
                return Err(Error::new(ErrorKind::Config, "connect", message));
            }
        }
        Ok(())
    }
}

/// A session as the wire to one server sees it.
pub(super) struct ServerUser {
    pub(super) state: Arc<SessionState>,
    /// Which of the servers it is.
    pub(super) index: usize,
}

impl LinkUser for ServerUser {
    fn scripts(&self) -> Vec<&'static Script> {
        self.state.dialect.scripts.all()
    }

    fn greet<'a>(
        &'a self,
        connection: &'a Arc<Connection>,
        server: &'a Server,
    ) -> BoxFuture<'a, Result<Option<Chores>>> {
        Box::pin(async move {
            let state = &self.state;
            if state.meet(self.index, server) {
                let server = connection.server_name();
                tracing::warn!("Redis {server} was started anew, or is another server. It has no vote for a while.");
                // A renewal tells which locks it forgot.
                state.places.doubt();
            }
            // Noted first and compared then: of two that are greeted at once, one at least sees the other.
            state.is_another(self.index, server)?;
            // As locks are renewed: a user that may not do that is told now, and not once a lock is held.
            connection.run("open session", &attempt::renew(&state.dialect, &[], state.ttl())).await?;
            Ok(None)
        })
    }

    fn disconnected(&self, _: u64) {
        self.state.places.disconnected();
    }

    /// Another server decides from now on in its place, and may not know of what this one granted.
    fn demoted(&self) {
        self.state.places.doubt();
    }

    fn meaning(&self, error: &RedisError) -> Option<Meaning> {
        self.state.dialect.meaning(error)
    }
}
