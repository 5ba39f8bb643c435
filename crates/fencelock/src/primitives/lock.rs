//! The common core of the primitives: a name, a claim, and the options of an acquire.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Either::{Left, Right};
use tracing::Instrument as _;

use super::Guard;
use super::sticky::Sticky;
use crate::breaker::Pass;
use crate::client::Client;
use crate::engine::acquire::{Acquire, Wait, Wish};
use crate::engine::hold::Outside;
use crate::engine::observe::Event;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::outage::OnOutage;
use crate::queue::Claim;
use crate::store::{Entry, Tokens};
use crate::time::Moment;

/// A claim on a name of a client's store, and the options of an acquire.
#[derive(Debug, Clone)]
pub(super) struct Lock {
    pub(super) client: Client,
    pub(super) wish: Wish,
    /// The error of every acquire: an option that is not valid.
    fault: Option<Cow<'static, str>>,
    on_outage: OnOutage,
    needs_token: bool,
    pub(super) sticky: Option<Arc<Sticky>>,
}

impl Lock {
    /// Refuses a claim that the store does not understand, before anything is sent.
    pub(super) fn new(client: Client, name: Name, claim: Claim) -> Result<Self> {
        let capability = client.capability();
        let is_known = match claim {
            Claim::MUTEX => true,
            Claim::READER | Claim::WRITER => capability.shared_claims,
            _ => capability.permits,
        };
        if !is_known {
            let message = if capability.shared_claims {
                "this layout understands mutexes, readers and writers, and no permits; the store's default layout does"
            } else {
                "this layout understands no claim but a mutex's: no readers, no writers, no permits; the store's default layout does"
            };
            return Err(Error::new(ErrorKind::Unsupported, "claim", message)
                .with("store", capability.store)
                .with("layout", capability.layout)
                .with("name", name)
                .with("claim", claim));
        }
        let wish = Wish { name, claim, wait: Wait::Forever, purpose: None, max_hold: None, max_waiters: None };
        Ok(Self { client, wish, fault: None, on_outage: OnOutage::Fail, needs_token: false, sticky: None })
    }

    pub(super) fn purpose(mut self, purpose: &str) -> Self {
        if purpose.len() > Entry::MAX_PURPOSE || purpose.chars().any(char::is_control) {
            self.fault = Some("a purpose has at most 512 bytes and no control characters".into());
        }
        self.wish.purpose = Some(purpose.into());
        self
    }

    /// The lock with `mark` at the end of its purpose, where the length allows that.
    pub(super) fn marked(&self, mark: &str) -> Self {
        let purpose = self.wish.purpose.as_deref().unwrap_or_default();
        let (mut lock, marked) = (self.clone(), format!("{purpose} {mark}"));
        if marked.len() <= Entry::MAX_PURPOSE {
            lock.wish.purpose = Some(marked.trim_start().into());
        }
        lock
    }

    pub(super) fn timeout(mut self, limit: Duration) -> Self {
        self.wish.wait = Wait::For(limit);
        self
    }

    pub(super) fn max_hold(mut self, most: Duration) -> Self {
        if most < Duration::from_millis(1) {
            self.fault = Some("max_hold is at least 1 ms".into());
        }
        self.wish.max_hold = Some(most);
        self
    }

    pub(super) fn max_waiters(mut self, most: u32) -> Self {
        self.wish.max_waiters = Some(most);
        self
    }

    pub(super) fn on_outage(mut self, policy: OnOutage) -> Self {
        if let OnOutage::DegradeTo(client) = &policy {
            if Arc::ptr_eq(client.engine(), self.client.engine()) {
                self.fault = Some("a lock cannot degrade to its own client".into());
            } else if let Err(error) = Self::new(client.clone(), self.wish.name.clone(), self.wish.claim) {
                self.fault = Some(format!("no lock can degrade to that store: {error}").into());
            }
        }
        self.on_outage = policy;
        self
    }

    pub(super) fn require_token(mut self) -> Self {
        self.needs_token = true;
        self
    }

    /// Refuses a lock that could be granted without the token that it needs.
    fn check_token(&self) -> Result<()> {
        if !self.needs_token {
            return Ok(());
        }
        if !matches!(self.on_outage, OnOutage::Fail) {
            let message = "a lock that requires a fencing token cannot go on in an outage: a degraded guard has none";
            return Err(Error::new(ErrorKind::Config, "acquire", message).with("name", &self.wish.name));
        }
        match self.client.capability().tokens {
            Tokens::None => Err(self.no_token()),
            _ => Ok(()),
        }
    }

