//! One try at all masters: who grants it, when that is decided, and what becomes of answers that come later.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use redis::Value;
use tokio::sync::{mpsc, oneshot, watch};

use super::calls::Bid;
use super::fleet::{Given, heard, missing, no_quorum, open};
use super::session::Core;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::try_again::Tried;
use crate::time::Moment;

/// What became of a bid, as those hear who ask the masters for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Open,
    Kept,
}

/// What one master said of a bid.
pub(super) struct Answer {
    tried: Tried,
    /// Whether the master may be relied on: it was not started anew a moment ago.
    counts: bool,
    /// Told once what was granted is given up, or kept.
    settled: Option<oneshot::Receiver<()>>,
}

/// Where those hear of the bid's fate who ask the masters. It is given up when it is dropped undecided.
struct Decision(watch::Sender<Fate>);

impl Core {
    /// Tries at every master, and says what a quorum said, and before which moment it was asked. What is not granted is given up, also
    /// where the answer comes later than the decision, or when nobody waits for it any more.
    pub(super) async fn bid(
        self: &Arc<Self>,
        operation: &'static str,
        bid: Bid,
        is_new: bool,
    ) -> Result<(Tried, Moment)> {
        let bid = Arc::new(bid);
        let sent = self.fleet.clock.now();
        self.is_bidding(&bid)?;
        let (sender, mut answers) = self.fleet.answers();
        let (fate, decided) = watch::channel(Fate::Open);
        let decision = Decision(fate);
        self.fleet.each(|index| {
            let (core, bid) = (Arc::clone(self), Arc::clone(&bid));
            core.bid_at(index, bid, is_new, decided.clone(), sender.clone()).boxed()
        })?;
        drop((sender, decided));
        let quorum = self.fleet.quorum();
        let given = answers.until(|given| Count::of(given).is_decided(quorum)).await;
        let mut outcome = self.outcome(operation, given);
        if matches!(outcome, Ok(Tried::Granted(_))) {
            if self.fleet.clock.now() >= sent.after(self.member.validity()) {
                outcome = Err(too_late(operation));
            } else if self.has(&bid) {
                decision.keep();
                return outcome.map(|tried| (tried, sent));
            } else {
                outcome = Err(withdrawn());
            }
        }
        drop(decision);
        answers.until_done(sent).await;
        // Of a lock that is refused nothing is left where it was granted, although others were silent for so long.
        let settled = answers.taken().into_iter().filter_map(|(_, answer)| answer.settled);
        self.fleet.not_for_long(join_all(settled)).await;
        outcome.map(|tried| (tried, sent))
    }

    /// The whole life of a bid at one master.
    async fn bid_at(
        self: Arc<Self>,
        index: usize,
        bid: Arc<Bid>,
        is_new: bool,
        mut fate: watch::Receiver<Fate>,
        answers: mpsc::UnboundedSender<(usize, Result<Answer>)>,
    ) {
        let mut answer = self.fleet.within(index, self.ask(index, &bid, is_new, &fate)).await;
        let (settles, settled) = oneshot::channel();
        let may_be_there = match &mut answer {
            Ok(answer) => {
                answer.settled = Some(settled);
                matches!(answer.tried, Tried::Granted(_))
            }
            Err(error) => error.outcome() == crate::error::Outcome::Unknown,
        };
        let _ = answers.send((index, answer));
        if !may_be_there {
            return;
        }
        // A contender that leaves the place later than this is heard later by the master, too.
        let is_late = !self.has(&bid);
        if is_late || fate.wait_for(|fate| *fate == Fate::Kept).await.is_err() {
            self.give_up(index, &bid).await;
        }
        // Held until here: who gave the bid up waits for it.
        drop((settles, answers));
    }

