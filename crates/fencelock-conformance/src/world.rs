//! The tools of the laws.

use std::collections::BTreeSet;
use std::fmt;
use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use fencelock::inspect::Claim;
use fencelock::store::{
    Capability, Entered, Entry, Grant, Left, Opened, Opening, Order, Owner, Page, Place, PlaceId, Queue, RequestId,
    Session, Standing, Tokens,
};
use fencelock::time::{Clock, Moment, SystemClock};
use fencelock::{Error, FencingToken, Name};
use futures_core::future::BoxFuture;
use futures_util::TryStreamExt;

use crate::counted::Meter;
use crate::fixture::{Fixture, Process};

/// The outcome of a law.
pub type Verdict<T = ()> = Result<T, Fault>;

/// Why a law was not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The store broke the law; how.
    Broken(String),
    /// The law does not apply to this store, or cannot be tried on it; why.
    Inapplicable(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(what) => write!(f, "broken: {what}"),
            Self::Inapplicable(why) => write!(f, "inapplicable: {why}"),
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Broken(format!("the store failed: {error:?}"))
    }
}

/// Ends the law as broken unless the condition holds.
macro_rules! demand {
    ($holds:expr, $($what:tt)+) => {
        if !$holds {
            return Err($crate::Fault::Broken(format!($($what)+)));
        }
    };
}
pub(crate) use demand;

/// The reason why laws about readers and writers do not apply to a store.
pub(crate) const NO_SHARED_CLAIMS: &str = "the store knows no claim but a mutex's";
/// The reason why laws about permits do not apply to a store.
pub(crate) const NO_PERMITS: &str = "the store knows no permits";

/// The reason why laws about an order of arrival do not apply to a store.
pub(crate) const NO_ORDER: &str = "the store keeps no order";
/// The reason why laws about tokens do not apply to a store.
pub(crate) const NO_TOKENS: &str = "the store has no tokens";
/// The reason why laws about notes do not apply to a store.
pub(crate) const NO_NOTES: &str = "the store keeps no notes";
/// The first words of a verdict that the store does not offer an operation of the law.
pub(crate) const NOT_OFFERED: &str = "the store failed: Unsupported";
/// The reason why laws about sticky locks do not apply to a store.
pub(crate) const NO_WAITERS: &str = "the store shows no waiters";
/// The reasons that a store's capability gives. A suite lists no exception for them.
pub(crate) const BY_CAPABILITY: [&str; 6] = [NO_SHARED_CLAIMS, NO_PERMITS, NO_ORDER, NO_TOKENS, NO_NOTES, NO_WAITERS];

/// How long a law waits for an event that must come, where no bound is declared.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);
/// How long a law checks that an event does not happen.
pub(crate) const GLANCE: Duration = Duration::from_millis(20);

/// A run of a law: the store under test and a source of chance.
#[derive(Clone)]
pub struct World {
    fixture: Arc<dyn Fixture>,
    clients: Arc<AtomicU64>,
    /// The source of every random choice of the law.
    pub seed: u64,
    /// The claim to a whole lock, with which the laws of exclusive locks run.
    pub(crate) whole: Claim,
}

impl World {
    /// A world around one empty store, in which the claim that excludes all others is `whole`.
    pub(crate) fn new(fixture: Arc<dyn Fixture>, seed: u64, whole: Claim) -> Self {
        Self { fixture, clients: Arc::default(), seed, whole }
    }

    /// The store under test.
    pub(crate) fn fixture(&self) -> &dyn Fixture {
        &*self.fixture
    }

    /// A client in a process of its own whose session outlives the law.
    pub(crate) async fn client(&self) -> Verdict<Client> {
        self.client_for(self.fixture.long_ttl()).await
    }

    /// A client for a law whose many requests take long on a busy machine: its session lives longer.
    pub(crate) async fn patient_client(&self) -> Verdict<Client> {
        self.client_for(self.long()).await
    }

    fn long(&self) -> Duration {
        (self.fixture.long_ttl() * 4).max(Duration::from_secs(600))
    }

    /// A client in a process of its own, unrenewed.
    pub(crate) async fn client_for(&self, ttl: Duration) -> Verdict<Client> {
        self.client_of(self.fixture.process().await?, ttl).await
    }