    fn no_token(&self) -> Error {
        let capability = self.client.capability();
        let message = "the lock requires a fencing token, and this layout has none; the store's default layout has (not on redlock)";
        Error::new(ErrorKind::Unsupported, "acquire", message)
            .with("store", capability.store)
            .with("layout", capability.layout)
            .with("name", &self.wish.name)
    }

    pub(super) fn sticky(mut self, keep: Duration) -> Self {
        if keep < Duration::from_millis(1) {
            self.fault = Some("a sticky lock is kept for 1 ms or more".into());
            return self;
        }
        self.sticky = Some(self.client.sticky().of(&self.wish.name, keep));
        self
    }

    /// Asks for `count` of the capacity.
    pub(super) fn permits(mut self, count: u32) -> Self {
        let capacity = self.wish.claim.capacity();
        match Claim::new(count, capacity) {
            Ok(claim) => self.wish.claim = claim,
            Err(_) => self.fault = Some(format!("1 to {capacity} permits can be asked for, and not {count}").into()),
        }
        self
    }

    pub(super) fn name(&self) -> &Name {
        &self.wish.name
    }

    /// Acquires with the claim and the wait limit of the options.
    pub(super) async fn acquire<K: 'static>(&self) -> Result<Guard<K>> {
        self.acquire_as(self.wish.claim, self.wish.wait).await
    }

    pub(super) async fn acquire_as<K: 'static>(&self, claim: Claim, wait: Wait) -> Result<Guard<K>> {
        if let Some(fault) = &self.fault {
            return Err(Error::new(ErrorKind::Config, "acquire", fault.clone()).with("name", &self.wish.name));
        }
        self.check_token()?;
        let started =
            if matches!(self.on_outage, OnOutage::Fail) { Moment::ORIGIN } else { self.client.engine().clock.now() };
        let acquired = match &self.sticky {
            None => self.in_store(claim, wait).await,
            Some(sticky) => Box::pin(self.acquire_sticky(sticky, claim, wait)).await,
        };
        match acquired {
            Ok(guard) if self.needs_token && guard.token().is_none() => Err(self.no_token()),
            Err(error) if error.is_outage() => Box::pin(self.outside(error, claim, (wait, started))).await,
            acquired => acquired,
        }
    }

    /// Applies the caller's policy while the store is unreachable.
    async fn outside<K: 'static>(
        &self,
        error: Error,
        claim: Claim,
        (wait, started): (Wait, Moment),
    ) -> Result<Guard<K>> {
        let (engine, name) = (self.client.engine(), &self.wish.name);
        let client = match &self.on_outage {
            OnOutage::Fail => return Err(error),
            OnOutage::RunWithout => {
                tracing::warn!(%name, %error, "the store is out of reach: going on without the lock");
                let hold = engine.hold_nowhere(&Wish { claim, ..self.wish.clone() });
                return Guard::of_acquired(hold, &Arc::downgrade(self.client.lifeline())).map(Guard::in_span);
            }
            OnOutage::DegradeTo(client) => client.clone(),
        };
        let wait = match wait {
            Wait::For(limit) => Wait::For(limit.saturating_sub(engine.clock.now().since(started))),
            wait => wait,
        };
        let store = client.capability().store;
        tracing::warn!(%name, %error, store, "the store is out of reach: another one is asked for the lock");
        let other = Self { client, on_outage: OnOutage::Fail, sticky: None, ..self.clone() };
        let guard: Guard<K> = other.in_store(claim, wait).await.map_err(|failed| failed.with("own_store", error))?;
        guard.is_outside(Outside::Elsewhere);
        engine.observers.tell(Event::Degraded { name, store: Some(store) });
        Ok(guard)
    }

    /// Asks the store, if the breaker lets it.
    pub(super) async fn in_store<K: 'static>(&self, claim: Claim, wait: Wait) -> Result<Guard<K>> {
        // A loop of acquires may never wait, so other tasks of the thread get their turn here, before any request.
        tokio::task::coop::consume_budget().await;
        self.client.engine().spawner.check_place()?;
        let pass = match self.client.circuit().map(|circuit| circuit.admit()).transpose() {
            Ok(pass) => pass,
            Err(error) => {
                let (error, name) = (error.with("name", &self.wish.name), &self.wish.name);
                self.client.engine().observers.tell(Event::Refused { name, error: &error, waited: Duration::ZERO });
                return Err(error);
            }
        };
        self.ask_store(claim, wait, pass).await
    }

    async fn ask_store<K: 'static>(&self, claim: Claim, wait: Wait, pass: Option<Pass>) -> Result<Guard<K>> {
        let engine = Arc::clone(self.client.engine());
        // Weak: the spawned acquire must not keep the client open once the caller has dropped both.
        let lifeline = Arc::downgrade(self.client.lifeline());
        let span = tracing::debug_span!(target: "fencelock", "acquire", name = %self.wish.name);
        let acquire = Acquire::new(Arc::clone(&engine), Wish { claim, wait, ..self.wish.clone() });
        let is_inline = acquire.is_inline;
        let is_probe = pass.as_ref().is_some_and(|pass| pass.is_probe);
        let work = async move {
            let acquired = acquire.run().await;
            pass.into_iter().for_each(|pass| pass.ended(acquired.as_ref().err()));
            Guard::of_acquired(acquired?, &lifeline)
        };
        let mut work = Box::pin(work.instrument(span));
        if is_inline && let Some(acquired) = (&mut work).now_or_never() {
            return acquired.map(Guard::in_span);
        }
        // A probe blocks all other acquires, so it runs without polls of its caller.
        let asked = if is_probe { Left(engine.spawner.run_apart(work)) } else { Right(engine.spawner.run(work)) };
        asked.await.map(Guard::in_span)
    }
}

