//! A session's view of one master: which run of it was met, and from when on its word counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_core::future::BoxFuture;
use redis::RedisError;

use super::super::dialect::Dialect;
use super::Terms;
use super::calls;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::fault::Meaning;
use crate::kit::try_again::Lines;
use crate::store::{Loss, Opening};
use crate::stores::redis::wire::{Chores, Connection, LinkUser, Script, Server};
use crate::time::Moment;

/// What all masters' users of one session share.
pub(super) struct Member {
    pub(super) dialect: Arc<Dialect>,
    pub(super) opening: Opening,
    pub(super) terms: Terms,
    pub(super) lines: Lines,
    /// Before the newest request was sent by which the session counts as living; 0 before it is open.
    confirmed: AtomicU64,
    masters: Mutex<Vec<Met>>,
}

/// What is known of one master.
#[derive(Default)]
struct Met {
    /// The run that was met last; `Some(None)` when it may not be asked for.
    run: Option<Option<String>>,
    /// Which stream of changes it sends to its replicas.
    replication: Option<String>,
    counts_from: u64,
}

impl Member {
    pub(super) fn new(dialect: Arc<Dialect>, opening: Opening, terms: Terms, lines: Lines, masters: usize) -> Self {
        let masters = Mutex::new((0..masters).map(|_| Met::default()).collect());
        Self { dialect, opening, terms, lines, confirmed: AtomicU64::new(0), masters }
    }

    fn masters(&self) -> MutexGuard<'_, Vec<Met>> {
        self.masters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn ttl(&self) -> Duration {
        self.opening.ttl
    }

    /// How long a quorum's grant is good for, from before the first request for it was sent.
    pub(super) fn validity(&self) -> Duration {
        self.ttl().saturating_sub(self.terms.drift(self.ttl()))
    }

    /// How long a master that was started anew is not counted.
    fn rejoin(&self) -> Duration {
        self.terms.rejoin.unwrap_or(self.ttl())
    }

    /// Whether what this master granted counts, which was asked for at `sent`.
    pub(super) fn counts(&self, master: usize, sent: Moment) -> bool {
        self.masters()[master].counts_from <= sent.as_nanos()
    }

    /// How long it is until what this master grants counts.
    pub(super) fn counts_in(&self, master: usize) -> Duration {
        Moment::from_nanos(self.masters()[master].counts_from).since(self.opening.clock.now())
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
            self.lines.end(Loss::Expired);
        }
        self.lines.alive(operation)
    }

    /// Whether every master that was met says which run of it that is.
    pub(super) fn knows_all_runs(&self) -> bool {
        self.masters().iter().all(|met| met.run.as_ref().is_none_or(Option::is_some))
    }

    /// Notes that this master is `server`. Says whether it may have forgotten what it knew.
    fn met(&self, master: usize, server: &Server) -> bool {
        let now = self.opening.clock.now();
        let met = &mut self.masters()[master];
        let before = met.run.replace(server.run_id.clone());
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
    fn is_another(&self, master: usize, server: &Server) -> Result<()> {
        for (_, met) in self.masters().iter().enumerate().filter(|(index, _)| *index != master) {
            let is_same = server.run_id.is_some() && met.run.as_ref() == Some(&server.run_id);
            if is_same {
                let message = "two of the masters are one server: name each server once, for one that is named twice has two votes";
                return Err(Error::new(ErrorKind::Config, "connect", message));
            }
            if server.replication.is_some() && met.replication == server.replication {
                let message = "one of the masters copies another: name servers that know nothing of each other";
                return Err(Error::new(ErrorKind::Config, "connect", message));
            }
        }
        Ok(())
    }
}

/// A session as the wire to one master sees it.
pub(super) struct MasterUser {
    pub(super) member: Arc<Member>,
    pub(super) master: usize,
}

impl LinkUser for MasterUser {
    fn scripts(&self) -> Vec<&'static Script> {
        self.member.dialect.scripts.all()
    }

    fn greet<'a>(
        &'a self,
        connection: &'a Arc<Connection>,
        server: &'a Server,
    ) -> BoxFuture<'a, Result<Option<Chores>>> {
        Box::pin(async move {
            let member = &self.member;
            if member.met(self.master, server) {
                tracing::warn!(server = %connection.server_name(), "a master was started anew, or is another server: it is not counted for a while");
                member.lines.doubt();
            }
            // Noted first and compared then: of two that are greeted at once, one at least sees the other.
            member.is_another(self.master, server)?;
            // As locks are renewed: a user that may not do that is told now, and not once a lock is held.
            connection.run("open session", &calls::renew(&member.dialect, &[], member.ttl())).await?;
            Ok(None)
        })
    }

    fn disconnected(&self, _: u64) {
        self.member.lines.disconnected();
    }

    /// Another server decides from now on in its place, and may not know of what this one granted.
    fn demoted(&self) {
        self.member.lines.doubt();
    }

    fn meaning(&self, error: &RedisError) -> Option<Meaning> {
        self.member.dialect.meaning(error)
    }
}