    /// A client as [`World::patient_client`], with a meter of its requests.
    pub(crate) async fn metered_client(&self) -> Verdict<(Client, Meter)> {
        let (process, meter) = Meter::on(self.fixture.process().await?);
        Ok((self.client_of(process, self.long()).await?, meter))
    }

    async fn client_of(&self, process: Process, ttl: Duration) -> Verdict<Client> {
        match self.whole {
            Claim::MUTEX => {}
            Claim::WRITER => needs(process.store.capability().shared_claims, NO_SHARED_CLAIMS)?,
            _ => needs(process.store.capability().permits, NO_PERMITS)?,
        }
        let number = self.clients.fetch_add(1, Ordering::Relaxed) + 1;
        let owner = Owner::new(self.seed ^ number << 32, format!("host-{number}"), 1000);
        let clock = process.store.clock().unwrap_or_else(|| Arc::new(SystemClock));
        // A busy machine may take longer to connect than a short ttl allows.
        let opening = Opening::here(owner.clone(), ttl, Arc::clone(&clock))?;
        let opened = insist(|| process.store.open(opening.clone())).await?;
        let patience = self.fixture.patience();
        Ok(Client { process, owner, opened, clock, patience, requests: AtomicU64::new(0) })
    }

    pub(crate) async fn pass(&self, duration: Duration) {
        self.fixture.pass(duration).await;
    }

    /// A client with its engine, as in a user's process of its own.
    pub(crate) async fn user(&self) -> Verdict<User> {
        self.user_with(|options| options).await
    }

    /// A client with its engine, and with options of its own.
    pub(crate) async fn user_with(
        &self,
        with: impl FnOnce(fencelock::ClientBuilder) -> fencelock::ClientBuilder,
    ) -> Verdict<User> {
        self.user_of(self.fixture.process().await?, with).await
    }

    /// A client with its engine, and a count of its requests.
    pub(crate) async fn metered_user(&self) -> Verdict<(User, Meter)> {
        let (process, meter) = Meter::on(self.fixture.process().await?);
        Ok((self.user_of(process, |options| options).await?, meter))
    }

    async fn user_of(
        &self,
        process: Process,
        with: impl FnOnce(fencelock::ClientBuilder) -> fencelock::ClientBuilder,
    ) -> Verdict<User> {
        let options = fencelock::Client::builder().io(fencelock::Io::CurrentRuntime).ttl(self.fixture.long_ttl());
        let client = with(options).connect_store(Arc::clone(&process.store)).await?;
        Ok(User { client, process })
    }

    /// The result of `happens` within `bound` of the store's time; `None` without a result by then.
    pub(crate) async fn within<T>(&self, bound: Duration, happens: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            said = happens => Some(said),
            () = self.fixture.pass(bound) => None,
        }
    }

    /// As [`World::within`], for a bound that the store declares: prints how much of the bound was taken, by this
    /// machine's clock.
    pub(crate) async fn in_time<T>(&self, what: &str, bound: Duration, happens: impl Future<Output = T>) -> Option<T> {
        let start = std::time::Instant::now();
        let said = self.within(bound + self.fixture.slack(), happens).await;
        println!("bound: {what}: {:.3} s of {:.3} s", start.elapsed().as_secs_f64(), bound.as_secs_f64());
        said
    }

    /// Calls `is_so` until it returns true. The law is broken if that takes longer than [`PATIENCE`].
    pub(crate) async fn until(&self, what: &str, mut is_so: impl AsyncFnMut() -> Verdict<bool>) -> Verdict {
        let mut waited = Duration::ZERO;
        while waited < PATIENCE {
            if is_so().await? {
                return Ok(());
            }
            // The looks become rarer, the longer the wait takes.
            let again = (waited / 50).max(Duration::from_millis(1));
            self.fixture.pass(again).await;
            waited += again;
        }
        Err(Fault::Broken(format!("it never came that {what}")))
    }

    /// Lets a wait begin, and demands that it does not end.
    pub(crate) async fn park<T>(&self, waits: &mut BoxFuture<'_, T>) -> Verdict {
        demand!(self.within(GLANCE, waits).await.is_none(), "a wait returned before anything had happened");
        Ok(())
    }

    /// Waits until `place` is granted.
    pub(crate) async fn granted(&self, place: &mut Box<dyn Place>) -> Verdict<Grant> {
        let granted = self.within(PATIENCE, async {
            loop {
                match place.next(Moment::NEVER).await? {
                    Standing::Granted(grant) => return Ok(grant),
                    Standing::Waiting(_) => tokio::task::yield_now().await,
                    Standing::Lost(loss) => return Err(Fault::Broken(format!("a waiting place is gone: {loss}"))),
                }
            }
        });
        granted.await.unwrap_or_else(|| Err(Fault::Broken("a place that must be granted is not".to_owned())))
    }

    /// Demands that the store reports `place` as waiting.
    pub(crate) async fn waits(&self, place: &mut Box<dyn Place>, client: &Client) -> Verdict {
        let standing = place.next(client.clock.now()).await?;
        demand!(matches!(standing, Standing::Waiting(_)), "a place that must wait is {standing:?}");
        Ok(())
    }

    /// The claims to try a law with: a mutex, and every other kind of claim that the store offers.
    pub(crate) fn claims(&self, capability: &Capability) -> Vec<Claim> {
        let shared = if capability.shared_claims { vec![Claim::READER, Claim::WRITER] } else { Vec::new() };
        let parts = if capability.permits { vec![permits(1, 3), permits(2, 3), permits(3, 3)] } else { Vec::new() };
        std::iter::once(Claim::MUTEX).chain(shared).chain(parts).collect()
    }
}

