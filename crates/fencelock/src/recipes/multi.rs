//! Several mutexes that are acquired together.

use std::future::Future;
use std::time::Duration;

use futures_util::future::{join_all, select_all, try_join_all};

use crate::client::Client;
use crate::engine::Engine;
use crate::engine::hold::GuardState;
use crate::error::{Error, ErrorKind, Result};
use crate::primitives::{AnyGuard, Guard, GuardError, Mutex};
use crate::store::Loss;
use crate::time::Moment;
use crate::token::FencingToken;

/// Several mutexes that are acquired together: all of them, or none.
///
/// Every caller takes them in one global order, that of their [keys](Client::key), so that two callers never wait for each other. A caller
/// that takes some of them one by one does so in that order as well, or waits for one while it holds none. Names that are one lock in
/// their store are refused.
///
/// The client first tries all locks at once, without waiting; free ones cost one round trip together. Then it waits for each taken lock in
/// turn, and meanwhile holds the locks before it in the order, and none behind it. So a wait for a name blocks other clients from the names
/// before it, and each taken name costs a round trip of its own.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> fencelock::Result<()> {
/// # let client = fencelock::Client::connect("memory:").await?;
/// let transfer = client.multi_lock(["account/7", "account/3"])?;
/// let both = transfer.acquire().await?;
/// assert!(client.mutex("account/3")?.try_acquire().await.is_err());
/// both.check()?;
/// both.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct MultiLock {
    /// The locks, in the order of their names.
    locks: Vec<Mutex>,
    limit: Duration,
}

impl Client {
    /// The mutexes `names` as one lock: an acquire gets all of them or none. 1 to 1,000 names, each once, in any order.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`]; [`ErrorKind::Config`] for no name, more than 1,000, and one that is given twice.
    pub fn multi_lock<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Result<MultiLock> {
        // A single name above the limit is enough to refuse.
        let names = names.into_iter().take(MultiLock::MAX_LOCKS + 1);
        MultiLock::new(names.map(|name| self.mutex(name)).collect::<Result<Vec<_>>>()?)
    }
}

impl MultiLock {
    /// The most locks that can be taken together.
    pub const MAX_LOCKS: usize = 1_000;

    /// A multi-lock of 1 to 1,000 `locks`. They may be of several clients and so of several stores. All users of a lock must take it by the same name
    /// through the same URL: only a common order prevents a deadlock. Their own [`Mutex::timeout`] is not used, their other options are.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for no lock, more than 1,000, and a name that is given twice.
    pub fn new(locks: impl IntoIterator<Item = Mutex>) -> Result<Self> {
        let mut locks: Vec<_> = locks.into_iter().take(Self::MAX_LOCKS + 1).collect();
        let wrong = |what: String| Err(Error::new(ErrorKind::Config, "multi-lock", what));
        if locks.is_empty() || locks.len() > Self::MAX_LOCKS {
            let count = if locks.is_empty() { "no lock is" } else { "too many locks are" };
            return wrong(format!("{count} named; 1 to {} can be taken together", Self::MAX_LOCKS));
        }
        locks.sort_by(|one, other| one.name().cmp(other.name()));
        if let Some(twice) = locks.windows(2).find(|pair| pair[0].name() == pair[1].name()) {
            return wrong(format!("the lock {:?} is named twice; name each once", twice[0].name().as_str()));
        }
        Ok(Self { locks, limit: Duration::MAX })
    }

    /// Adds the new locks of names that move to another store: each is acquired after the old lock of its name.
    pub(super) fn and_moved(mut self, new_ones: Vec<Mutex>) -> Self {
        self.locks.extend(new_ones);
        // The sort is stable.
        self.locks.sort_by(|one, other| one.name().cmp(other.name()));
        self
    }

    /// The engine of the client of its first lock.
    fn engine(&self) -> &Engine {
        self.locks[0].client().engine()
    }

