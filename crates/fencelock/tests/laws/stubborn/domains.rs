//! A store of two parts that live and die by themselves: what becomes of one says nothing of the other.

use std::sync::{Arc, Mutex};

use fencelock::memory::{MemoryStore, VirtualClock};
use fencelock::store::{Capability, Domain, Opened, Opening, Page, Queue, Store};
use fencelock::{Client, Clock, ErrorKind, Event, Guard, GuardState, Health, Io, Loss, Name, Observer, Result};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;

use crate::support::{on_one_thread, pass, secs, settle};

/// Two ways to one memory store, which are cut, healed and expired one by one. Names that start with `b` go the second way.
#[derive(Debug)]
struct TwoParts([MemoryStore; 2], Arc<Refined>);

/// What each part says of itself when a session is opened.
type Refined = Mutex<[Option<Arc<Capability>>; 2]>;

const SECOND: Domain = Domain::new(1);

impl TwoParts {
    fn of(&self, domain: Domain) -> &MemoryStore {
        &self.0[usize::try_from(domain.number()).unwrap()]
    }
}

impl Store for TwoParts {
    fn capability(&self) -> &Capability {
        self.0[0].capability()
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        self.0[0].clock()
    }

    fn domain(&self, name: &Name) -> Domain {
        if name.as_str().starts_with('b') { SECOND } else { Domain::FIRST }
    }

    fn open(&self, opening: Opening) -> BoxFuture<'_, Result<Opened>> {
        let part = usize::try_from(opening.domain.number()).unwrap();
        let capability = self.1.lock().unwrap()[part].clone();
        Box::pin(async move { Ok(Opened { capability, ..self.0[part].open(opening).await? }) })
    }

    fn queue<'a>(&'a self, name: &'a Name, page: Page) -> BoxFuture<'a, Result<Queue>> {
        self.of(self.domain(name)).queue(name, page)
    }

    fn names<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<Vec<Name>>> {
        self.0[0].names(prefix)
    }
}

struct World {
    parts: [MemoryStore; 2],
    clock: VirtualClock,
    client: Client,
    lost: Arc<SessionsLost>,
    refined: Arc<Refined>,
}

/// The parts whose sessions were lost, in that order.
#[derive(Default)]
struct SessionsLost(Mutex<Vec<Domain>>);

impl Observer for SessionsLost {
    fn observe(&self, event: &Event<'_>) {
        if let Event::SessionLost { domain, .. } = event {
            self.0.lock().unwrap().push(*domain);
        }
    }
}

async fn world() -> World {
    world_where(Arc::default()).await
}

async fn world_where(refined: Arc<Refined>) -> World {
    let (store, clock) = MemoryStore::with_virtual_clock();
    let parts = [store.another_process(), store.another_process()];
    let lost = Arc::<SessionsLost>::default();
    let client = Client::builder().io(Io::CurrentRuntime).observer(lost.clone());
    let client = client.connect_store(Arc::new(TwoParts(parts.clone(), Arc::clone(&refined)))).await.unwrap();
    World { parts, clock, client, lost, refined }
}

impl World {
    async fn hold(&self, name: &str) -> Guard {
        self.client.mutex(name).unwrap().acquire().await.unwrap()
    }

    fn sessions(&self) -> usize {
        self.parts[0].census().sessions
    }

    fn sessions_lost(&self) -> Vec<Domain> {
        self.lost.0.lock().unwrap().clone()
    }
}

#[test]
fn a_session_of_each_part_is_opened_when_it_is_first_wanted_and_kept_alive_by_itself() {
    on_one_thread(async {
        let world = world().await;
        assert_eq!(world.sessions(), 1, "connecting opens the first");
        let held = [world.hold("a").await, world.hold("b").await, world.hold("b2").await];
        assert_eq!((world.sessions(), world.client.places()), (2, 3));
        pass(&world.clock, secs(60)).await;
        assert!(held.iter().all(|guard| guard.state() == GuardState::Held));
        world.client.close().await.unwrap();
        assert_eq!(world.parts[0].census(), Default::default());
    });
}

#[test]
fn the_end_of_one_parts_session_loses_only_its_places() {
    on_one_thread(async {
        for (ends, domain, name, other) in [(0, Domain::FIRST, "a", "b"), (1, SECOND, "b", "a")] {
            let world = world().await;
            let (lost, kept) = (world.hold(name).await, world.hold(other).await);
            world.parts[ends].expire_sessions();
            settle().await;
            assert_eq!(lost.lost().now_or_never(), Some(Loss::Expired));
            assert_eq!((kept.state(), world.sessions_lost()), (GuardState::Held, vec![domain]));
            assert_eq!(world.client.health(), Health::NoSession, "the worst of them is told");
            pass(&world.clock, secs(1)).await;
            assert!(matches!(world.client.health(), Health::Confirmed(_)), "another one was opened");
            world.hold(name).await.release().await.unwrap();
            pass(&world.clock, secs(60)).await;
            kept.release().await.unwrap();
            world.client.close().await.unwrap();
            assert_eq!(world.parts[0].census(), Default::default());
        }
    });
}

