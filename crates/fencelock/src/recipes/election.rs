//! Elections: at most one leader at a time among candidates.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use futures_util::stream;

use crate::client::Client;
use crate::error::{Error, ErrorKind, Result};
use crate::primitives::{Guard, Mutex};
use crate::store::{Loss, Note, Owner};
use crate::token::FencingToken;

/// How often an observer looks anew when the leader changed between its two requests.
const LOOKS: usize = 3;

/// An election: of all candidates for a name, one leads at a time. The leader holds a [`Mutex`] of that name while it leads; every client
/// that acquires that mutex is a candidate, too.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> fencelock::Result<()> {
/// # let client = fencelock::Client::connect("memory:").await?;
/// let election = client.election("scheduler")?.address("10.0.0.7:8080");
/// let leader = election.campaign().await?; // waits until it is our turn
/// let seen = election.leader().await?.expect("we lead");
/// assert_eq!((seen.term, seen.address.as_deref()), (leader.term(), Some(&b"10.0.0.7:8080"[..])));
/// let done = leader.run(async |_term| "all jobs of this term").await?; // dropped when we must step down
/// assert_eq!(election.leader().await?, None);
/// # assert_eq!(done, "all jobs of this term");
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Election {
    lock: Mutex,
    address: Option<Arc<[u8]>>,
}

/// The leader, as an observer sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leading {
    /// The leader's client, where the store names it.
    pub owner: Option<Owner>,
    /// The term: the fencing token of the leader's grant.
    pub term: Option<FencingToken>,
    /// The leader's address, if it gave one and the store keeps notes.
    pub address: Option<Arc<[u8]>>,
}

impl Client {
    /// The election `name`: candidates, one leader, and observers.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`].
    pub fn election(&self, name: impl AsRef<str>) -> Result<Election> {
        Ok(Election { lock: self.mutex(name)?, address: None })
    }
}

impl Election {
    /// The address of the leader: up to 4,096 bytes, the [note](Guard::write_note) on the lock, which [`Election::leader`] shows.
    #[must_use]
    pub fn address(self, address: impl AsRef<[u8]>) -> Self {
        Self { address: Some(address.as_ref().into()), ..self }
    }

    /// The purpose of the candidate, visible to other clients: up to 512 bytes without control characters.
    #[must_use]
    pub fn purpose(self, purpose: impl AsRef<str>) -> Self {
        Self { lock: self.lock.purpose(purpose), ..self }
    }

    /// Waits until this candidate leads.
    ///
    /// # Errors
    /// As [`Mutex::acquire`]; with an address also [`ErrorKind::Unsupported`] where [`Capability::notes`](crate::capability::Capability) is false, and
    /// as [`Guard::write_note`]. After an error we do not lead.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the candidate, in the background.
    pub async fn campaign(&self) -> Result<Leader> {
        self.campaign_within(Duration::MAX).await
    }

    /// Waits until this candidate leads, for `limit` at most.
    ///
    /// # Errors
    /// As [`Election::campaign`]; [`ErrorKind::TimedOut`].
    ///
    /// # Cancel safety
    /// As [`Election::campaign`].
    pub async fn campaign_within(&self, limit: Duration) -> Result<Leader> {
        if self.address.is_some() && !self.client().capability().notes {
            let message = "the store keeps no notes, so that no leader can tell its address there";
            return Err(Error::new(ErrorKind::Unsupported, "election", message).with("name", self.lock.name()));
        }
        let guard = self.lock.acquire_within(limit).await?;
        if let Some(address) = &self.address {
            guard.write_note(address, None).await?;
        }
        Ok(Leader { guard, has_address: self.address.is_some() })
    }

    /// Returns the present leader, if any. Takes a request, and one more where the store keeps notes.
    ///
    /// An address is shown only if the present leader wrote it: not one that was left by its predecessor.
    ///
    /// # Errors
    /// As [`Client::contention`].
    pub async fn leader(&self) -> Result<Option<Leading>> {
        let (client, name) = (self.client(), self.lock.name());
        let mut seen = None;
        for _ in 0..LOOKS {
            let holder = client.contention(name).await?.holder;
            seen = holder.map(|holder| Leading {
                owner: holder.owner,
                term: holder.grant.and_then(|grant| grant.token),
                address: None,
            });
            let (Some(leading), true) = (&mut seen, client.capability().notes) else { break };
            match client.note(name).await?.note {
                Some(Note { token, value, .. }) if token == leading.term => leading.address = Some(value),
                // The note has a later term: the leader has changed since.
                Some(note) if note.token > leading.term => continue,
                _ => {}
            }
            break;
        }
        Ok(seen)
    }

