//! Stores and runtimes that never come to their senses: every loop pauses, every wait has its end.

mod late;
mod news;
mod pauses;
mod refined;
mod validity;

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use crate::support::{beneath, in_world, ms, on_one_thread, pass, secs, settle};
use fencelock::inspect::Claim;
use fencelock::memory::{MemoryStore, VirtualClock};
use fencelock::observe::{Event, Observer};
use fencelock::store::{
    Entered, Entry, Left, Opened, Opening, Place, PlaceId, PlaceList, Renewal, RequestId, Session, Standing, Store,
};
use fencelock::time::Moment;
use fencelock::{Client, Error, ErrorKind, Io, Loss, Name, Result, Retry};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

/// A memory store that misbehaves in every session after the first.
#[derive(Debug)]
struct Stubborn {
    store: MemoryStore,
    opened: AtomicU32,
    /// Renewals; where it evicts, entries.
    asked: Arc<AtomicU32>,
    how: How,
    over: Arc<AtomicBool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// The store keeps its contract.
    Honest,
    /// Every `enter` reports the end of the session, and no other call does.
    NeverIn,
    /// Sessions live for a tenth of what was asked, and `close` is never answered.
    BriefAndSilent,
    /// On the first session, `enter` is not answered before the end of the session, and then reports `Closed`.
    ClosedOnceOver,
    /// Every session, also the first: a renewal proves only the state of a third of the default ttl before.
    ProvesThePast,
    /// A test ends the first session: an `enter` reports that, and no event does.
    TellsOnlyWhoAsks,
    /// Every session, also the first: a contender that enters is removed at once, before the session reports its place.
    Evicts,
    /// Every session, also the first: the first `enter` takes effect and is not answered; the second one reports a break of that
    /// place, which still exists.
    BreaksUnanswered,
    /// Every session, also the first: the first `enter` says why nothing can be granted, and no other one is answered.
    SaysWhyOnce,
}

impl Stubborn {
    fn new(store: &MemoryStore, how: How) -> Arc<Self> {
        let (over, asked) = (Arc::default(), Arc::default());
        Arc::new(Self { store: store.another_process(), opened: AtomicU32::new(0), asked, how, over })
    }
}

/// Runs `test` on a runtime of one thread, with a client of such a store and the clock of both.
fn on_stubborn(how: How, test: impl AsyncFnOnce(Arc<Stubborn>, Client, VirtualClock)) {
    on_one_thread(async {
        let (store, clock) = MemoryStore::with_virtual_clock();
        let stubborn = Stubborn::new(&store, how);
        let client = Client::builder().io(Io::CurrentRuntime).connect_store(stubborn.clone()).await.unwrap();
        test(stubborn, client, clock).await;
    });
}

struct StubbornSession(Arc<dyn Session>, How, Arc<AtomicBool>, Arc<AtomicU32>);

impl Session for StubbornSession {
    fn over(&self) -> Option<Loss> {
        match self.1 {
            How::NeverIn => None,
            How::TellsOnlyWhoAsks => self.2.load(Ordering::SeqCst).then_some(Loss::Restarted),
            _ => self.0.over(),
        }
    }

