//! The guard: a held lock.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span, debug_span};

use super::guard_error::GuardError;
use super::kind::{Any, Exclusive};
use crate::client::Lifeline;
use crate::engine::Engine;
use crate::engine::hold::{GuardState, Hold, Outside};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{Loss, PlaceId};
use crate::token::FencingToken;

/// A held lock: of a mutex, or of the [`kind`](crate::kind) `K`.
///
/// While [`Guard::remaining`] is not zero, no other client that the guard excludes can hold the lock. A mutex and a writer exclude all
/// others, a reader excludes writers, a permit excludes permits beyond the capacity. The lock belongs to the guard as a value, never to a
/// thread or task. After a pause (blocking work, a swapped-out or stopped process), call [`Guard::check`] before you continue, and pass
/// [`Guard::token`] to the resource: only the resource can refuse a late write.
///
/// The client renews the lock in the background for as long as there is a guard; your code extends nothing. Dropping the guard releases the
/// lock: at once where the store can do so without blocking, or else in the background. [`Guard::release`] releases it and reports errors.
#[doc(alias("extend", "renew", "refresh", "keep_alive"))]
#[must_use = "a guard that is dropped releases its lock"]
pub struct Guard<K = Exclusive> {
    share: Share,
    kind: PhantomData<fn() -> K>,
}

/// A held lock of any kind.
pub type AnyGuard = Guard<Any>;

/// A guard's share of a hold, for every kind of guard.
struct Share {
    hold: Arc<Hold>,
    given_up: AtomicBool,
    /// Lent to a body, and never counted: the end of a lent guard does not end the hold.
    lent: bool,
    lifeline: Arc<Lifeline>,
    /// Open for as long as the lock is held.
    span: Span,
}

impl<K> Guard<K> {
    fn new(hold: Arc<Hold>, lifeline: Arc<Lifeline>) -> Self {
        Self::of(Share { hold, given_up: AtomicBool::new(false), lent: false, lifeline, span: Span::none() })
    }

    fn of(share: Share) -> Self {
        Self { share, kind: PhantomData }
    }

    /// The same guard, after its claim became another one.
    pub(crate) fn become_kind<L>(self) -> Guard<L> {
        Guard::of(self.share)
    }

    /// The first guard of `hold`, unless all handles of the client are gone.
    pub(crate) fn of_acquired(hold: Arc<Hold>, lifeline: &Weak<Lifeline>) -> Result<Self> {
        match lifeline.upgrade() {
            Some(lifeline) => Ok(Self::new(hold, lifeline)),
            None => {
                hold.leave_in_background();
                Err(hold.released_before())
            }
        }
    }

    /// The same guard, in a span of the caller that is open until the last guard is gone.
    pub(crate) fn in_span(mut self) -> Self {
        self.share.span = debug_span!(target: "fencelock", "hold", name = %self.name(), token = ?self.token());
        self
    }

    /// Another guard of `hold`, unless the hold has ended.
    pub(crate) fn share(hold: &Arc<Hold>, lifeline: &Arc<Lifeline>) -> Result<Self> {
        match hold.state() {
            GuardState::Held | GuardState::Suspect if hold.share() => {
                Ok(Self::new(Arc::clone(hold), Arc::clone(lifeline)))
            }
            GuardState::Lost(loss) => Err(hold.lost_before(loss)),
            _ => Err(hold.released_before()),
        }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        self.share.hold.engine()
    }

    pub(super) fn place(&self) -> PlaceId {
        self.share.hold.id().clone()
    }

    /// A weak reference to the hold.
    pub(crate) fn hold(&self) -> Weak<Hold> {
        Arc::downgrade(&self.share.hold)
    }

    /// The same guard, for code that serves every kind alike.
    pub fn into_any(self) -> AnyGuard {
        self.become_kind()
    }