    /// A stream of the present leader and each new one. The stream looks every `every` (1 ms or more), so a leader with a shorter term may
    /// be missed. A series of failed looks is reported once, and the stream continues.
    pub fn leaders(&self, every: Duration) -> impl Stream<Item = Result<Option<Leading>>> + Send + use<> {
        struct Observed {
            election: Election,
            /// The last item of the stream: `None` at first, then an error or a leader.
            reported: Option<Option<Option<Leading>>>,
        }
        let every = every.max(Duration::from_millis(1));
        let first = Observed { election: self.clone(), reported: None };
        stream::unfold(first, move |mut observed| async move {
            let engine = Arc::clone(observed.election.client().engine());
            let mut is_first = observed.reported.is_none();
            loop {
                if !is_first {
                    engine.sleep_until(engine.clock.now().after(every)).await;
                }
                is_first = false;
                let seen = observed.election.leader().await;
                let now = Some(seen.as_ref().ok().cloned());
                if now != observed.reported {
                    observed.reported = now;
                    return Some((seen, observed));
                }
            }
        })
    }

    fn client(&self) -> &Client {
        self.lock.client()
    }
}

/// Leadership, until it is resigned or lost. Dropping this resigns in the background.
#[derive(Debug)]
#[must_use = "a leader that is dropped resigns"]
pub struct Leader {
    guard: Guard,
    has_address: bool,
}

impl Leader {
    /// The term: a fencing token, higher than that of every leader before. Pass it to every resource that the leader writes. `None` only
    /// where [`Capability::tokens`](crate::capability::Capability) says there are none.
    #[must_use]
    pub fn term(&self) -> Option<FencingToken> {
        self.guard.token()
    }

    /// `Ok` while the leader certainly leads. Never blocks. The answer is right even just after a pause.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] with the cause.
    pub fn check(&self) -> Result<()> {
        self.guard.check()
    }

    /// Completes when the leader must stop: when leadership was lost, or half a renew interval before it becomes uncertain without a
    /// renewal. Returns the cause of the loss, or `None` before a loss: then there is that much time to stop and resign.
    ///
    /// # Cancel safety
    /// May be dropped and asked again.
    pub async fn must_step_down(&self) -> Option<Loss> {
        let engine = self.guard.engine();
        let lapsing = async {
            loop {
                let spare = self.to_spare();
                if spare.is_zero() {
                    return;
                }
                engine.sleep_until(engine.clock.now().after(spare)).await;
            }
        };
        tokio::select! {
            biased;
            loss = self.guard.lost() => Some(loss),
            () = lapsing => match self.guard.state() {
                crate::GuardState::Lost(loss) => Some(loss),
                _ => None,
            },
        }
    }

    /// The least time until we must stop leading.
    pub(crate) fn to_spare(&self) -> Duration {
        self.guard.remaining().saturating_sub(self.guard.engine().timing.renew_interval / 2)
    }

    /// Runs `body` while we lead, with the term, and resigns when it has ended. Once we [must step down](Leader::must_step_down), `body` is
    /// dropped at its next await; blocking code and requests that were sent already do not stop.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] when we had to step down, or lost leadership while `body` ran.
    ///
    /// # Cancel safety
    /// Dropping the future drops `body` and resigns in the background.
    pub async fn run<T, F, Fut>(self, body: F) -> Result<T>
    where
        F: FnOnce(Option<FencingToken>) -> Fut,
        Fut: Future<Output = T>,
    {
        self.check()?;
        let body = body(self.term());
        let output = tokio::select! {
            biased;
            _ = self.must_step_down() => None,
            output = body => Some(output),
        };
        self.check()?;
        let name = self.guard.name().clone();
        match (self.resign().await, output) {
            (Err(error), _) if error.kind() == ErrorKind::Lost => Err(error),
            (_, Some(output)) => Ok(output),
            (_, None) => {
                let message = "leadership could not be renewed, and was resigned before it became uncertain";
                Err(Error::new(ErrorKind::Lost, "election", message).with("name", name))
            }
        }
    }

    /// Resigns: the next candidate leads at once. Our address is deleted, where we gave one.
    ///
    /// # Errors
    /// As [`Guard::release`].
    ///
    /// # Cancel safety
    /// Dropping the future resigns in the background.
    pub async fn resign(self) -> Result<()> {
        if self.has_address && self.guard.delete_note().await.is_err() {
            // A failed deletion leaves an address of an ended term, which observers skip.
        }
        self.guard.release().await
    }

    /// The guard underneath, for code that takes one.
    pub fn into_guard(self) -> Guard {
        self.guard
    }
}