    fn enter(&self, entry: Arc<Entry>) -> BoxFuture<'_, Result<Entered>> {
        match self.1 {
            How::NeverIn => Box::pin(async { Err(Error::new(ErrorKind::Lost, "enter", "the session is over")) }),
            How::ClosedOnceOver => Box::pin(poll_fn(|_| match self.2.load(Ordering::SeqCst) {
                true => Poll::Ready(Err(Error::new(ErrorKind::Closed, "enter", "the session was closed"))),
                false => Poll::Pending,
            })),
            How::TellsOnlyWhoAsks if self.over().is_some() => {
                Box::pin(async { Err(Error::new(ErrorKind::Lost, "enter", "the server was started anew")) })
            }
            How::Evicts => Box::pin(async {
                self.3.fetch_add(1, Ordering::SeqCst);
                let Entered::In(mut place) = self.0.enter(entry).await? else { unreachable!("no other is there") };
                place.leave().await?;
                Ok(Entered::In(Box::new(Gone(place, Loss::Removed))))
            }),
            How::BreaksUnanswered => Box::pin(async {
                match (self.3.fetch_add(1, Ordering::SeqCst), self.0.enter(entry).await?) {
                    (0, _) => Err(Error::new(ErrorKind::Unreachable, "enter", "the answer was lost")
                        .retryable()
                        .outcome_unknown()),
                    (1, Entered::In(place)) => Ok(Entered::In(Box::new(Gone(place, Loss::Broken)))),
                    (_, entered) => Ok(entered),
                }
            }),
            How::SaysWhyOnce => match self.3.fetch_add(1, Ordering::SeqCst) {
                0 => {
                    Box::pin(async { Err(Error::new(ErrorKind::Unreachable, "enter", "the disk is full").retryable()) })
                }
                _ => Box::pin(std::future::pending()),
            },
            _ => self.0.enter(entry),
        }
    }

    fn withdraw<'a>(&'a self, name: &'a Name, id: RequestId) -> BoxFuture<'a, Result<()>> {
        self.0.withdraw(name, id)
    }

    fn renew<'a>(&'a self, places: &'a dyn PlaceList) -> BoxFuture<'a, Result<Renewal>> {
        let is_counted = !matches!(self.1, How::Evicts | How::BreaksUnanswered | How::SaysWhyOnce);
        self.3.fetch_add(u32::from(is_counted), Ordering::SeqCst);
        let lag = if self.1 == How::ProvesThePast { LAG } else { Duration::ZERO };
        Box::pin(async move {
            let renewal = self.0.renew(places).await?;
            Ok(Renewal { confirmed: renewal.confirmed.before(lag), ..renewal })
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        match self.1 {
            How::BriefAndSilent => Box::pin(std::future::pending()),
            _ => self.0.close(),
        }
    }
}

/// A place that reports nothing but its loss.
struct Gone(Box<dyn Place>, Loss);

impl Place for Gone {
    fn id(&self) -> PlaceId {
        self.0.id()
    }

    fn standing(&self) -> Standing {
        Standing::Lost(self.1)
    }

    fn next(&mut self, _: Moment) -> BoxFuture<'_, Result<Standing>> {
        Box::pin(std::future::ready(Ok(self.standing())))
    }

    fn lighten(&mut self, claim: Claim) -> BoxFuture<'_, Result<()>> {
        self.0.lighten(claim)
    }

    fn leave(&mut self) -> BoxFuture<'_, Result<Left>> {
        self.0.leave()
    }
}

impl Store for Stubborn {
    beneath!(store: capability clock queue names);

    fn open(&self, mut opening: Opening) -> BoxFuture<'_, Result<Opened>> {
        Box::pin(async move {
            let before = self.opened.fetch_add(1, Ordering::SeqCst);
            assert!(before < 500, "sessions are opened without end");
            let brief = self.how == How::BriefAndSilent && before > 0;
            if brief {
                opening.ttl /= 10;
            }
            let opened = self.store.open(opening).await?;
            let session = match before {
                1.. if matches!(self.how, How::ClosedOnceOver | How::TellsOnlyWhoAsks) => opened.session,
                0 if matches!(self.how, How::Honest | How::NeverIn | How::BriefAndSilent) => opened.session,
                _ => {
                    let (over, asked) = (Arc::clone(&self.over), Arc::clone(&self.asked));
                    Arc::new(StubbornSession(opened.session, self.how, over, asked)) as Arc<dyn Session>
                }
            };
            Ok(Opened { session, ..opened })
        })
    }
}

/// A third of the default ttl.
const LAG: Duration = Duration::from_millis(3_333);