#[test]
fn a_part_that_falls_silent_makes_only_its_own_places_suspect_and_then_lost() {
    on_one_thread(async {
        let world = world().await;
        let (held, silent) = (world.hold("a").await, world.hold("b").await);
        world.parts[1].partition();
        pass(&world.clock, secs(7)).await;
        assert_eq!((held.state(), silent.state()), (GuardState::Held, GuardState::Suspect));
        assert!(matches!(world.client.health(), Health::Suspect(Some(_))));
        pass(&world.clock, secs(4)).await;
        assert_eq!((held.state(), silent.state()), (GuardState::Held, GuardState::Lost(Loss::Unconfirmed)));
        world.hold("a2").await.release().await.unwrap();
        let tried = world.client.mutex("b2").unwrap().timeout(secs(2));
        let trying = tokio::spawn(async move { tried.acquire().await.map(drop) });
        pass(&world.clock, secs(8)).await;
        assert_eq!(trying.await.unwrap().unwrap_err().kind(), ErrorKind::Unreachable);
        held.release().await.unwrap();
        world.parts[1].heal();
        pass(&world.clock, secs(20)).await;
        world.hold("b").await.release().await.unwrap();
        world.client.close().await.unwrap();
    });
}

#[test]
fn closing_a_client_closes_every_part_that_answers_and_says_which_did_not() {
    on_one_thread(async {
        let world = world().await;
        let (held, silent) = (world.hold("a").await, world.hold("b").await);
        world.parts[1].crash();
        let client = world.client.clone();
        let closing = tokio::spawn(async move { client.close().await });
        pass(&world.clock, secs(60)).await;
        assert_eq!(closing.await.unwrap().unwrap_err().kind(), ErrorKind::Unreachable);
        assert_eq!((held.state(), silent.state()), (GuardState::Lost(Loss::Closed), GuardState::Lost(Loss::Closed)));
        assert_eq!(world.parts[0].census(), Default::default(), "the other one's expired");
    });
}

#[test]
fn what_a_part_turned_out_to_promise_stays_until_its_next_session_says_otherwise() {
    on_one_thread(async {
        let whole = Capability::clone(MemoryStore::new().capability());
        let mut less = whole.clone();
        less.wake_bound = secs(9);
        let world = world_where(Arc::new(Mutex::new([Some(Arc::new(less.clone())), None]))).await;
        assert_eq!(*world.client.capability(), less);
        world.hold("b").await.release().await.unwrap();
        assert_eq!(*world.client.capability(), less, "the other part promises what it always did");
        for (said, told) in [(None, &whole), (Some(Arc::new(less.clone())), &less)] {
            world.refined.lock().unwrap()[0] = said;
            world.parts[0].expire_sessions();
            pass(&world.clock, secs(1)).await;
            assert_eq!(*world.client.capability(), *told);
        }
        world.client.close().await.unwrap();
    });
}

#[test]
fn the_health_of_a_client_comes_back_with_a_part_in_which_nobody_acquires() {
    on_one_thread(async {
        for ends in [0, 1] {
            let world = world().await;
            let held = [world.hold("a").await, world.hold("b").await];
            world.parts[ends].partition();
            pass(&world.clock, secs(90)).await;
            assert_eq!(world.client.health(), Health::NoSession);
            assert_eq!(held[ends].state(), GuardState::Lost(Loss::Unconfirmed));
            world.parts[ends].heal();
            pass(&world.clock, secs(12)).await;
            assert!(matches!(world.client.health(), Health::Confirmed(_)), "{:?}", world.client.health());
        }
    });
}

#[test]
fn a_part_whose_first_session_could_not_be_opened_is_no_lost_session() {
    on_one_thread(async {
        let world = world().await;
        world.parts[1].partition();
        let tried = world.client.mutex("b").unwrap().timeout(secs(2));
        let trying = tokio::spawn(async move { tried.acquire().await.map(drop) });
        settle().await;
        assert!(matches!(world.client.health(), Health::Confirmed(_)), "while it is being opened");
        pass(&world.clock, secs(8)).await;
        assert_eq!(trying.await.unwrap().unwrap_err().kind(), ErrorKind::Unreachable);
        assert!(matches!(world.client.health(), Health::Confirmed(_)), "the session that there is goes on");
        world.parts[1].heal();
        world.hold("b").await.release().await.unwrap();
        world.parts[1].expire_sessions();
        settle().await;
        assert_eq!(world.client.health(), Health::NoSession, "now there was one");
        world.client.close().await.unwrap();
    });
}