    /// The wait limit of an acquire, for all locks together; without limit by default.
    #[must_use]
    pub fn timeout(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// The purpose of the locks, visible to other clients: up to 512 bytes without control characters.
    #[must_use]
    pub fn purpose(self, purpose: impl AsRef<str>) -> Self {
        let locks = self.locks.into_iter().map(|lock| lock.purpose(purpose.as_ref())).collect();
        Self { locks, ..self }
    }

    /// Refuses every grant without a fencing token; see [`Mutex::require_token`].
    #[must_use]
    pub fn require_token(self) -> Self {
        Self { locks: self.locks.into_iter().map(Mutex::require_token).collect(), ..self }
    }

    /// Acquires all locks, waiting as long as [`MultiLock::timeout`] allows.
    ///
    /// After a failure none of them is held. They are released before this returns, unless a store does not confirm that within the request
    /// deadline.
    ///
    /// # Errors
    /// As [`Mutex::acquire`], naming the failed lock; [`ErrorKind::Config`] for two names of one lock; [`ErrorKind::Lost`] if one was lost meanwhile.
    ///
    /// # Cancel safety
    /// As [`Mutex::acquire`], for all of them.
    pub async fn acquire(&self) -> Result<MultiGuard> {
        self.acquire_within(self.limit).await
    }

    /// Acquires all locks, waiting at most `limit` for all of them together. With zero it sends a single request for each, one after
    /// another, and never queues; a taken lock is [`ErrorKind::TimedOut`] then.
    ///
    /// # Errors and cancel safety
    /// As [`MultiLock::acquire`].
    pub async fn acquire_within(&self, limit: Duration) -> Result<MultiGuard> {
        let clock = &self.engine().clock;
        let deadline = clock.now().after(limit);
        let (order, locks) = self.ordered().await?;
        let mut held = MultiGuard { guards: Vec::with_capacity(locks.len()) };
        if !limit.is_zero() && locks.len() > 1 {
            self.take_what_is_free(&locks, &mut held, deadline).await?;
        }
        for lock in &locks[held.guards.len()..] {
            // Past the deadline, a last request finds the holder.
            held.add(lock, lock.acquire_within(deadline.since(clock.now()))).await?;
        }
        held.if_all_hold(order).await
    }

    /// The locks in the order of their keys, in which every caller takes them, and the position of each in the order of the names.
    async fn ordered(&self) -> Result<(Vec<usize>, Vec<&Mutex>)> {
        let keys = match &self.locks[..] {
            [_] => vec![String::new()],
            locks => try_join_all(locks.iter().map(|lock| lock.client().key(lock.name()))).await?,
        };
        let mut ordered: Vec<_> = keys.into_iter().zip(self.locks.iter().enumerate()).collect();
        ordered.sort_by(|(one, _), (other, _)| one.cmp(other));
        for pair in ordered.windows(2) {
            let [one, other] = [0, 1].map(|at| pair[at].1.1);
            // A name that moves may have the same key in both stores.
            if pair[0].0 == pair[1].0 && one.name() != other.name() {
                let message = "two of the names have one key in their store, and are one lock: name one of them";
                let error = Error::new(ErrorKind::Config, "multi-lock", message);
                return Err(error.with("name", one.name()).with("name", other.name()));
            }
        }
        Ok(ordered.into_iter().map(|(_, lock)| lock).unzip())
    }

    /// Acquires all locks if no contender is ahead on any of them, and never queues. Tries them one after another, so that of two callers
    /// that try at the same time one gets them; each costs a round trip.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] when a contender is ahead on one of them, naming the holder; otherwise as [`MultiLock::acquire`].
    ///
    /// # Cancel safety
    /// As [`MultiLock::acquire`].
    pub async fn try_acquire(&self) -> Result<MultiGuard> {
        let (order, locks) = self.ordered().await?;
        let mut held = MultiGuard { guards: Vec::with_capacity(locks.len()) };
        for lock in locks {
            held.add(lock, lock.try_acquire()).await?;
        }
        held.if_all_hold(order).await
    }

    /// Tries all locks at once without queueing, and keeps the locks before the first failure. The locks behind it are released.
    async fn take_what_is_free(&self, locks: &[&Mutex], held: &mut MultiGuard, deadline: Moment) -> Result<()> {
        let clock = &self.engine().clock;
        let limit = deadline.since(clock.now());
        let tried = join_all(locks.iter().map(|lock| lock.try_within(limit))).await;
        let is_late = clock.now() >= deadline;
        let (mut behind, mut is_behind, mut fault) = (MultiGuard { guards: Vec::new() }, false, None);
        for (lock, tried) in locks.iter().zip(tried) {
            match tried {
                Ok(guard) if is_behind => behind.guards.push(guard.into_any()),
                Ok(guard) => held.guards.push(guard.into_any()),
                Err(error) => {
                    is_behind = true;
                    // For a held lock, or an outage, the call waits in its turn, if there is time.
                    let is_refusal = !error.is_contention() && !error.is_retryable();
                    if is_refusal || (is_late && error.kind() != ErrorKind::Busy) {
                        fault.get_or_insert_with(|| error.with("name", lock.name()));
                    }
                }
            }
        }
        behind.give_back().await;
        match fault {
            Some(fault) => {
                held.give_back().await;
                Err(fault)
            }
            None => Ok(()),
        }
    }

    /// Acquires all locks, runs `body` under them, and releases them, however `body` ends; see [`Mutex::run`]. When one of them is lost,
    /// `body` is dropped at its next await.
    ///
    /// # Errors
    /// As [`MultiLock::acquire`]; [`ErrorKind::Lost`]. A failed release is not reported here: the client retries it in the background.
    ///
    /// # Cancel safety
    /// Dropping the future drops `body` and releases the locks in the background.
    pub async fn run<T, F, Fut>(&self, body: F) -> Result<T>
    where
        F: FnOnce(MultiGuard) -> Fut,
        Fut: Future<Output = T>,
    {
        self.acquire().await?.run(body).await
    }
}

/// Several held locks: the loss of one is the loss of all.
///
/// Dropping it releases all of them, each as [`Guard`] does. [`MultiLock`] makes it, and `From` converts a single guard.
#[must_use = "a guard that is dropped releases its locks"]
#[derive(Debug)]
pub struct MultiGuard {
    /// The guards, in the order of the names.
    guards: Vec<AnyGuard>,
}

impl MultiGuard {
    /// The guard of each lock, in the byte order of the names; a name that [moves](super::Router::migrate) has one in each store.
    pub fn guards(&self) -> &[AnyGuard] {
        &self.guards
    }

