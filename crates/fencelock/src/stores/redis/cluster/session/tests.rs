//! Parts that end or do not answer, over a store in memory. The tests with a Cluster are in `tests/redis/cluster.rs`.

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Waker};

use futures_util::FutureExt;

use super::*;
use crate::kit::pause::LONGEST_OF_HOLDERS;
use crate::store::{Break, Capability, Outline, Owner, Page, Queue};
use crate::stores::memory::{MemoryStore, Operation, VirtualClock};
use crate::time::Clock;

const TTL: Duration = Duration::from_secs(9);

/// A store whose sessions end when a test says so, while the server keeps their places, as after a failover.
#[derive(Debug, Clone)]
struct Mortal {
    inner: MemoryStore,
    sessions: Arc<Mutex<Vec<Arc<MortalSession>>>>,
    /// No node can be reached.
    is_down: Arc<AtomicBool>,
    /// How many of the next renewals fail.
    failures: Arc<AtomicU64>,
}

struct MortalSession {
    inner: Arc<dyn Session>,
    over: OnceLock<Loss>,
    failures: Arc<AtomicU64>,
    events: mpsc::UnboundedSender<SessionEvent>,
}

impl std::fmt::Debug for MortalSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MortalSession").field("over", &self.over).finish_non_exhaustive()
    }
}

impl Mortal {
    fn reach(&self) -> Result<()> {
        if self.is_down.load(Ordering::Relaxed) { Err(unreachable()) } else { Ok(()) }
    }

    /// Ends the newest session. The client receives the event when the test sends it.
    fn fail_over(&self) -> Arc<MortalSession> {
        let session = self.sessions.lock().last().unwrap().clone();
        session.over.set(Loss::Replaced).unwrap();
        session
    }
}

impl Store for Mortal {
    fn capability(&self) -> &Capability {
        self.inner.capability()
    }

    fn open(&self, opening: Opening) -> BoxFuture<'_, Result<Opened>> {
        Box::pin(async move {
            self.reach()?;
            let opened = self.inner.open(opening).await?;
            let (events, mut received) = mpsc::unbounded_channel();
            let (inner, failures) = (opened.session, Arc::clone(&self.failures));
            let session = Arc::new(MortalSession { inner, over: OnceLock::new(), failures, events });
            self.sessions.lock().push(Arc::clone(&session));
            let own = stream::poll_fn(move |cx| received.poll_recv(cx));
            let events = stream::select(opened.events, own).boxed();
            Ok(Opened { session: Arc::new(Shared(session)), events, ..opened })
        })
    }

    fn queue<'a>(&'a self, name: &'a Name, page: Page) -> BoxFuture<'a, Result<Queue>> {
        self.inner.queue(name, page)
    }

    fn contention<'a>(&'a self, name: &'a Name, mine: &'a [RequestId]) -> BoxFuture<'a, Result<Outline>> {
        self.inner.contention(name, mine)
    }

    fn names<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<Vec<Name>>> {
        self.inner.names(prefix)
    }

    fn break_grant<'a>(&'a self, order: &'a Break) -> BoxFuture<'a, Result<bool>> {
        self.inner.break_grant(order)
    }

    fn breaks<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Vec<Break>>> {
        self.inner.breaks(name)
    }
}

struct Shared(Arc<MortalSession>);

impl Session for Shared {
    fn over(&self) -> Option<Loss> {
        self.0.over.get().copied().or(self.0.inner.over())
    }

    fn enter(&self, entry: Arc<Entry>) -> BoxFuture<'_, Result<Entered>> {
        self.0.inner.enter(entry)
    }

    fn withdraw<'a>(&'a self, name: &'a Name, id: RequestId) -> BoxFuture<'a, Result<()>> {
        self.0.inner.withdraw(name, id)
    }

    fn renew<'a>(&'a self, places: &'a dyn PlaceList) -> BoxFuture<'a, Result<Renewal>> {
        let fails = |left: u64| left.checked_sub(1);
        match self.over() {
            Some(_) => Box::pin(async { Err(crate::kit::own_places::over("renew")) }),
            None if self.0.failures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fails).is_ok() => {
                Box::pin(async { Err(unreachable()) })
            }
            None => self.0.inner.renew(places),
        }
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.0.inner.close()
    }
}

struct Lab {
    store: Mortal,
    clock: VirtualClock,
    opened: Opened,
    requests: AtomicU64,
}

impl Lab {
    fn new() -> Self {
        let (inner, clock) = MemoryStore::with_virtual_clock();
        let (sessions, is_down, failures) = Default::default();
        let store = Mortal { inner: inner.another_process(), sessions, is_down, failures };
        let stores = (0..16).map(|_| Arc::new(store.clone()) as Arc<dyn Store>).collect::<Vec<_>>().into();
        let nodes = store.clone();
        let reach: Reach = Box::new(move || Box::pin(std::future::ready(nodes.reach())));
        let opened = open_session(&stores, reach, opening(&clock), clock.now());
        Self { store, clock, opened, requests: AtomicU64::new(0) }
    }

