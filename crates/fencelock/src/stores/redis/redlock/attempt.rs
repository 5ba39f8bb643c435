//! An attempt at a lock: the session asks every server, and holds the lock if a majority granted it. Otherwise the session gives the
//! attempt up at all servers.
//!
//! Each attempt writes a value of its own, so a late deletion does not delete a later attempt of the same request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::Value;

use super::servers::{Given, Servers, answered, missing, no_quorum, open};
use super::session::RedlockSession;
use crate::error::{Error, ErrorKind, Outcome, Result};
use crate::kit::try_again::Tried;
use crate::queue::Claim;
use crate::store::PlaceId;
use crate::stores::redis::try_again::dialect::{At, Dialect};
use crate::stores::redis::wire::{Call, Connection};
use crate::time::Moment;

/// An attempt of a request.
#[derive(Debug)]
pub(super) struct RedlockAttempt {
    pub(super) place: PlaceId,
    /// The value's text about the holder.
    pub(super) said: Arc<str>,
    /// The number of the attempt in its session.
    pub(super) number: u64,
    /// The attempt of the same request before this one, if its outcome is unknown.
    pub(super) earlier: Option<u64>,
    /// The session gave the attempt up.
    is_given_up: AtomicBool,
}

impl RedlockAttempt {
    pub(super) fn new(place: PlaceId, said: Arc<str>, number: u64, earlier: Option<u64>) -> Self {
        Self { place, said, number, earlier, is_given_up: AtomicBool::new(false) }
    }

    /// Gives up only the attempt of the same request with that number.
    fn give_up(&self, dialect: &Dialect, number: u64) -> Call<usize> {
        dialect.leave(vec![at(dialect, &self.place, number)])
    }
}

/// The name of a place, and the beginning of the value of that attempt alone.
pub(super) fn at<'a>(dialect: &Dialect, place: &'a PlaceId, number: u64) -> At<'a> {
    let (name, head) = dialect.at(place);
    (name, format!("{head}{number:x}:"))
}

/// A server's answer to an attempt.
pub(super) struct Answer {
    tried: Tried,
    /// Whether the server has a vote: a server that restarted lately has none.
    counts: bool,
}

impl RedlockSession {
    /// Asks every server for the lock, and returns the decision of the majority. A grant after `until` is too late. If a majority grants
    /// the lock, requests to slower servers stay under way. The session gives up an attempt without a grant at all servers.
    pub(super) async fn attempt(
        self: &Arc<Self>,
        servers: &Servers,
        attempt: &Arc<RedlockAttempt>,
        until: Moment,
        is_new: bool,
    ) -> Result<Tried> {
        let operation = if is_new { "enter" } else { "next" };
        let asked = (Arc::clone(self), Arc::clone(attempt), is_new);
        let mut answers = servers.ask(asked, |(session, attempt, is_new), index, connection| {
            Box::pin(async move { session.attempt_at(index, &connection, &attempt, is_new).await })
        })?;
        let quorum = servers.quorum();
        let given = answers.until(|given| Count::of(given).is_decided(quorum)).await;
        let mut outcome = self.outcome(operation, servers, given);
        if matches!(outcome, Ok(Tried::Granted(_))) {
            if servers.clock.now() >= until {
                outcome = Err(too_late(operation));
            } else if self.has(attempt) {
                return outcome;
            } else {
                outcome = Err(withdrawn());
            }
        }
        self.give_up(servers, attempt, given).await;
        outcome
    }

    async fn attempt_at(
        &self,
        index: usize,
        connection: &Connection,
        attempt: &Arc<RedlockAttempt>,
        is_new: bool,
    ) -> Result<Answer> {
        let (dialect, ttl) = (&self.dialect, self.opening.ttl);
        // Checked right before each request: a deletion of the lock is then sent later, and arrives later or is sent again after a grant.
        let is_wanted = || {
            let is_wanted = self.has(attempt) && !attempt.is_given_up.load(Ordering::Acquire);
            if is_wanted { Ok(()) } else { Err(withdrawn()) }
        };
        if let Some(earlier) = attempt.earlier {
            connection.run("enter", &attempt.give_up(dialect, earlier)).await?;
        }
        is_wanted()?;
        let (sent, at) = (self.opening.clock.now(), at(dialect, &attempt.place, attempt.number));
        let is_taken = match dialect.quick(&at, &attempt.said, ttl).filter(|_| is_new) {
            Some(quick) => connection.command("enter", &quick).await? == Value::Okay,
            None => false,
        };
        let tried = if is_taken {
            Tried::Granted(None)
        } else {
            is_wanted()?;
            connection.run("enter", &dialect.acquire(at, Claim::MUTEX, &attempt.said, ttl)).await?
        };
        // A deletion can still be sent before this request: right after the check, or before a repetition for a server without the script.
        if matches!(tried, Tried::Granted(_))
            && let Err(unwanted) = is_wanted()
        {
            connection.run("give up", &attempt.give_up(dialect, attempt.number)).await?;
            return Err(unwanted);
        }
        Ok(Answer { tried, counts: self.votes.counts(index, sent) })
    }

