//! A renewal of locks at all masters: a quorum confirms a lock, and a master that lost it, or never had it, gets it.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::sync::{mpsc, watch};

use super::calls::{self, Bid};
use super::fleet::{Given, heard, open};
use super::session::Core;
use super::show;
use crate::error::{Error, Result};
use crate::kit::try_again::Tried;
use crate::store::{Loss, PlaceId, PlaceList, Renewal};

/// How many locks one script renews; the calls for all of them are on their way at once.
const LOCKS_PER_CALL: usize = 256;

/// What one master said of the locks that it was asked to prolong.
struct Prolonged {
    /// By their numbers among all.
    gone: HashSet<usize>,
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

/// Which locks are confirmed, for those who asked the masters; `None` as long as that is not decided.
type Confirmed = Option<Arc<HashSet<usize>>>;

impl Core {
    pub(super) async fn renew(self: &Arc<Self>, places: &dyn PlaceList) -> Result<Renewal> {
        self.member.alive("renew")?;
        let sent = self.fleet.clock.now();
        let (held, mut gone) = self.member.lines.held_of(places.all());
        let mut bids = Vec::new();
        for place in held {
            match self.newest(place.request) {
                Some(bid) => bids.push(bid),
                None => gone.push(place),
            }
        }
        let bids = Arc::new(bids);
        let (decision, decided) = watch::channel(None);
        let outcomes = self.prolong(&bids, decided).await?;
        let mut renewal = Renewal::at(sent);
        renewal.gone = gone.into_iter().map(|place| (place, Loss::Removed)).collect();
        let end = sent.after(self.member.validity());
        let mut lost = Vec::new();
        for (bid, outcome) in bids.iter().zip(&outcomes) {
            match outcome {
                Outcome::Confirmed => {
                    self.member.lines.is_valid_until(bid.place.request, end);
                    renewal.valid.push((bid.place.clone(), end));
                }
                Outcome::Lost => lost.push(bid.place.clone()),
                Outcome::Unknown => {}
            }
        }
        let confirmed = (0..bids.len()).filter(|index| outcomes[*index] == Outcome::Confirmed).collect();
        decision.send_replace(Some(Arc::new(confirmed)));
        self.are_lost(lost, &mut renewal).await;
        self.member.confirm(sent);
        Ok(renewal)
    }

    /// Asks all masters, and says of each lock what a quorum said.
    async fn prolong(
        self: &Arc<Self>,
        bids: &Arc<Vec<Arc<Bid>>>,
        decided: watch::Receiver<Confirmed>,
    ) -> Result<Vec<Outcome>> {
        let (sender, mut answers) = self.fleet.answers();
        self.fleet.each(|index| {
            let (core, bids) = (Arc::clone(self), Arc::clone(bids));
            core.renew_at(index, bids, decided.clone(), sender.clone()).boxed()
        })?;
        drop((sender, decided));
        let quorum = self.fleet.quorum();
        let outcomes = |given: &Given<Prolonged>| -> Vec<Outcome> {
            (0..bids.len()).map(|lock| outcome(given, lock, quorum)).collect()
        };
        let is_decided = |given: &Given<Prolonged>| {
            let is_heard = heard(given) >= quorum && !outcomes(given).contains(&Outcome::Unknown);
            is_heard || heard(given) + open(given) < quorum
        };
        answers.until(is_decided).await;
        answers.of_quorum("renew")?;
        self.member.alive("renew")?;
        Ok(outcomes(answers.given()))
    }

    /// The whole of a renewal at one master.
    async fn renew_at(
        self: Arc<Self>,
        index: usize,
        bids: Arc<Vec<Arc<Bid>>>,
        mut decided: watch::Receiver<Confirmed>,
        answers: mpsc::UnboundedSender<(usize, Result<Prolonged>)>,
    ) {
        let prolonged = self.fleet.within(index, self.prolong_at(index, &bids)).await;
        let gone = prolonged.as_ref().map(|prolonged| prolonged.gone.clone()).unwrap_or_default();
        let _ = answers.send((index, prolonged));
        drop(answers);
        if gone.is_empty() {
            return;
        }
        let confirmed = decided.wait_for(Option::is_some).await.ok().and_then(|decided| decided.clone());
        let confirmed = confirmed.unwrap_or_default();
        let absent = gone.iter().filter(|lock| confirmed.contains(lock)).map(|lock| Arc::clone(&bids[*lock]));
        let restored = absent.map(async |bid| {
            if let Err(error) = self.restore(index, &bid).await {
                tracing::debug!(%error, name = %bid.place.name, "a lock is not restored at one of the masters");
            }
        });
        join_all(restored).await;
    }

    async fn prolong_at(&self, index: usize, bids: &[Arc<Bid>]) -> Result<Prolonged> {
        let connection = self.fleet.links[index].connection().await?;
        let sent = self.fleet.clock.now();
        let mut portions: Vec<&[Arc<Bid>]> = bids.chunks(LOCKS_PER_CALL).collect();
        if portions.is_empty() {
            portions.push(&[]);
        }
        let calls = portions.into_iter().map(|portion| {
            let call = calls::renew(&self.member.dialect, portion, self.member.ttl());
            let connection = &connection;
            async move { connection.run("renew", &call).await }
        });
        let mut gone = HashSet::new();
        for (portion, lost) in join_all(calls).await.into_iter().enumerate() {
            gone.extend(lost?.into_iter().map(|lock| portion * LOCKS_PER_CALL + lock));
        }
        Ok(Prolonged { gone, counts: self.member.counts(index, sent) })
    }

    /// Gives a lock that a quorum confirmed to a master which does not have it: the next renewal counts it there.
    async fn restore(&self, index: usize, bid: &Arc<Bid>) -> Result<()> {
        if !self.has(bid) {
            return Ok(());
        }
        let restored: Result<Tried> = self
            .fleet
            .within(index, async {
                let connection = self.fleet.links[index].connection().await?;
                connection.run("renew", &bid.acquire(&self.member.dialect, self.member.ttl())).await
            })
            .await;
        // Given up meanwhile, it may have been deleted here before it was restored.
        if !self.has(bid) {
            self.give_up(index, bid).await;
        }
        restored.map(drop)
    }

    /// Tells of locks that no quorum has any more, and why, and clears away what is left of them.
    async fn are_lost(self: &Arc<Self>, lost: Vec<PlaceId>, renewal: &mut Renewal) {
        if lost.is_empty() {
            return;
        }
        let reasons = lost.iter().map(|place| show::broken(&self.fleet, &self.member.dialect, place));
        let reasons = join_all(reasons).await;
        let _: Result<usize, Error> = self.delete("renew", lost.clone(), false).await;
        for (place, reason) in lost.into_iter().zip(reasons) {
            let reason = reason.unwrap_or_default();
            if reason.is_none() {
                renewal.gone.push((place.clone(), Loss::Removed));
            }
            self.member.lines.lost(&place, reason);
        }
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