    async fn ask(&self, index: usize, bid: &Arc<Bid>, is_new: bool, fate: &watch::Receiver<Fate>) -> Result<Answer> {
        let connection = self.fleet.links[index].connection().await?;
        let dialect = &self.member.dialect;
        if let Some(earlier) = bid.earlier {
            connection.run("enter", &bid.give_up_number(dialect, earlier)).await?;
        }
        // A lock that others granted meanwhile is wanted here, too, as long as it is held: each master that has it is one that may forget it.
        let is_undecided = fate.has_changed().is_ok();
        let is_held = || *fate.borrow() == Fate::Kept && self.has(bid) && self.member.alive("enter").is_ok();
        if !is_undecided && !is_held() {
            return Err(withdrawn());
        }
        let sent = self.fleet.clock.now();
        let ttl = self.member.ttl();
        if let Some(quick) = bid.quick(dialect, ttl).filter(|_| is_new)
            && connection.command("enter", &quick).await? == Value::Okay
        {
            return Ok(Answer { tried: Tried::Granted(None), counts: self.member.counts(index, sent), settled: None });
        }
        let tried = connection.run("enter", &bid.acquire(dialect, ttl)).await?;
        Ok(Answer { tried, counts: self.member.counts(index, sent), settled: None })
    }

    /// Gives up a bid at one master. What cannot be reached keeps it for a ttl.
    pub(super) async fn give_up(&self, index: usize, bid: &Bid) {
        let asked = async {
            let connection = self.fleet.links[index].connection().await?;
            connection.run("give up", &bid.give_up(&self.member.dialect)).await
        };
        if let Err(error) = self.fleet.within(index, asked).await {
            tracing::debug!(%error, name = %bid.place.name, "a bid that came to nothing stays at one of the masters for a ttl");
        }
    }
}

impl Decision {
    fn keep(self) {
        self.0.send_replace(Fate::Kept);
    }
}

/// The answers to a bid, counted.
#[derive(Default)]
struct Count {
    granted: usize,
    /// Granted by masters that are not counted.
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
        // What is refused is said of a quorum: who keeps it, and for how long.
        let heard = self.granted + self.uncounted + self.refused.len() + self.others.len();
        let is_told = heard >= quorum || heard + self.open < quorum;
        self.granted >= quorum || (self.granted + self.open < quorum && is_told)
    }

    /// For how long no quorum can be had at least.
    fn left(mut self, quorum: usize) -> Option<Duration> {
        self.refused.sort_by_key(|left| left.unwrap_or(Duration::MAX));
        let needed = quorum.saturating_sub(self.granted).max(1);
        self.refused.get(needed - 1).copied().flatten()
    }
}

impl Core {
    fn outcome(&self, operation: &'static str, given: &Given<Answer>) -> Result<Tried> {
        let (count, quorum) = (Count::of(given), self.fleet.quorum());
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
            return Err(no_quorum(operation, quorum, &self.fleet.names, given));
        }
        Err(self.too_few_count(operation, given))
    }

    /// Enough masters answered, and too few of them are relied on. Says of each that did not grant what can be used why not.
    fn too_few_count(&self, operation: &'static str, given: &Given<Answer>) -> Error {
        let message = "fewer masters than a quorum count: those that were started a moment ago are not counted until `rejoin_ms` is over, by default the ttl";
        let uncounted = Count::of(given).uncounted;
        let mut error = Error::new(ErrorKind::Unreachable, operation, message)
            .with("quorum", self.fleet.quorum())
            .with("not counted", format!("{uncounted} of {}", given.len()));
        for (index, name) in self.fleet.names.iter().enumerate() {
            let Some(Ok(answer)) = &given[index] else { continue };
            error = match &answer.tried {
                Tried::Granted(_) if answer.counts => error,
                Tried::Granted(_) => {
                    let left = self.member.counts_in(index).as_secs_f64().ceil();
                    error.with("started anew", format_args!("{name}: counts in {left} s"))
                }
                Tried::Busy(_) => error.with("held by another at", name),
                Tried::Other(kind) => error.with("another key at", format_args!("{name}: a {kind}")),
            };
        }
        for (name, why) in missing(&self.fleet.names, given) {
            error = error.with("missing", format_args!("{name}: {why}"));
        }
        error.retryable().outcome_unknown()
    }
}

fn too_late(operation: &'static str) -> Error {
    let message = "a quorum of the masters granted the lock, but so late that its time was over";
    Error::new(ErrorKind::Unreachable, operation, message).retryable().outcome_unknown()
}

pub(super) fn withdrawn() -> Error {
    Error::new(ErrorKind::Unreachable, "enter", "the request was taken back").retryable()
}