    /// Deletes an attempt at all servers that may have it, and waits for the servers that had granted it. A server that cannot be reached
    /// keeps the key for a ttl.
    async fn give_up(&self, servers: &Servers, attempt: &Arc<RedlockAttempt>, given: &Given<Answer>) {
        attempt.is_given_up.store(true, Ordering::Release);
        let is_granted = |answer: &Answer| matches!(answer.tried, Tried::Granted(_));
        let may_be_at = |index: usize| match &given[index] {
            Some(Ok(answer)) => is_granted(answer),
            Some(Err(error)) => error.outcome() == Outcome::Unknown,
            None => true,
        };
        let granted = given.iter().flatten().flatten().filter(|answer| is_granted(answer)).count();
        let what = (Arc::clone(&self.dialect), Arc::clone(attempt));
        let asked = servers.ask_those(may_be_at, what, |(dialect, attempt), _, connection| {
            let call = attempt.give_up(&dialect, attempt.number);
            Box::pin(async move { connection.run("give up", &call).await })
        });
        if let Ok(mut answers) = asked {
            answers.not_for_long();
            answers.until(|given| answered(given) >= granted).await;
        }
    }
}

/// Counts the answers to an attempt.
#[derive(Default)]
struct Count {
    granted: usize,
    /// Grants by servers without a vote.
    uncounted: usize,
    refused: usize,
    /// The types of keys that are no locks of the layout.
    others: Vec<String>,
    open: usize,
}

impl Count {
    fn of(given: &Given<Answer>) -> Self {
        let mut count = Self { open: open(given), ..Self::default() };
        for answer in given.iter().flatten().flatten() {
            match &answer.tried {
                Tried::Granted(_) if answer.counts => count.granted += 1,
                Tried::Granted(_) => count.uncounted += 1,
                Tried::Busy(_) => count.refused += 1,
                Tried::Other(kind) => count.others.push(kind.clone()),
            }
        }
        count
    }

    fn is_decided(&self, quorum: usize) -> bool {
        // A refusal needs the answers of a majority.
        let answered = self.granted + self.uncounted + self.refused + self.others.len();
        let is_certain = answered >= quorum || answered + self.open < quorum;
        self.granted >= quorum || (self.granted + self.open < quorum && is_certain)
    }
}

impl RedlockSession {
    fn outcome(&self, operation: &'static str, servers: &Servers, given: &Given<Answer>) -> Result<Tried> {
        let (count, quorum) = (Count::of(given), servers.quorum());
        if count.granted >= quorum {
            return Ok(Tried::Granted(None));
        }
        if count.others.len() > given.len() - quorum {
            return Ok(Tried::Other(count.others[0].clone()));
        }
        if count.granted + count.refused + count.others.len() >= quorum {
            return Ok(Tried::Busy(None));
        }
        if answered(given) < quorum {
            return Err(no_quorum(operation, quorum, &servers.names, given));
        }
        Err(self.too_few_votes(operation, servers, given, count.uncounted))
    }

    /// The error if enough servers answered and too few of them have a vote. Names when each of the other servers will have a vote.
    fn too_few_votes(
        &self,
        operation: &'static str,
        servers: &Servers,
        given: &Given<Answer>,
        uncounted: usize,
    ) -> Error {
        let message = "fewer servers than a majority have a vote: a server that was started a moment ago has none until `rejoin_ms` has passed, by default the ttl";
        let mut error = Error::new(ErrorKind::Unreachable, operation, message)
            .with("majority", servers.quorum())
            .with("without a vote", format!("{uncounted} of {}", given.len()));
        for (index, name) in servers.names.iter().enumerate() {
            if matches!(&given[index], Some(Ok(answer)) if !answer.counts && matches!(answer.tried, Tried::Granted(_)))
            {
                let left = self.votes.counts_in(index).as_secs_f64().ceil();
                error = error.with("started anew", format_args!("{name}: has a vote in {left} s"));
            }
        }
        for (name, why) in missing(&servers.names, given) {
            error = error.with("missing", format_args!("{name}: {why}"));
        }
        error.retryable().outcome_unknown()
    }
}

fn too_late(operation: &'static str) -> Error {
    let message = "a majority of the servers granted the lock, but so late that its time was over";
    Error::new(ErrorKind::Unreachable, operation, message).retryable().outcome_unknown()
}

pub(super) fn withdrawn() -> Error {
    Error::new(ErrorKind::Unreachable, "enter", "the request was taken back").retryable()
}