/// Ends the law as inapplicable unless the store `has` what the law needs.
pub(crate) fn needs(has: bool, why_not: &str) -> Verdict {
    if has { Ok(()) } else { Err(Fault::Inapplicable(why_not.to_owned())) }
}

/// A permit for `weight` of `capacity`.
pub(crate) fn permits(weight: u32, capacity: u32) -> Claim {
    Claim::new(weight, capacity).unwrap_or(Claim::MUTEX)
}

/// A name that the law knows to be valid.
pub(crate) fn name(text: &str) -> Verdict<Name> {
    Ok(Name::new(text)?)
}

/// A client with its engine.
pub(crate) struct User {
    client: fencelock::Client,
    /// The client's route to the store, which ends with the client.
    pub(crate) process: Process,
}

impl Deref for User {
    type Target = fencelock::Client;

    fn deref(&self) -> &fencelock::Client {
        &self.client
    }
}

/// A client with its session.
pub(crate) struct Client {
    pub(crate) process: Process,
    pub(crate) owner: Owner,
    pub(crate) opened: Opened,
    pub(crate) clock: Arc<dyn Clock>,
    /// The longest real time of a call that does not wait.
    pub(crate) patience: Duration,
    requests: AtomicU64,
}

impl Client {
    pub(crate) fn capability(&self) -> &Capability {
        self.process.store.capability()
    }

    pub(crate) fn session(&self) -> &Arc<dyn Session> {
        &self.opened.session
    }

    /// A new request that waits.
    pub(crate) fn entry(&self, name: &Name, claim: Claim) -> Entry {
        let number = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let id = RequestId { client: self.owner.client, number };
        Entry { name: name.clone(), claim, id, wait: true, purpose: None }
    }

    /// Sends the request until it is answered: a busy machine may take longer than a short session allows for one request.
    pub(crate) async fn send(&self, entry: &Entry) -> Verdict<Entered> {
        insist(|| self.session().enter(Arc::new(entry.clone()))).await
    }

    /// Enters with this request, and demands a place.
    pub(crate) async fn place(&self, entry: &Entry) -> Verdict<Box<dyn Place>> {
        match self.send(entry).await? {
            Entered::In(place) => Ok(place),
            Entered::Busy => Err(Fault::Broken(format!("{} was busy for one who waits", entry.name))),
            Entered::Conflict(claim) => Err(Fault::Broken(format!("{} conflicts with {claim}", entry.claim))),
        }
    }

    pub(crate) async fn enter(&self, name: &Name, claim: Claim) -> Verdict<Box<dyn Place>> {
        self.place(&self.entry(name, claim)).await
    }