    /// The name of the lock.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.share.hold.id().name
    }

    /// Whether this is a grant outside of the lock's store, by [`OnOutage`](crate::OnOutage): another client may hold the lock.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.share.hold.is_degraded()
    }

    pub(super) fn is_outside(&self, outside: Outside) {
        self.share.hold.is_outside(outside);
    }

    /// The fencing token of this grant; `None` only where [`Capability::tokens`](crate::capability::Capability) says there are none, and
    /// for a degraded grant ([`Guard::is_degraded`]).
    ///
    /// Tokens order *exclusive* grants: of a mutex, of writers, of permits for the whole capacity. A reader's token may be compared with
    /// the tokens of writers (a lower token is refused rightly), never with another reader's. The tokens of two permits that are held
    /// together say nothing about their age.
    #[must_use]
    pub fn token(&self) -> Option<FencingToken> {
        self.share.hold.token().filter(|_| !self.is_degraded())
    }

    /// The fencing token, for code that must not run without one: see [`Guard::token`]. With `require_token` of
    /// [`Mutex`](crate::Mutex::require_token) and the other primitives, the acquire fails instead.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) without a token.
    pub fn require_token(&self) -> Result<FencingToken> {
        self.token().ok_or_else(|| {
            let message =
                "there is no fencing token: the store or its layout has none, or the lock is not held in the store";
            Error::new(ErrorKind::Unsupported, "token", message).with("name", self.name())
        })
    }

    /// The present state of the lock. Never blocks. The state is right even just after a pause: each call reads the clock.
    #[must_use]
    pub fn state(&self) -> GuardState {
        self.share.hold.state()
    }

    /// How long the lock stays valid without a further renewal: no other client can hold it meanwhile. At most the ttl less the [safety
    /// margin](crate::Timing). Zero once lost or released, and where no store granted it ([`OnOutage::RunWithout`](crate::OnOutage)).
    /// [`Duration::MAX`] where nothing can expire (`file:`, without `max_hold`).
    #[must_use]
    #[doc(alias("expires_at"))]
    pub fn remaining(&self) -> Duration {
        self.share.hold.remaining()
    }

    /// `Ok` while the lock is certainly held.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) with the cause, or [`ErrorKind::Closed`](crate::ErrorKind::Closed) after a release.
    #[doc(alias("is_held", "is_valid", "is_lost"))]
    pub fn check(&self) -> Result<()> {
        match self.state() {
            GuardState::Held | GuardState::Suspect => Ok(()),
            GuardState::Lost(loss) => Err(self.share.hold.lost_before(loss)),
            GuardState::Released => Err(self.share.hold.released_before()),
        }
    }

    /// Completes with the cause when the lock is lost; never once it was released.
    ///
    /// # Cancel safety
    /// May be dropped and asked again.
    pub async fn lost(&self) -> Loss {
        self.share.hold.lost().cancelled().await;
        match self.share.hold.cause() {
            Some(loss) => loss,
            None => std::future::pending().await,
        }
    }

    /// The reason that the breaking client gave, after a [`Loss::Broken`].
    #[must_use]
    pub fn break_reason(&self) -> Option<&str> {
        self.share.hold.reason()
    }

    /// The reason for which the store refuses to renew the lock, and no retry can help: a changed password, a revoked right. Stays after
    /// the loss of the lock. `None` while renewals succeed, or fail for a passing reason.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        self.share.hold.refusal().map(|refusal| refusal.to_string())
    }

    /// Cancelled when the lock is lost, and when the last guard releases it, before the store receives the release: for tasks that work
    /// under the lock. Cancelling this token does not change the lock.
    #[must_use]
    pub fn lost_token(&self) -> CancellationToken {
        self.share.hold.over()
    }

    /// Another guard of the same hold, with the same token; the lock is released with the last of them.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) or [`ErrorKind::Closed`](crate::ErrorKind::Closed) when there is nothing left to share.
    pub fn reenter(&self) -> Result<Self> {
        let mut guard = Self::share(&self.share.hold, &self.share.lifeline)?;
        guard.share.span = self.share.span.clone();
        Ok(guard)
    }

    /// Ends this guard; the last guard of a hold releases the lock. If the store cannot do so at the moment (a server is busy, starts, or
    /// hands over to another one), the client retries for one request deadline.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the lock was lost before: work under it may have overlapped with other holders.
    /// Otherwise an error of the store: the client then retries the release in the background, and no longer renews the lock.
    ///
    /// # Cancel safety
    /// Dropping the future releases the lock in the background.
    #[doc(alias("unlock"))]
    pub async fn release(self) -> Result<()> {
        Ok(self.release_or_keep().await?)
    }

    /// As [`Guard::release`], for callers that retry a failed release themselves: the error has the guard, whose release can be repeated.
    ///
    /// # Errors
    /// [`GuardError`], of the same kinds.
    ///
    /// # Cancel safety
    /// As [`Guard::release`].
    pub async fn release_or_keep(self) -> Result<(), GuardError<Self>> {
        let released = self.give_up().await;
        released.map_err(|error| GuardError::new(error, self))
    }

    async fn give_up(&self) -> Result<()> {
        if !self.share.gives_back() {
            return Ok(());
        }
        let (hold, engine) = (Arc::clone(&self.share.hold), self.share.hold.engine());
        engine.spawner.check_place()?;
        if hold.is_retained() {
            return Ok(());
        }
        let span = debug_span!(target: "fencelock", parent: &self.share.span, "release", name = %self.name());
        if let Some(released) = span.in_scope(|| hold.release_now()) {
            return released;
        }
        let own_thread = engine.spawner.has_own_thread();
        let release = async move { hold.release().await }.instrument(span);
        if own_thread { engine.run_to_end(release).await } else { release.await }
    }

    /// Makes the claim lighter; refused while another guard relies on the heavier claim.
    pub(super) async fn lighten(&self, claim: Claim) -> Result<()> {
        self.check()?;
        if !self.share.hold.has_one_guard() {
            let message = "another guard of the same hold still relies on the heavier claim";
            return Err(Error::new(ErrorKind::Config, "downgrade", message).with("name", self.name()));
        }
        let (hold, engine) = (Arc::clone(&self.share.hold), self.share.hold.engine());
        if engine.spawner.has_own_thread() {
            return engine.run_to_end(async move { hold.lighten(claim).await }).await;
        }
        engine.spawner.check_place()?;
        hold.lighten(claim).await
    }

    /// An uncounted guard for a body that runs under this one.
    pub(crate) fn lend(&self) -> Self {
        Self::of(Share {
            hold: Arc::clone(&self.share.hold),
            given_up: AtomicBool::new(false),
            lent: true,
            lifeline: Arc::clone(&self.share.lifeline),
            span: self.share.span.clone(),
        })
    }

    /// Runs `body` under this guard and releases it, as [`Mutex::run`](crate::Mutex::run) does. The guard that `body` receives is lent:
    /// keeping or releasing it does not affect the lock.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost); [`ErrorKind::Config`](crate::ErrorKind::Config), before `body` runs,
    /// where [`Io::CurrentRuntime`](crate::Io::CurrentRuntime) is used on another runtime.
    pub async fn run<T, F, Fut>(self, body: F) -> Result<T>
    where
        F: FnOnce(Self) -> Fut,
        Fut: Future<Output = T>,
    {
        self.check()?;
        // Before the body runs: afterwards no caller could receive an error of the release.
        self.share.hold.engine().spawner.check_place()?;
        let body = body(self.lend());
        let result = tokio::select! {
            biased;
            loss = self.lost() => Err(self.share.hold.lost_before(loss)),
            output = body => Ok(output),
        };
        // The state reads the clock: the select does not notice a body that blocked past the margin.
        let result = match self.state() {
            GuardState::Lost(loss) if result.is_ok() => Err(self.share.hold.lost_before(loss)),
            _ => result,
        };
        let output = result?;
        match self.give_up().await {
            Err(error) if error.kind() == ErrorKind::Lost => Err(error),
            // Another failed release is retried in the background once the guard is dropped.
            _ => Ok(output),
        }
    }
}

impl Share {
    /// Ends this guard's share; returns whether the hold ends with it. A lent guard has no share.
    fn gives_back(&self) -> bool {
        let has_part = || !self.given_up.swap(true, Ordering::AcqRel);
        !self.lent && if has_part() { self.hold.unshare() } else { self.hold.is_unshared() }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.gives_back() && !self.hold.is_retained() {
            self.hold.leave_in_background();
        }
    }
}

impl<K> fmt::Debug for Guard<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", self.name())
            .field("token", &self.token())
            .field("state", &self.state())
            .field("degraded", &self.is_degraded())
            .finish_non_exhaustive()
    }
}
