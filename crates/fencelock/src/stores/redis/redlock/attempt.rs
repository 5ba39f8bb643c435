//! One attempt at a lock: it is asked for at every server, and held where a majority granted it. Else it is given up at all of them.
//!
//! Each attempt writes a value of its own. So a deletion that is late deletes nothing of a later attempt of the same request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::{Cmd, Value};

use super::servers::{Given, heard, missing, no_quorum, open};
use super::session::Locks;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::try_again::Tried;
use crate::store::{PlaceId, RequestId};
use crate::stores::redis::try_again::dialect::{Dialect, call, milliseconds, plainly, tried};
use crate::stores::redis::wire::{Call, Connection};
use crate::time::Moment;

/// One attempt of a request.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) place: PlaceId,
    /// What the value says of the holder.
    pub(super) said: Arc<str>,
    /// Which attempt of its session it is.
    pub(super) number: u64,
    /// The attempt of the same request before this one, if nobody knows what became of it.
    pub(super) earlier: Option<u64>,
    /// Nobody asks for it any more.
    is_given_up: AtomicBool,
}

impl Attempt {
    pub(super) fn new(place: PlaceId, said: Arc<str>, number: u64, earlier: Option<u64>) -> Self {
        Self { place, said, number, earlier, is_given_up: AtomicBool::new(false) }
    }

    /// How its value begins, and no other.
    fn head(&self, dialect: &Dialect) -> String {
        head(dialect, self.place.request, self.number)
    }

    fn key(&self, dialect: &Dialect) -> String {
        dialect.key(&self.place.name)
    }

    /// The command that takes a free lock; it says nothing of a key that is there.
    fn quick(&self, dialect: &Dialect, ttl: Duration) -> Option<Cmd> {
        dialect.quick.map(|quick| quick(&self.key(dialect), &self.head(dialect), &self.said, ttl))
    }

    fn acquire(&self, dialect: &Dialect, ttl: Duration) -> Call<Tried> {
        call(&dialect.scripts.acquire, &[self.key(dialect)], tried)
            .arg(self.head(dialect))
            .arg(&*self.said)
            .arg(milliseconds(ttl))
    }

    /// Gives up the attempt of the same request with that number, and no other one.
    fn give_up(&self, dialect: &Dialect, number: u64) -> Call<usize> {
        call(&dialect.scripts.leave, &[self.key(dialect)], plainly).arg(head(dialect, self.place.request, number))
    }
}

fn head(dialect: &Dialect, id: RequestId, number: u64) -> String {
    format!("{}{number:x}:", (dialect.marks.head)(id))
}

/// Prolongs what these attempts have. Answers which of them have nothing.
pub(super) fn renew(dialect: &Dialect, attempts: &[Arc<Attempt>], ttl: Duration) -> Call<Vec<usize>> {
    let keys: Vec<String> = attempts.iter().map(|attempt| attempt.key(dialect)).collect();
    let renewal = call(&dialect.scripts.renew, &keys, plainly).arg(milliseconds(ttl));
    attempts.iter().fold(renewal, |renewal, attempt| renewal.arg(attempt.head(dialect)))
}

/// What one server said of an attempt.
pub(super) struct Answer {
    tried: Tried,
    /// Whether the server has a vote: it was not started anew a moment ago.
    counts: bool,
}

impl Locks {
    /// Asks every server for the lock, and says what a majority said, and before which moment it was asked. A server that is slower than
    /// a majority goes on being asked for a lock that is granted. An attempt that is not granted is given up everywhere.
    pub(super) async fn attempt(
        self: &Arc<Self>,
        operation: &'static str,
        attempt: Attempt,
        is_new: bool,
    ) -> Result<(Tried, Moment)> {
        let attempt = Arc::new(attempt);
        let sent = self.servers.clock.now();
        self.begin(&attempt)?;
        let (locks, asked) = (Arc::clone(self), Arc::clone(&attempt));
        let mut answers = self.servers.ask(move |index, connection| {
            let (locks, attempt) = (Arc::clone(&locks), Arc::clone(&asked));
            Box::pin(async move { locks.attempt_at(index, &connection, &attempt, is_new).await })
        })?;
        let quorum = self.servers.quorum();
        let given = answers.until(|given| Count::of(given).is_decided(quorum)).await;
        let mut outcome = self.outcome(operation, given);
        if matches!(outcome, Ok(Tried::Granted(_))) {
            if self.servers.clock.now() >= sent.after(self.state.validity()) {
                outcome = Err(too_late(operation));
            } else if self.has(&attempt) {
                return outcome.map(|tried| (tried, sent));
            } else {
                outcome = Err(withdrawn());
            }
        }
        self.give_up(&attempt, given).await;
        outcome.map(|tried| (tried, sent))
    }