    fn entry(&self, name: &str, wait: bool) -> Arc<Entry> {
        let id = RequestId { client: 7, number: self.requests.fetch_add(1, Ordering::Relaxed) };
        Arc::new(Entry { name: Name::new(name).unwrap(), claim: Claim::MUTEX, id, wait, purpose: None })
    }

    /// A name in another part.
    fn name_apart_from(&self, place: &dyn Place) -> String {
        let mut names = (0..).map(|number| format!("n{number}"));
        names.find(|name| part_of(&Name::new(name).unwrap()) != part_of(&place.id().name)).unwrap()
    }

    async fn enter(&self, name: &str) -> Box<dyn Place> {
        placed(self.opened.session.enter(self.entry(name, true)).await)
    }

    /// Whether another client is granted the lock now.
    async fn is_free(&self, name: &str) -> bool {
        let rival = self.store.inner.another_process().open(opening(&self.clock)).await.unwrap();
        let entered = rival.session.enter(self.entry(name, false)).await.unwrap();
        rival.session.close().await.unwrap();
        matches!(entered, Entered::In(_))
    }

    async fn renew(&self, places: &[&dyn Place]) -> Result<Renewal> {
        let places: Vec<_> = places.iter().map(|place| place.id()).collect();
        self.opened.session.renew(&places).await
    }

    fn events(&mut self) -> Vec<SessionEvent> {
        std::iter::from_fn(|| self.opened.events.next().now_or_never().flatten()).collect()
    }
}

fn opening(clock: &VirtualClock) -> Opening {
    Opening::here(Owner { client: 7, host: "host".to_owned(), pid: 1 }, TTL, Arc::new(clock.clone())).unwrap()
}

fn unreachable() -> Error {
    Error::new(ErrorKind::Unreachable, "test", "the node is down").retryable()
}

fn placed(entered: Result<Entered>) -> Box<dyn Place> {
    match entered.unwrap() {
        Entered::In(place) => place,
        _ => panic!("a contender that waits has a place"),
    }
}

fn is_pending<T>(future: &mut BoxFuture<'_, T>) -> bool {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

#[tokio::test]
async fn a_part_is_not_closed_while_a_request_to_it_is_under_way() {
    let lab = Lab::new();
    lab.enter("a").await.leave().await.unwrap();
    lab.store.inner.partition();
    let mut entering = lab.opened.session.enter(lab.entry("a", true));
    assert!(is_pending(&mut entering));
    let mut renewal = lab.opened.session.renew(&[]);
    assert!(is_pending(&mut renewal));
    lab.clock.advance(TTL * 3 / 10);
    assert!(renewal.await.is_err(), "the part did not answer");
    lab.store.inner.heal();
    let held = placed(entering.await);
    assert!(matches!(held.standing(), Standing::Granted(_)));
    let renewal = lab.renew(&[&*held]).await.unwrap();
    assert_eq!(renewal.gone, []);
    assert!(!lab.is_free("a").await, "two hold the lock");
}

#[tokio::test]
async fn a_part_without_requests_that_does_not_answer_is_closed_and_the_next_request_opens_another() {
    let lab = Lab::new();
    lab.enter("a").await.leave().await.unwrap();
    lab.store.inner.partition();
    let mut renewal = lab.opened.session.renew(&[]);
    assert!(is_pending(&mut renewal));
    lab.clock.advance(TTL * 3 / 10);
    assert!(renewal.await.is_err(), "the part did not answer");
    lab.store.inner.heal();
    let held = lab.enter("a").await;
    assert_eq!(lab.renew(&[&*held]).await.unwrap().gone, []);
    let sessions = lab.store.sessions.lock();
    let ends: Vec<_> = sessions.iter().map(|session| session.inner.over()).collect();
    assert_eq!(ends, [Some(Loss::Closed), None]);
}

#[tokio::test]
async fn a_lost_part_is_closed_only_after_its_holders_are_notified() {
    let lab = Lab::new();
    let held = lab.enter("a").await;
    lab.store.fail_over();
    // The next request for the part finds that its session has ended.
    let waiting = lab.enter("a").await;
    assert!(matches!(waiting.standing(), Standing::Waiting(_)));
    let renewal = lab.renew(&[&*held, &*waiting]).await.unwrap();
    assert_eq!(renewal.gone, [(held.id(), Loss::Replaced)]);
    assert!(
        matches!(waiting.standing(), Standing::Waiting(_)),
        "the lock was handed on before its holder was notified"
    );
    drop(held);
    lab.renew(&[&*waiting]).await.unwrap();
    assert!(matches!(waiting.standing(), Standing::Granted(_)));
}

#[tokio::test]
async fn the_end_of_a_part_is_the_loss_of_its_places_and_of_no_others() {
    let mut lab = Lab::new();
    let kept = lab.enter("a").await;
    let lost = lab.enter(&lab.name_apart_from(&*kept)).await;
    lab.events();
    let session = lab.store.fail_over();
    session.events.send(SessionEvent::Over).unwrap();
    let gone = SessionEvent::Gone(GrantId { place: lost.id(), token: None }, Loss::Replaced);
    assert_eq!(lab.events(), [gone, SessionEvent::Doubtful]);
    assert!(matches!(kept.standing(), Standing::Granted(_)));
    // The last place of a lost part asks for the renewal that closes it.
    drop(lost);
    assert_eq!(lab.events(), [SessionEvent::Doubtful]);
    lab.renew(&[&*kept]).await.unwrap();
    assert_eq!(session.inner.over(), Some(Loss::Closed));
    assert_eq!(lab.opened.session.over(), None);
}

#[tokio::test]
async fn the_opening_of_a_part_outlives_its_callers() {
    let lab = Lab::new();
    let slow = lab.store.inner.delay_next(Operation::Open);
    for _ in 0..3 {
        let mut impatient = lab.opened.session.enter(lab.entry("a", true));
        assert!(is_pending(&mut impatient));
        drop(impatient);
        tokio::task::yield_now().await;
    }
    assert!(slow.release(), "no opening was under way");
    let held = lab.enter("a").await;
    assert!(matches!(held.standing(), Standing::Granted(_)));
    assert_eq!(lab.store.sessions.lock().len(), 1);
}

#[tokio::test]
async fn a_part_that_is_opened_while_the_session_is_closed_is_closed_as_well() {
    let lab = Lab::new();
    let slow = lab.store.inner.delay_next(Operation::Open);
    let mut entering = lab.opened.session.enter(lab.entry("a", true));
    assert!(is_pending(&mut entering));
    tokio::task::yield_now().await;
    lab.opened.session.close().await.unwrap();
    assert!(slow.release(), "no opening was under way");
    let error = entering.await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert_eq!(lab.store.sessions.lock()[0].inner.over(), Some(Loss::Closed));
}

#[tokio::test]
async fn an_outage_of_all_nodes_is_no_confirmation_and_leaves_no_unknown_outcome() {
    let lab = Lab::new();
    lab.store.is_down.store(true, Ordering::Relaxed);
    assert_eq!(lab.renew(&[]).await.unwrap_err().kind(), ErrorKind::Unreachable);
    let error = lab.opened.session.enter(lab.entry("a", true)).await.map(drop).unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unreachable, Outcome::NotApplied), "{error}");
    lab.store.is_down.store(false, Ordering::Relaxed);
    lab.renew(&[]).await.unwrap();
}