/// The options that every primitive has: each hands them to its [`Lock`].
macro_rules! options {
    () => {
        /// The purpose of the lock, visible to other clients: up to 512 bytes without control characters.
        #[must_use]
        pub fn purpose(self, purpose: impl AsRef<str>) -> Self {
            Self { lock: self.lock.purpose(purpose.as_ref()) }
        }

        /// The wait limit of an acquire, which then fails with [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut); without limit by
        /// default. With zero it asks once and never queues. If the first request is unsent 100 ms after the limit, it is not sent.
        #[must_use]
        pub fn timeout(self, limit: Duration) -> Self {
            Self { lock: self.lock.timeout(limit) }
        }

        /// The longest time that one grant may be held, renewed or not: then the guard is lost, with
        /// [`Loss::HeldTooLong`](crate::Loss::HeldTooLong). 1 ms or more, from when the request that was granted was sent or, after a wait,
        /// from when the client received the grant. The death of the process frees the lock earlier; a downgrade does not prolong it.
        ///
        /// The next client is granted once the last guard of the hold is gone, so that work under it has stopped; but no later than the
        /// safety margin ([`Timing::margin`](crate::Timing)) after this end, even if guards are kept.
        #[must_use]
        #[doc(alias("lease"))]
        pub fn max_hold(self, most: Duration) -> Self {
            Self { lock: self.lock.max_hold(most) }
        }

        /// Refuses to queue behind this many waiters (holders not counted), with [`ErrorKind::QueueFull`](crate::ErrorKind::QueueFull):
        /// with zero an acquire never waits.
        #[must_use]
        pub fn max_waiters(self, most: u32) -> Self {
            Self { lock: self.lock.max_waiters(most) }
        }

        /// Refuses every grant without a fencing token, before any request: with [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported)
        /// where the store or its layout has none, and with [`ErrorKind::Config`](crate::ErrorKind::Config) together with an
        /// [`OnOutage`](crate::OnOutage) that grants without the store. So [`Guard::require_token`](crate::Guard::require_token) gives a
        /// number.
        #[must_use]
        pub fn require_token(self) -> Self {
            Self { lock: self.lock.require_token() }
        }

        /// The policy of an acquire while the store is unreachable: by default an error. With every other policy, two clients can hold the
        /// lock; see [`OnOutage`](crate::OnOutage).
        #[must_use]
        pub fn on_outage(self, policy: crate::OnOutage) -> Self {
            Self { lock: self.lock.on_outage(policy) }
        }

        /// The name of the lock.
        #[must_use]
        pub fn name(&self) -> &Name {
            self.lock.name()
        }
    };
}
pub(super) use options;
