//! Which servers have a vote: a server that restarted lately may have forgotten its grants.

use std::sync::Arc;
use std::time::Duration;

use redis::RedisError;

use super::session::Asking;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::fault::Meaning;
use crate::kit::try_again::TryAgainSession;
use crate::stores::redis::wire::{Connection, Era, Greeting, LinkUser, Server, is_same_era};
use crate::sync::Mutex;
use crate::time::{Clock, Moment};

/// The servers that the session has met.
pub(super) struct Votes {
    met: Mutex<Vec<Met>>,
    /// How long a restarted server has no vote.
    rejoin: Duration,
    clock: Arc<dyn Clock>,
}

/// A server that the session has met.
#[derive(Default)]
struct Met {
    /// The last era of the server; `Some(None)` if the user may not ask for it.
    era: Option<Option<Era>>,
    /// The id of the server's replication stream.
    replication: Option<String>,
    /// The time from which the server has a vote.
    counts_from: u64,
}

impl Votes {
    pub(super) fn new(servers: usize, rejoin: Duration, clock: Arc<dyn Clock>) -> Self {
        Self { met: Mutex::new((0..servers).map(|_| Met::default()).collect()), rejoin, clock }
    }

    /// Whether this server has a vote on a request sent at `sent`.
    pub(super) fn counts(&self, index: usize, sent: Moment) -> bool {
        self.met.lock()[index].counts_from <= sent.as_nanos()
    }

    /// The time until this server has a vote.
    pub(super) fn counts_in(&self, index: usize) -> Duration {
        Moment::from_nanos(self.met.lock()[index].counts_from).since(self.clock.now())
    }

    /// Whether every server that the session met says its `run_id`.
    pub(super) fn sees_all_restarts(&self) -> bool {
        self.met.lock().iter().all(|met| met.era.as_ref().is_none_or(Option::is_some))
    }

    /// Notes that `server` answers at `index`. Returns whether it may have forgotten its keys.
    fn meet(&self, index: usize, server: &Server) -> bool {
        let met = &mut self.met.lock()[index];
        let before = met.era.replace(server.era());
        met.replication.clone_from(&server.replication);
        let rest = match (&before, server.era()) {
            (Some(Some(before)), Some(now)) if is_same_era(before, &now) => return false,
            (None, Some(_)) => server.rest_of(self.rejoin),
            _ => self.rejoin,
        };
        met.counts_from = if rest.is_zero() { 0 } else { self.clock.now().after(rest).as_nanos() };
        before.is_some()
    }

    /// Refuses a server with two names, and a server with the same data as another.
    fn is_another(&self, index: usize, server: &Server) -> Result<()> {
        let wrong = |message| Err(Error::new(ErrorKind::Config, "connect", message));
        for (_, met) in self.met.lock().iter().enumerate().filter(|(other, _)| *other != index) {
            if server.run_id.is_some() && met.era.iter().flatten().map(|era| &era.0).eq(&server.run_id) {
                return wrong(
                    "two of the servers are one server: name each server once, for one that is named twice has two votes",
                );
            }
            if server.replication.is_some() && met.replication == server.replication {
                return wrong("a server copies another one: name servers that know nothing of each other");
            }
        }
        Ok(())
    }
}

/// A session's side of the link to one server.
pub(super) struct ServerUser {
    pub(super) session: Arc<TryAgainSession<Asking>>,
    /// The number of the server.
    pub(super) index: usize,
}

impl LinkUser for ServerUser {
    fn greet<'a>(&'a self, connection: &'a Arc<Connection>, server: &'a Server) -> Greeting<'a> {
        Box::pin(async move {
            let session = &self.session.backend.0;
            if session.votes.meet(self.index, server) {
                let server = connection.server_name();
                tracing::warn!(
                    "Redis {server} was started anew, was a replica, or is another server. It has no vote for a while."
                );
                // A renewal finds the locks that the server forgot.
                self.session.places.doubt();
            }
            // The server is noted before the comparison: of two concurrent greetings, at least one sees the other server.
            session.votes.is_another(self.index, server)?;
            // Sends a renewal without locks: a user without the right to renew receives the error now, and not while it holds a lock.
            connection.run("open session", &session.dialect.renew(Vec::new(), session.opening.ttl)).await?;
            Ok(None)
        })
    }

    fn disconnected(&self, _: u64) {
        self.session.places.disconnected();
    }

    /// Another server grants locks from now on, and may lack this server's grants.
    fn demoted(&self) {
        self.session.places.doubt();
    }

    fn meaning(&self, error: &RedisError) -> Option<Meaning> {
        self.session.backend.0.dialect.meaning(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SystemClock;

    #[test]
    fn a_server_that_was_a_replica_meanwhile_has_no_vote_for_a_while() {
        let clock = Arc::new(SystemClock);
        let votes = Votes::new(1, Duration::from_secs(60), Arc::clone(&clock) as _);
        let meets = |promoted_from: &str| {
            let info = format!("run_id:a\r\nmaster_replid2:{promoted_from}\r\nuptime_in_seconds:9000\r\n");
            let may_have_forgotten = votes.meet(0, &Server::answered(redis::Value::BulkString(info.into_bytes())));
            (may_have_forgotten, votes.counts(0, clock.now()))
        };
        let (none, one, other) = ("0".repeat(40), "1".repeat(40), "2".repeat(40));
        assert_eq!(meets(&none), (false, true));
        assert_eq!(meets(&one), (true, false));
        // A primary without replicas forgets its promotion after a while.
        assert_eq!([meets(&one), meets(&none)].map(|(may_have_forgotten, _)| may_have_forgotten), [false; 2]);
        assert_eq!(meets(&other), (true, false));
    }
}
