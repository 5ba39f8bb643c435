//! Parts that end or do not answer, over a store in memory. The tests with a Cluster are in `tests/redis/cluster.rs`.

use std::sync::OnceLock;
use std::task::{Context, Waker};

use futures_util::FutureExt;

use super::*;
use crate::store::{Break, Capability, Outline, Owner, Page, Queue};
use crate::stores::memory::{MemoryStore, VirtualClock};
use crate::time::Clock;

const TTL: Duration = Duration::from_secs(9);

/// A store whose sessions end by the word of a test, while the server keeps their places, as after a failover.
#[derive(Debug, Clone)]
struct Mortal {
    inner: MemoryStore,
    sessions: Arc<Mutex<Vec<Arc<MortalSession>>>>,
}

struct MortalSession {
    inner: Arc<dyn Session>,
    over: OnceLock<Loss>,
    events: mpsc::UnboundedSender<SessionEvent>,
}

impl std::fmt::Debug for MortalSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MortalSession").field("over", &self.over).finish_non_exhaustive()
    }
}

impl Mortal {
    /// Ends the newest session. The client receives the event when the test sends it.
    fn fail_over(&self) -> Arc<MortalSession> {
        let session = self.sessions.lock().unwrap().last().unwrap().clone();
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
            let opened = self.inner.open(opening).await?;
            let (events, mut received) = mpsc::unbounded_channel();
            let session = Arc::new(MortalSession { inner: opened.session, over: OnceLock::new(), events });
            self.sessions.lock().unwrap().push(Arc::clone(&session));
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
        match self.over() {
            Some(_) => Box::pin(async { Err(crate::kit::own_places::over("renew")) }),
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
        let store = Mortal { inner: inner.another_process(), sessions: Arc::default() };
        let stores = (0..16).map(|_| Arc::new(store.clone()) as Arc<dyn Store>).collect::<Vec<_>>().into();
        let opened = open_session(&stores, opening(&clock), clock.now());
        Self { store, clock, opened, requests: AtomicU64::new(0) }
    }

    fn entry(&self, name: &str, wait: bool) -> Arc<Entry> {
        let id = RequestId { client: 7, number: self.requests.fetch_add(1, Ordering::Relaxed) };
        Arc::new(Entry { name: Name::new(name).unwrap(), claim: Claim::MUTEX, id, wait, purpose: None })
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
    lab.clock.advance(TTL / 6);
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
    lab.clock.advance(TTL / 6);
    assert!(renewal.await.is_err(), "the part did not answer");
    lab.store.inner.heal();
    let held = lab.enter("a").await;
    assert_eq!(lab.renew(&[&*held]).await.unwrap().gone, []);
    let sessions = lab.store.sessions.lock().unwrap();
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
    let other = (0..)
        .map(|number| format!("n{number}"))
        .find(|name| part_of(&Name::new(name).unwrap()) != part_of(&kept.id().name));
    let lost = lab.enter(&other.unwrap()).await;
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