#[test]
fn a_request_that_finds_its_session_over_asks_for_the_cause_and_all_guards_are_notified() {
    on_stubborn(How::TellsOnlyWhoAsks, async |stubborn, client, _| {
        let held = client.mutex("a").unwrap().acquire().await.unwrap();
        stubborn.over.store(true, Ordering::SeqCst);
        let other = client.mutex("b").unwrap().acquire().await.unwrap();
        assert_eq!(held.lost().now_or_never(), Some(Loss::Restarted));
        other.release().await.unwrap();
        client.close().await.unwrap();
    });
}

#[test]
fn an_acquire_whose_every_session_ends_at_once_pauses_and_gives_up() {
    on_stubborn(How::NeverIn, async |stubborn, client, clock| {
        stubborn.store.expire_sessions();
        settle().await;
        let lock = client.mutex("a").unwrap();
        let acquiring = tokio::spawn(async move { lock.acquire().await });
        pass(&clock, secs(40)).await;
        assert_eq!(acquiring.await.unwrap().unwrap_err().kind(), ErrorKind::Lost);
        client.close().await.unwrap();
        assert_eq!(stubborn.store.census(), Default::default());
    });
}

#[test]
fn an_acquire_whose_every_place_is_taken_out_at_once_pauses_and_gives_up() {
    on_stubborn(How::Evicts, async |stubborn, client, clock| {
        let lock = client.mutex("a").unwrap();
        let acquiring = tokio::spawn(async move { lock.acquire().await });
        settle().await;
        let entered = stubborn.asked.load(Ordering::SeqCst);
        assert!(entered <= 2, "entered {entered} times while time stood still");
        pass(&clock, secs(40)).await;
        assert_eq!(acquiring.await.unwrap().unwrap_err().kind(), ErrorKind::Lost);
        let entered = stubborn.asked.load(Ordering::SeqCst);
        assert!(entered < 60, "entered {entered} times in 30 s");
        client.close().await.unwrap();
        assert_eq!(stubborn.store.census(), Default::default());
    });
}

#[test]
fn a_request_that_was_never_answered_is_withdrawn_in_every_state_of_its_place() {
    on_stubborn(How::BreaksUnanswered, async |stubborn, client, clock| {
        let lock = client.mutex("a").unwrap();
        let acquiring = tokio::spawn(async move { lock.acquire().await });
        pass(&clock, secs(5)).await;
        assert!(acquiring.is_finished(), "it waits behind its own place");
        let guard = acquiring.await.unwrap().unwrap();
        assert_eq!(stubborn.store.census().places, 1);
        guard.release().await.unwrap();
        client.close().await.unwrap();
    });
}

#[test]
fn an_acquire_whose_request_fails_since_its_session_ended_continues_with_the_next_one() {
    on_stubborn(How::ClosedOnceOver, async |stubborn, client, _| {
        let lock = client.mutex("a").unwrap();
        let acquiring = tokio::spawn(async move { lock.acquire().await });
        settle().await;
        stubborn.over.store(true, Ordering::SeqCst);
        stubborn.store.expire_sessions();
        settle().await;
        acquiring.await.unwrap().unwrap().release().await.unwrap();
    });
}

#[test]
fn closing_ends_although_the_close_of_a_refused_session_is_never_answered() {
    on_stubborn(How::BriefAndSilent, async |stubborn, client, clock| {
        stubborn.store.expire_sessions();
        settle().await;
        assert_eq!(client.mutex("a").unwrap().acquire().await.unwrap_err().kind(), ErrorKind::Config);
        let closing = tokio::spawn(async move { client.close().await });
        pass(&clock, secs(60)).await;
        assert!(closing.is_finished(), "close waits for ever");
    });
}

#[test]
fn an_acquire_on_a_client_whose_runtime_is_gone_ends_in_an_error() {
    let (store, clock) = MemoryStore::with_virtual_clock();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mine = Stubborn::new(&store, How::Honest);
    let client =
        runtime.block_on(async { Client::builder().io(Io::CurrentRuntime).connect_store(mine).await.unwrap() });
    drop(runtime);
    on_one_thread(async {
        let lock = client.mutex("a").unwrap();
        let acquiring = tokio::spawn(async move { lock.acquire().await });
        pass(&clock, secs(40)).await;
        acquiring.await.unwrap().map(|_| ()).unwrap_err();
        assert_eq!(store.census(), Default::default(), "the sessions that it tried are closed");
    });
}