#[tokio::test]
async fn the_end_of_a_part_is_a_loss_and_no_answer_of_nodes_that_are_away() {
    let mut lab = Lab::new();
    let lost = lab.enter("a").await;
    lab.store.fail_over();
    lab.store.is_down.store(true, Ordering::Relaxed);
    lab.clock.advance(TTL / 2);
    assert_eq!(lab.renew(&[&*lost]).await.unwrap_err().kind(), ErrorKind::Unreachable);
    let gone = SessionEvent::Gone(GrantId { place: lost.id(), token: None }, Loss::Replaced);
    assert!(lab.events().contains(&gone));
    lab.clock.advance(TTL / 2);
    assert!(lab.renew(&[]).await.is_err());
    assert_eq!(lab.opened.session.over(), Some(Loss::Expired));
}

#[tokio::test]
async fn a_part_that_fails_to_renew_is_asked_again_within_the_same_renewal() {
    let lab = Lab::new();
    let first = lab.enter("a").await;
    let second = lab.enter(&lab.name_apart_from(&*first)).await;
    lab.store.failures.store(1, Ordering::Relaxed);
    let places = [first.id(), second.id()].to_vec();
    let mut renewal = lab.opened.session.renew(&places);
    assert!(is_pending(&mut renewal));
    lab.clock.advance(LONGEST_OF_HOLDERS);
    assert_eq!(renewal.await.unwrap().valid.len(), 2);
}

#[tokio::test]
async fn the_late_news_of_a_closed_part_does_not_end_the_session() {
    let mut lab = Lab::new();
    lab.enter("a").await.leave().await.unwrap();
    let session = lab.store.fail_over();
    for _ in 0..2 {
        lab.renew(&[]).await.unwrap();
    }
    assert_eq!(session.inner.over(), Some(Loss::Closed));
    session.events.send(SessionEvent::Over).unwrap();
    assert_eq!(lab.events(), []);
}

#[tokio::test]
async fn a_grant_ends_a_ttl_after_the_last_renewal_of_its_part() {
    let lab = Lab::new();
    let held = lab.enter("a").await;
    let ends = || match held.standing() {
        Standing::Granted(Grant { valid_until, .. }) => valid_until,
        standing => panic!("{standing:?}"),
    };
    assert_eq!(ends(), Some(lab.clock.now().after(TTL)));
    lab.clock.advance(TTL / 2);
    lab.renew(&[&*held]).await.unwrap();
    assert_eq!(ends(), Some(lab.clock.now().after(TTL)));
}