    /// The fencing token of the lock `name`; `None` if that lock is not among these, or the store has no tokens. A name
    /// that [moves](super::Router::migrate) has the new store's token.
    #[must_use]
    pub fn token(&self, name: impl AsRef<str>) -> Option<FencingToken> {
        self.guards.iter().rfind(|guard| guard.name().as_str() == name.as_ref())?.token()
    }

    /// The present state of the locks: the worst state of any. Never blocks.
    #[must_use]
    pub fn state(&self) -> GuardState {
        let states = self.guards.iter().map(Guard::state);
        states
            .max_by_key(|state| match state {
                GuardState::Held => 0,
                GuardState::Suspect => 1,
                GuardState::Released => 2,
                GuardState::Lost(_) => 3,
            })
            .unwrap_or(GuardState::Released)
    }

    /// The time that all locks are still valid: the shortest of all; see [`Guard::remaining`].
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guards.iter().map(Guard::remaining).min().unwrap_or_default()
    }

    /// `Ok` while all locks are certainly held.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] with the cause and the name of the lock that was lost.
    pub fn check(&self) -> Result<()> {
        self.guards.iter().try_for_each(|guard| guard.check().map_err(|error| error.with("name", guard.name())))
    }

    /// The first of the locks that is lost, in the order of the names.
    #[must_use]
    pub fn lost_guard(&self) -> Option<&AnyGuard> {
        self.guards.iter().find(|guard| matches!(guard.state(), GuardState::Lost(_)))
    }

    /// Completes with the cause when one of the locks is lost; the other locks are held until this guard is released or dropped.
    ///
    /// # Cancel safety
    /// May be dropped and asked again.
    pub async fn lost(&self) -> Loss {
        if self.guards.is_empty() {
            return std::future::pending().await;
        }
        select_all(self.guards.iter().map(|guard| Box::pin(guard.lost()))).await.0
    }