    /// Enters and demands to be granted at once.
    pub(crate) async fn hold(&self, name: &Name, claim: Claim) -> Verdict<Box<dyn Place>> {
        let place = self.enter(name, claim).await?;
        let standing = place.standing();
        demand!(matches!(standing, Standing::Granted(_)), "{claim} of the free {name} is {standing:?}");
        Ok(place)
    }

    /// Enters without waiting.
    pub(crate) async fn try_enter(&self, name: &Name, claim: Claim) -> Verdict<Entered> {
        self.send(&Entry { wait: false, ..self.entry(name, claim) }).await
    }

    pub(crate) async fn queue(&self, name: &Name) -> Verdict<Queue> {
        insist(|| self.process.store.queue(name, Page::ALL)).await
    }

    /// The requests in the queue, front first.
    pub(crate) async fn ids(&self, name: &Name) -> Verdict<Vec<RequestId>> {
        Ok(self.queue(name).await?.contenders.iter().map(|contender| contender.id).collect())
    }

    /// The names that start with `prefix`, in byte order.
    pub(crate) async fn names(&self, prefix: &str) -> Verdict<BTreeSet<Name>> {
        let pages = insist(|| self.process.store.names(prefix).try_collect::<Vec<_>>()).await?;
        Ok(pages.into_iter().flatten().collect())
    }

    pub(crate) async fn renew(&self, places: &[&dyn Place]) -> Verdict<fencelock::store::Renewal> {
        let ids: Vec<PlaceId> = places.iter().map(|place| place.id()).collect();
        insist(|| self.session().renew(&ids)).await
    }

    /// Ends the client as a crash does: the session's places are left to expire.
    pub(crate) fn crash(self, places: Vec<Box<dyn Place>>) {
        self.process.faults.crash();
        drop((places, self));
    }

    /// The requests of a queue that the store shows, out of `requests` in their order. A store without an order shows no
    /// waiter.
    pub(crate) fn shown(&self, requests: &[RequestId]) -> Vec<RequestId> {
        let most = if self.capability().order == Order::None { 1 } else { requests.len() };
        requests.iter().copied().take(most).collect()
    }

    /// Applies the law only to stores that keep the order of arrival.
    pub(crate) fn needs_order(&self) -> Verdict {
        needs(self.capability().order == Order::Fifo, NO_ORDER)
    }

    pub(crate) fn needs_shared_claims(&self) -> Verdict {
        needs(self.capability().shared_claims, NO_SHARED_CLAIMS)
    }

    pub(crate) fn needs_permits(&self) -> Verdict {
        needs(self.capability().permits, NO_PERMITS)
    }

    pub(crate) fn needs_notes(&self) -> Verdict {
        needs(self.capability().notes, NO_NOTES)
    }

    pub(crate) fn needs_tokens(&self) -> Verdict {
        needs(self.capability().tokens != Tokens::None, NO_TOKENS)
    }
}

/// The grant that `place` reports.
pub(crate) fn grant_of(place: &dyn Place) -> Verdict<Grant> {
    match place.standing() {
        Standing::Granted(grant) => Ok(grant),
        standing => Err(Fault::Broken(format!("a holder's place is {standing:?}"))),
    }
}

/// The token of `place`, if it is granted and has one.
pub(crate) fn token_of(place: &dyn Place) -> Option<FencingToken> {
    grant_of(place).ok()?.token
}

/// Leaves, and demands that the place was still there.
pub(crate) async fn release(mut place: Box<dyn Place>) -> Verdict {
    let left = place.leave().await?;
    demand!(left == Left::Released, "a place that was held was gone when it was left");
    Ok(())
}

/// Sends a request until it is answered, as an engine would: a store may give up a connection that is silent.
pub(crate) async fn insist<T>(mut request: impl AsyncFnMut() -> fencelock::Result<T>) -> Verdict<T> {
    loop {
        match request().await {
            Err(error) if error.is_retryable() => tokio::task::yield_now().await,
            answer => return Ok(answer?),
        }
    }
}

/// Polls `future` up to `polls` times, each time it asks to be: the view of a caller that drops it at its n-th await.
pub(crate) async fn poll_times<T>(future: &mut BoxFuture<'_, T>, mut polls: usize) -> Option<T> {
    poll_fn(|cx| {
        if polls == 0 {
            return Poll::Ready(None);
        }
        polls -= 1;
        match Pin::new(&mut *future).poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if polls == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