#[test]
fn nothing_remains_certain_once_the_session_has_ended() {
    /// Looks at the second guard during the event of the first one's loss.
    struct Looker(std::sync::Mutex<Vec<fencelock::Guard>>, std::sync::Mutex<Vec<Duration>>);
    impl Observer for Looker {
        fn observe(&self, event: &Event<'_>) {
            if matches!(event, Event::Lost { .. }) {
                self.1.lock().unwrap().extend(self.0.lock().unwrap().iter().map(fencelock::Guard::remaining));
            }
        }
    }
    in_world(async |world, []| {
        let store = world.store.another_process();
        let looker = Arc::new(Looker(Default::default(), Default::default()));
        let options = Client::builder().io(Io::CurrentRuntime).observer(Arc::clone(&looker) as Arc<dyn Observer>);
        let client = options.connect_store(store.clone()).await.unwrap();
        for name in ["a", "b"] {
            let guard = client.mutex(name).unwrap().acquire().await.unwrap();
            looker.0.lock().unwrap().push(guard);
        }
        store.expire_sessions();
        settle().await;
        assert_eq!(*looker.1.lock().unwrap(), vec![Duration::ZERO; 4]);
        let guards = std::mem::take(&mut *looker.0.lock().unwrap());
        assert!(guards.iter().all(|guard| guard.lost().now_or_never() == Some(Loss::Expired)));
    });
}

#[test]
fn a_retry_without_pauses_is_refused() {
    on_one_thread(async {
        for retry in [Retry::default().shortest_pause(Duration::ZERO), Retry::default().longest_pause(Duration::ZERO)] {
            let connected = Client::builder().retry(retry).connect("memory:").await;
            assert_eq!(connected.unwrap_err().kind(), ErrorKind::Config, "{retry:?}");
        }
    });
}

#[test]
fn renewals_that_prove_only_the_past_come_in_their_time_and_raise_no_doubt() {
    on_stubborn(How::ProvesThePast, async |stubborn, client, clock| {
        let guard = client.mutex("a").unwrap().acquire().await.unwrap();
        for _ in 0..600 {
            pass(&clock, ms(100)).await;
            assert_eq!(guard.state(), fencelock::GuardState::Held);
            assert!(guard.remaining() <= secs(9));
        }
        let renewed = stubborn.asked.load(Ordering::SeqCst);
        assert!((20..=24).contains(&renewed), "a minute took {renewed} renewals, one each 2.5 s");
        // The session is certain only for the proved time: the last renewal was sent at most 2.5 s ago.
        stubborn.store.partition();
        let left = guard.remaining();
        assert!(left <= secs(9) - LAG && left >= secs(9) - LAG - ms(2_600), "{left:?}");
        pass(&clock, left).await;
        assert_eq!(guard.state(), fencelock::GuardState::Lost(Loss::Unconfirmed));
    });
}

#[test]
fn an_acquire_without_a_last_reply_fails_with_an_earlier_error_of_the_store() {
    for is_try in [true, false] {
        on_stubborn(How::SaysWhyOnce, async |stubborn, client, clock| {
            let lock = client.mutex("a").unwrap();
            let acquiring = tokio::spawn(async move {
                match is_try {
                    true => lock.try_acquire().await,
                    false => lock.acquire_within(secs(2)).await,
                }
            });
            pass(&clock, secs(10)).await;
            let error = acquiring.now_or_never().expect("its time has passed").unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unreachable);
            assert!(format!("{error:?}").contains("the disk is full"), "{error:?}");
            assert!(!error.to_string().contains("did not answer"), "it did: {error}");
            assert!(stubborn.asked.load(Ordering::SeqCst) > 1, "it was asked again");
        });
    }
}