    /// Releases all locks, at the same time.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] when one of them was lost before; otherwise errors of the store. See [`Guard::release`].
    ///
    /// # Cancel safety
    /// Dropping the future releases the locks in the background.
    pub async fn release(self) -> Result<()> {
        Ok(self.release_or_keep().await?)
    }

    /// As [`MultiGuard::release`], for callers that retry a failed release themselves: the error has the locks that were not released.
    ///
    /// # Errors
    /// [`GuardError`], of the same kinds.
    ///
    /// # Cancel safety
    /// As [`MultiGuard::release`].
    pub async fn release_or_keep(self) -> Result<(), GuardError<Self>> {
        let released = join_all(self.guards.into_iter().map(Guard::release_or_keep)).await;
        let (mut errors, mut guards) = (Vec::new(), Vec::new());
        for failed in released.into_iter().filter_map(Result::err) {
            let guard_error = failed.map(|guard| guards.push(guard));
            errors.push(Error::from(guard_error));
        }
        let worst = errors.iter().position(|error| error.kind() == ErrorKind::Lost).unwrap_or(0);
        if errors.is_empty() {
            return Ok(());
        }
        let error = errors.swap_remove(worst).with("name", guards[worst].name());
        Err(GuardError::new(error, Self { guards }))
    }

    /// Runs `body` under these locks and releases them, as [`MultiLock::run`] does. The guard that `body` receives is lent: keeping or
    /// releasing it does not affect the locks.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`].
    pub async fn run<T, F, Fut>(self, body: F) -> Result<T>
    where
        F: FnOnce(Self) -> Fut,
        Fut: Future<Output = T>,
    {
        self.check()?;
        let body = body(Self { guards: self.guards.iter().map(Guard::lend).collect() });
        let output = tokio::select! {
            biased;
            _ = self.lost() => None,
            output = body => Some(output),
        };
        // The state reads the clock: the select does not notice a body that blocked past the margin.
        self.check()?;
        match (self.release().await, output) {
            (Err(error), _) if error.kind() == ErrorKind::Lost => Err(error),
            // Another failed release is retried in the background once the guard is dropped.
            (_, Some(output)) => Ok(output),
            (_, None) => Err(Error::new(ErrorKind::Lost, "multi-lock", "one of the locks was lost")),
        }
    }

    /// Adds the lock of `acquiring`. If that fails, or a held lock is lost meanwhile, all are released.
    async fn add(&mut self, lock: &Mutex, acquiring: impl Future<Output = Result<Guard>>) -> Result<()> {
        let acquired = tokio::select! {
            biased;
            _ = self.lost() => Err(None),
            acquired = acquiring => acquired.map_err(|error| Some(error.with("name", lock.name()))),
        };
        let error = match acquired {
            Ok(guard) => {
                self.guards.push(guard.into_any());
                return Ok(());
            }
            Err(Some(error)) => error,
            Err(None) => {
                self.check().err().unwrap_or_else(|| Error::new(ErrorKind::Lost, "multi-lock", "a lock was lost"))
            }
        };
        self.give_back().await;
        Err(error)
    }

    /// Sorts the guards in the order of the names. Fails if a lock was lost during the wait for another.
    async fn if_all_hold(mut self, order: Vec<usize>) -> Result<Self> {
        let mut guards: Vec<_> = order.into_iter().zip(self.guards).collect();
        guards.sort_by_key(|(place, _)| *place);
        self.guards = guards.into_iter().map(|(_, guard)| guard).collect();
        match self.check() {
            Ok(()) => Ok(self),
            Err(error) => {
                self.give_back().await;
                Err(error)
            }
        }
    }

    /// Releases all held locks. An unconfirmed release is retried in the background.
    async fn give_back(&mut self) {
        let guards = std::mem::take(&mut self.guards);
        let _ = Self { guards }.release().await;
    }
}

impl<K> From<Guard<K>> for MultiGuard {
    fn from(guard: Guard<K>) -> Self {
        Self { guards: vec![guard.into_any()] }
    }
}
