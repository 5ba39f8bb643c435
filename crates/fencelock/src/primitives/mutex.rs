//! The mutex: one holder at a time.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::Guard;
use crate::client::Client;
use crate::engine::acquire::{Wait, Wish, acquire};
use crate::engine::hold::Hold;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::queue::Claim;
use crate::store::Entry;

/// A mutex over all processes that use the same store and name. Cheap to clone; holds nothing until acquired.
///
/// What it does *not* promise: a process that is paused past its session's ttl cannot know that it lost the lock until
/// it looks. Pass [`Guard::token`] to whatever the lock protects.
///
/// # Fairness
/// First come, first served by the order in which the store took the arrivals, where
/// [`Capability::order`](crate::Capability) says so.
#[derive(Debug, Clone)]
pub struct Mutex {
    client: Client,
    wish: Wish,
    fault: Option<&'static str>,
}

impl Mutex {
    pub(crate) fn new(client: Client, name: Name) -> Self {
        let wish = Wish {
            name,
            claim: Claim::MUTEX,
            wait: Wait::Forever,
            purpose: None,
            lease: None,
            max_hold: None,
            max_waiters: None,
        };
        Self { client, wish, fault: None }
    }

    /// What the lock is taken for, shown to others: up to 512 bytes without control characters.
    #[must_use]
    pub fn purpose(mut self, purpose: impl AsRef<str>) -> Self {
        let purpose = purpose.as_ref();
        if purpose.len() > Entry::MAX_PURPOSE || purpose.chars().any(char::is_control) {
            self.fault = Some("a purpose has at most 512 bytes and no control characters");
        }
        self.wish.purpose = Some(purpose.into());
        self
    }

    /// How long [`Mutex::acquire`] waits at most; without limit by default.
    #[must_use]
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wish.wait = Wait::For(limit);
        self
    }

    /// Gives the lock back this long after the request that was granted was sent, or, after a wait, after the grant was
    /// heard of, renewed or not: the guard is lost then, with [`Loss::LeaseOver`](crate::Loss::LeaseOver). 1 ms or more.
    /// The death of the process frees it earlier. The end has no margin: what runs under the lock is told as the lock is
    /// given back.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.check_duration(lease);
        self.wish.lease = Some(lease);
        self
    }

    /// The longest that one grant may be held: the guard is lost then, with
    /// [`Loss::HeldTooLong`](crate::Loss::HeldTooLong). 1 ms or more.
    #[must_use]
    pub fn max_hold(mut self, most: Duration) -> Self {
        self.check_duration(most);
        self.wish.max_hold = Some(most);
        self
    }

    /// Refuses to queue behind this many waiters (the holder not counted), with [`ErrorKind::QueueFull`].
    #[must_use]
    pub fn max_waiters(mut self, most: u32) -> Self {
        self.wish.max_waiters = Some(most);
        self
    }

    fn check_duration(&mut self, duration: Duration) {
        if duration < Duration::from_millis(1) {
            self.fault = Some("a lease and max_hold are at least 1 ms");
        }
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.wish.name
    }

    /// Acquires the lock, waiting as long as [`Mutex::wait`] allows.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] after the wait limit, naming the holder; [`ErrorKind::QueueFull`],
    /// [`ErrorKind::Conflict`], [`ErrorKind::Config`] for an option that is not valid, and whatever the store says once
    /// retrying is over.
    ///
    /// # Cancel safety
    /// Dropping the future at any point leaves nothing in the store once clean-up has run in the background.
    pub async fn acquire(&self) -> Result<Guard> {
        self.acquire_waiting(self.wish.wait).await
    }

    /// Acquires the lock, waiting at most `limit`. With zero it gives up as soon as the
    /// store does not answer on the spot; [`Mutex::try_acquire`] asks whether the lock is free.
    ///
    /// # Errors
    /// As [`Mutex::acquire`].
    ///
    /// # Cancel safety
    /// As [`Mutex::acquire`].
    pub async fn acquire_within(&self, limit: Duration) -> Result<Guard> {
        self.acquire_waiting(Wait::For(limit)).await
    }

    /// Acquires the lock if nobody is ahead, and never queues.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] when somebody is ahead, naming the holder; otherwise as [`Mutex::acquire`].
    ///
    /// # Cancel safety
    /// As [`Mutex::acquire`].
    pub async fn try_acquire(&self) -> Result<Guard> {
        self.acquire_waiting(Wait::No).await
    }

    /// One more guard of a hold of this mutex.
    pub(crate) fn guard_of(&self, hold: &Arc<Hold>) -> Result<Guard> {
        Guard::share(hold, self.client.lifeline())
    }

    async fn acquire_waiting(&self, wait: Wait) -> Result<Guard> {
        if let Some(fault) = self.fault {
            return Err(Error::new(ErrorKind::Config, "acquire", fault).with("name", &self.wish.name));
        }
        let engine = Arc::clone(self.client.engine());
        // Not kept alive by the work: who drops the call and the client waits for the clean-up of both.
        let lifeline = Arc::downgrade(self.client.lifeline());
        let wish = Wish { wait, ..self.wish.clone() };
        let spawner = engine.spawner.clone();
        spawner.run(async move { Guard::of_acquired(acquire(engine, wish).await?, &lifeline) }).await
    }

    /// Acquires the lock, runs `body` under it, and releases it, however `body` ends.
    ///
    /// When the lock is lost, or not certain any more (the margin is reached), `body` is dropped at its next await and
    /// the result is [`ErrorKind::Lost`]. That cannot stop blocking code or requests already sent: pass the guard's
    /// token to the resource.
    ///
    /// # Errors
    /// As [`Mutex::acquire`]; [`ErrorKind::Lost`]. A failed release is not reported here: it goes on in the background.
    ///
    /// # Cancel safety
    /// Dropping the future drops `body` and releases the lock in the background.
    pub async fn run<T, F, Fut>(&self, body: F) -> Result<T>
    where
        F: FnOnce(Guard) -> Fut,
        Fut: Future<Output = T>,
    {
        self.acquire().await?.run(body).await
    }
}
