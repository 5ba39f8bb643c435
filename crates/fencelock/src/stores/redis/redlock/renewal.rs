//! A renewal of locks at all servers: a lock lives as long as a majority confirms it.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::{join_all, try_join_all};

use super::attempt::{self, Attempt};
use super::inspect;
use super::servers::{Given, heard, open};
use super::session::{LOCKS_PER_CALL, Locks};
use crate::error::Result;
use crate::store::{Loss, PlaceList, Renewal};
use crate::stores::redis::wire::Connection;

/// What one server said of the locks that it was asked to prolong.
struct Prolonged {
    /// By their numbers among all.
    gone: HashSet<usize>,
    /// Whether the server has a vote.
    counts: bool,
}

/// What became of one lock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Confirmed,
    Lost,
    /// Too few answered to tell: the lock keeps the end that it has.
    Unknown,
}

impl Locks {
    pub(super) async fn renew(self: &Arc<Self>, places: &dyn PlaceList) -> Result<Renewal> {
        self.state.alive("renew")?;
        let sent = self.servers.clock.now();
        let (held, mut gone) = self.state.places.held_of(places.all());
        let mut attempts = Vec::new();
        for place in held {
            match self.newest(place.request) {
                Some(attempt) => attempts.push(attempt),
                None => gone.push(place),
            }
        }
        let attempts = Arc::new(attempts);
        let outcomes = self.prolong(&attempts).await?;
        let mut renewal = Renewal::at(sent);
        renewal.gone = gone.into_iter().map(|place| (place, Loss::Removed)).collect();
        let end = sent.after(self.state.validity());
        let mut lost = Vec::new();
        for (attempt, outcome) in attempts.iter().zip(outcomes) {
            match outcome {
                Outcome::Confirmed => {
                    self.state.places.is_valid_until(attempt.place.request, end);
                    renewal.valid.push((attempt.place.clone(), end));
                }
                Outcome::Lost => lost.push(attempt.place.clone()),
                Outcome::Unknown => {}
            }
        }
        if !lost.is_empty() {
            let reasons = async {
                let reasons = lost.iter().map(|place| inspect::broken(&self.servers, &self.state.dialect, place));
                let reasons = join_all(reasons).await.into_iter().map(Result::unwrap_or_default).collect();
                // What is left of them at a minority. Where it cannot be deleted, it stays for a ttl.
                let portions = lost.chunks(LOCKS_PER_CALL);
                join_all(portions.map(|portion| self.delete("renew", portion.to_vec(), false))).await;
                reasons
            };
            let clock = &self.servers.clock;
            // The locks that are still held wait for this renewal to be told as renewed.
            let reasons: Vec<_> = tokio::select! {
                biased;
                reasons = reasons => reasons,
                () = clock.sleep_until(clock.now().after(self.servers.grace)) => lost.iter().map(|_| None).collect(),
            };
            for (place, reason) in lost.into_iter().zip(reasons) {
                if reason.is_none() {
                    renewal.gone.push((place.clone(), Loss::Removed));
                }
                self.state.places.lost(&place, reason);
            }
        }
        self.state.confirm(sent);
        Ok(renewal)
    }

    /// Asks all servers, and says of each lock what a majority said.
    async fn prolong(self: &Arc<Self>, attempts: &Arc<Vec<Arc<Attempt>>>) -> Result<Vec<Outcome>> {
        let (locks, asked) = (Arc::clone(self), Arc::clone(attempts));
        let mut answers = self.servers.ask(move |index, connection| {
            let (locks, attempts) = (Arc::clone(&locks), Arc::clone(&asked));
            Box::pin(async move { locks.prolong_at(index, &connection, &attempts).await })
        })?;
        let quorum = self.servers.quorum();
        let outcomes = |given: &Given<Prolonged>| -> Vec<Outcome> {
            (0..attempts.len()).map(|lock| outcome(given, lock, quorum)).collect()
        };
        let is_decided = |given: &Given<Prolonged>| {
            let is_heard = heard(given) >= quorum && !outcomes(given).contains(&Outcome::Unknown);
            is_heard || heard(given) + open(given) < quorum
        };
        answers.until(is_decided).await;
        answers.of_quorum("renew")?;
        self.state.alive("renew")?;
        Ok(outcomes(answers.given()))
    }

    async fn prolong_at(&self, index: usize, connection: &Connection, attempts: &[Arc<Attempt>]) -> Result<Prolonged> {
        let sent = self.servers.clock.now();
        let mut portions: Vec<&[Arc<Attempt>]> = attempts.chunks(LOCKS_PER_CALL).collect();
        if portions.is_empty() {
            portions.push(&[]);
        }
        let calls = portions.into_iter().map(async |portion| {
            connection.run("renew", &attempt::renew(&self.state.dialect, portion, self.state.ttl())).await
        });
        let mut gone = HashSet::new();
        for (portion, lost) in try_join_all(calls).await?.into_iter().enumerate() {
            gone.extend(lost.into_iter().map(|lock| portion * LOCKS_PER_CALL + lock));
        }
        Ok(Prolonged { gone, counts: self.state.counts(index, sent) })
    }
}

fn outcome(given: &Given<Prolonged>, lock: usize, quorum: usize) -> Outcome {
    let said = given.iter().flatten().flatten();
    let (gone, there): (Vec<_>, Vec<_>) = said.partition(|prolonged| prolonged.gone.contains(&lock));
    if there.iter().filter(|prolonged| prolonged.counts).count() >= quorum {
        Outcome::Confirmed
    } else if gone.len() > given.len() - quorum {
        Outcome::Lost
    } else {
        Outcome::Unknown
    }
}