    async fn attempt_at(
        &self,
        index: usize,
        connection: &Connection,
        attempt: &Arc<Attempt>,
        is_new: bool,
    ) -> Result<Answer> {
        let (dialect, ttl) = (&self.state.dialect, self.state.ttl());
        // Looked at right before each request: what deletes the lock is sent later then, and so arrives later on the same connection.
        let is_wanted = || {
            self.state.alive("enter")?;
            let is_wanted = self.has(attempt) && !attempt.is_given_up.load(Ordering::Acquire);
            if is_wanted { Ok(()) } else { Err(withdrawn()) }
        };
        if let Some(earlier) = attempt.earlier {
            connection.run("enter", &attempt.give_up(dialect, earlier)).await?;
        }
        is_wanted()?;
        let (sent, mut tried) = (self.servers.clock.now(), None);
        if let Some(quick) = attempt.quick(dialect, ttl).filter(|_| is_new) {
            if connection.command("enter", &quick).await? == Value::Okay {
                tried = Some(Tried::Granted(None));
            } else {
                is_wanted()?;
            }
        }
        let tried = match tried {
            Some(granted) => granted,
            None => connection.run("enter", &attempt.acquire(dialect, ttl)).await?,
        };
        // The request can be sent after what deletes the lock all the same: right after the look, and again to a server that did not know
        // the script.
        if matches!(tried, Tried::Granted(_))
            && let Err(unwanted) = is_wanted()
        {
            connection.run("give up", &attempt.give_up(dialect, attempt.number)).await?;
            return Err(unwanted);
        }
        Ok(Answer { tried, counts: self.state.counts(index, sent) })
    }

    /// Deletes an attempt wherever it may be, and waits for those servers that had granted it. A server that cannot be reached keeps it
    /// for a ttl.
    async fn give_up(&self, attempt: &Arc<Attempt>, given: &Given<Answer>) {
        attempt.is_given_up.store(true, Ordering::Release);
        let may_be_at = |index: usize| match &given[index] {
            Some(Ok(answer)) => matches!(answer.tried, Tried::Granted(_)),
            Some(Err(error)) => error.outcome() == crate::error::Outcome::Unknown,
            None => true,
        };
        let granted = given.iter().flatten().flatten().filter(|answer| matches!(answer.tried, Tried::Granted(_)));
        let granted = granted.count();
        let (attempt, dialect) = (Arc::clone(attempt), Arc::clone(&self.state.dialect));
        let asked = self.servers.ask_those(may_be_at, move |_, connection| {
            let call = attempt.give_up(&dialect, attempt.number);
            Box::pin(async move { connection.run("give up", &call).await })
        });
        if let Ok(mut answers) = asked {
            answers.not_for_long();
            answers.until(|given| heard(given) >= granted).await;
        }
    }
}

/// The answers to an attempt, counted.
#[derive(Default)]
struct Count {
    granted: usize,
    /// Granted by servers that have no vote.
    uncounted: usize,
    /// For how long those keep the lock at least who have it.
    refused: Vec<Option<Duration>>,
    /// The types of keys that are no locks.
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
                Tried::Busy(left) => count.refused.push(*left),
                Tried::Other(kind) => count.others.push(kind.clone()),
            }
        }
        count
    }

    fn is_decided(&self, quorum: usize) -> bool {
        // What is refused is said of a majority: who keeps it, and for how long.
        let heard = self.granted + self.uncounted + self.refused.len() + self.others.len();
        let is_told = heard >= quorum || heard + self.open < quorum;
        self.granted >= quorum || (self.granted + self.open < quorum && is_told)
    }

    /// For how long no majority can be had at least.
    fn left(mut self, quorum: usize) -> Option<Duration> {
        self.refused.sort_by_key(|left| left.unwrap_or(Duration::MAX));
        let needed = quorum.saturating_sub(self.granted).max(1);
        self.refused.get(needed - 1).copied().flatten()
    }
}

impl Locks {
    fn outcome(&self, operation: &'static str, given: &Given<Answer>) -> Result<Tried> {
        let (count, quorum) = (Count::of(given), self.servers.quorum());
        if count.granted >= quorum {
            return Ok(Tried::Granted(None));
        }
        if count.others.len() > given.len() - quorum {
            return Ok(Tried::Other(count.others[0].clone()));
        }
        if count.granted + count.refused.len() + count.others.len() >= quorum {
            return Ok(Tried::Busy(count.left(quorum)));
        }
        if heard(given) < quorum {
            return Err(no_quorum(operation, quorum, &self.servers.names, given));
        }
        Err(self.too_few_votes(operation, given))
    }

    /// Enough servers answered, and too few of them have a vote. Says of each that did not grant what can be used why not.
    fn too_few_votes(&self, operation: &'static str, given: &Given<Answer>) -> Error {
        let message = "fewer servers than a majority have a vote: one that was started a moment ago has none until `rejoin_ms` is over, by default the ttl";
        let uncounted = Count::of(given).uncounted;
        let mut error = Error::new(ErrorKind::Unreachable, operation, message)
            .with("majority", self.servers.quorum())
            .with("without a vote", format!("{uncounted} of {}", given.len()));
        for (index, name) in self.servers.names.iter().enumerate() {
            let Some(Ok(answer)) = &given[index] else { continue };
            error = match &answer.tried {
                Tried::Granted(_) if answer.counts => error,
                Tried::Granted(_) => {
                    let left = self.state.counts_in(index).as_secs_f64().ceil();
                    error.with("started anew", format_args!("{name}: has a vote in {left} s"))
                }
                Tried::Busy(_) => error.with("held by another at", name),
                Tried::Other(kind) => error.with("another key at", format_args!("{name}: a {kind}")),
            };
        }
        for (name, why) in missing(&self.servers.names, given) {
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
