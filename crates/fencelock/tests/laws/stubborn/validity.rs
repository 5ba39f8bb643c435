//! Grants with an end of their own, such as the grants of a quorum or of a key with a ttl: each is certain for itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use fencelock::inspect::Claim;
use fencelock::memory::{MemoryStore, VirtualClock};
use fencelock::store::{
    Entered, Entry, Left, Opened, Opening, Place, PlaceId, PlaceList, Renewal, Session, Standing, Store,
};
use fencelock::time::{Clock, Moment};
use fencelock::{Client, Guard, GuardState, Io, Loss, Result};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::support::{beneath, ms, on_one_thread, pass, secs, settle};

/// How long each grant, and each renewal of one, is valid.
pub(super) const VALID: Duration = Duration::from_secs(6);
/// The time before its end at which a guard stops, with the default times.
pub(super) const MARGIN: Duration = Duration::from_secs(1);

/// A memory store whose grants are valid for [`VALID`] (or the time of [`World::grants_for`]) from their request on; under names that start with
/// `brief` for 2 s. Renewals leave out every name that starts with `stuck`. The session itself never expires, or only if asked to, for `ttl`.
#[derive(Debug)]
struct Leases {
    store: MemoryStore,
    ttl: Option<Duration>,
    terms: Arc<Terms>,
}

/// The settings of a test, and its counters.
#[derive(Debug, Default)]
struct Terms {
    /// From now on renewals grant half of the ttl.
    halves: AtomicBool,
    valid_ms: AtomicU64,
    entered: AtomicU32,
}

#[derive(Clone)]
struct Lessor {
    clock: Arc<dyn Clock>,
    ttl: Option<Duration>,
    terms: Arc<Terms>,
}

impl Lessor {
    fn valid(&self) -> Moment {
        self.clock.now().after(ms(self.terms.valid_ms.load(Ordering::SeqCst)))
    }
}

impl Store for Leases {
    beneath!(store: capability clock queue names);

    fn open(&self, mut opening: Opening) -> BoxFuture<'_, Result<Opened>> {
        Box::pin(async move {
            let lessor = Lessor { clock: opening.clock.clone(), ttl: self.ttl, terms: Arc::clone(&self.terms) };
            // The session of the store beneath outlives every test.
            opening.ttl = secs(86_400);
            let opened = self.store.open(opening).await?;
            Ok(Opened { session: Arc::new(LeaseSession { session: opened.session, lessor }), ttl: self.ttl, ..opened })
        })
    }
}

struct LeaseSession {
    session: Arc<dyn Session>,
    lessor: Lessor,
}

impl Session for LeaseSession {
    beneath!(session: over withdraw close);

    fn enter(&self, entry: Arc<Entry>) -> BoxFuture<'_, Result<Entered>> {
        self.lessor.terms.entered.fetch_add(1, Ordering::SeqCst);
        let valid = match entry.name.as_str().starts_with("brief") {
            true => self.lessor.clock.now().after(secs(2)),
            false => self.lessor.valid(),
        };
        Box::pin(async move {
            Ok(match self.session.enter(entry).await? {
                Entered::In(place) => Entered::In(Box::new(Lease { place, valid, lessor: self.lessor.clone() })),
                refused => refused,
            })
        })
    }

    fn renew<'a>(&'a self, places: &'a dyn PlaceList) -> BoxFuture<'a, Result<Renewal>> {
        let valid = self.lessor.valid();
        Box::pin(async move {
            let renewal = self.session.renew(places).await?;
            let renewed = places.all().into_iter().filter(|place| !place.name.as_str().starts_with("stuck"));
            let ttl = self.lessor.ttl.filter(|_| self.lessor.terms.halves.load(Ordering::SeqCst)).map(|ttl| ttl / 2);
            Ok(Renewal { ttl, valid: renewed.map(|place| (place, valid)).collect(), ..renewal })
        })
    }
}

struct Lease {
    place: Box<dyn Place>,
    valid: Moment,
    lessor: Lessor,
}

impl Lease {
    fn with_end(&self, standing: Standing) -> Standing {
        match standing {
            Standing::Granted(mut grant) => {
                grant.valid_until = Some(self.valid);
                Standing::Granted(grant)
            }
            other => other,
        }
    }
}

impl Place for Lease {
    fn id(&self) -> PlaceId {
        self.place.id()
    }

    fn standing(&self) -> Standing {
        self.with_end(self.place.standing())
    }

    fn next(&mut self, until: Moment) -> BoxFuture<'_, Result<Standing>> {
        Box::pin(async move {
            let standing = self.place.next(until).await?;
            self.valid = self.lessor.valid();
            Ok(self.with_end(standing))
        })
    }

    fn lighten(&mut self, claim: Claim) -> BoxFuture<'_, Result<()>> {
        self.place.lighten(claim)
    }

    fn leave(&mut self) -> BoxFuture<'_, Result<Left>> {
        self.place.leave()
    }
}

pub(super) struct World {
    pub(super) store: MemoryStore,
    pub(super) clock: VirtualClock,
    pub(super) client: Client,
    terms: Arc<Terms>,
}

pub(super) async fn world(ttl: Option<Duration>) -> World {
    let (store, clock) = MemoryStore::with_virtual_clock();
    let terms = Arc::<Terms>::default();
    let leases = Leases { store: store.clone(), ttl, terms: Arc::clone(&terms) };
    let client = Client::builder().io(Io::CurrentRuntime).connect_store(Arc::new(leases)).await.unwrap();
    let world = World { store, clock, client, terms };
    world.grants_for(VALID);
    world
}

/// Runs `test` on a runtime of one thread, in a world whose sessions live for `ttl`.
pub(super) fn with_leases(ttl: Option<Duration>, test: impl AsyncFnOnce(World)) {
    on_one_thread(async { test(world(ttl).await).await });
}

impl World {
    /// From now on grants and renewals are valid for `valid`.
    pub(super) fn grants_for(&self, valid: Duration) {
        self.terms.valid_ms.store(u64::try_from(valid.as_millis()).unwrap(), Ordering::SeqCst);
    }

    /// The number of requests for a place that the store received.
    pub(super) fn entered(&self) -> u32 {
        self.terms.entered.load(Ordering::SeqCst)
    }

    async fn hold(&self, name: &str) -> Guard {
        self.client.mutex(name).unwrap().acquire().await.unwrap()
    }
}

#[test]
fn a_hold_ends_with_its_own_validity_and_the_others_stay() {
    with_leases(None, async |world| {
        let (stuck, renewed) = (world.hold("stuck").await, world.hold("renewed").await);
        assert_eq!(stuck.remaining(), VALID - MARGIN);
        pass(&world.clock, VALID - MARGIN - ms(100)).await;
        assert_eq!(stuck.state(), GuardState::Held);
        assert!(stuck.lost().now_or_never().is_none());
        pass(&world.clock, ms(100)).await;
        assert_eq!(
            stuck.lost().now_or_never(),
            Some(Loss::Unconfirmed),
            "the loss is reported at the end, not at the first question"
        );
        pass(&world.clock, secs(60)).await;
        assert_eq!(renewed.state(), GuardState::Held);
        assert_eq!(world.store.census().places, 1, "what was lost is left in the store as well");
        renewed.release().await.unwrap();
        world.client.close().await.unwrap();
    });
}

#[test]
fn a_grant_that_ended_in_a_pause_is_lost_at_the_first_question() {
    with_leases(None, async |world| {
        let (first, second) = (world.hold("first").await, world.hold("second").await);
        world.clock.advance(VALID - MARGIN);
        // No task of ours has run since.
        assert_eq!(first.remaining(), Duration::ZERO);
        assert_eq!(first.state(), GuardState::Lost(Loss::Unconfirmed));
        assert!(second.check().is_err());
        settle().await;
        assert_eq!(world.store.census().places, 0);
        world.client.close().await.unwrap();
    });
}

#[test]
fn a_renewal_that_comes_after_the_end_of_a_grant_does_not_bring_it_back() {
    with_leases(None, async |world| {
        let held = world.hold("late").await;
        world.store.slow_renewals(VALID);
        pass(&world.clock, VALID * 3).await;
        assert_eq!(held.lost().now_or_never(), Some(Loss::Unconfirmed));
        assert_eq!(held.remaining(), Duration::ZERO);
        world.store.slow_renewals(Duration::ZERO);
        world.client.close().await.unwrap();
    });
}

#[test]
fn a_grant_that_ended_in_a_pause_stays_ended_although_a_renewal_was_answered_meanwhile() {
    with_leases(None, async |world| {
        let held = world.hold("job").await;
        world.store.slow_renewals(secs(1));
        // A renewal is on its way. After the pause its answer and the end of the grant arrive together.
        pass(&world.clock, ms(2_600)).await;
        world.clock.advance(secs(3));
        assert_eq!(held.remaining(), Duration::ZERO);
        settle().await;
        assert_eq!(held.lost().now_or_never(), Some(Loss::Unconfirmed));
        world.store.slow_renewals(Duration::ZERO);
        world.client.close().await.unwrap();
    });
}

#[test]
fn remaining_is_the_least_of_the_session_the_grant_and_the_limit_of_the_hold() {
    on_one_thread(async {
        for (ttl, least) in [(Some(secs(10)), VALID - MARGIN), (Some(secs(6)), VALID - MARGIN), (None, VALID - MARGIN)]
        {
            let world = world(ttl).await;
            assert_eq!(world.hold("job").await.remaining(), least, "{ttl:?}");
        }
        let world = world(Some(secs(10))).await;
        world.clock.advance(secs(2));
        let held = world.hold("job").await;
        assert_eq!(held.remaining(), VALID - MARGIN);
        let limited = world.client.mutex("limited").unwrap().max_hold(secs(3)).acquire().await.unwrap();
        assert_eq!(limited.remaining(), secs(3));
    });
}

#[test]
fn a_shorter_ttl_that_a_renewal_grants_counts_from_that_renewal_on() {
    with_leases(Some(secs(10)), async |world| {
        world.terms.halves.store(true, Ordering::SeqCst);
        let held = world.hold("job").await;
        // Renewed after 2.5 s: from then on the session lives for 5 s, and is renewed as often as that takes.
        pass(&world.clock, ms(2_500)).await;
        assert_eq!(held.remaining(), secs(5) - MARGIN);
        pass(&world.clock, secs(60)).await;
        assert!(held.remaining() > secs(2), "{:?}", held.remaining());
        assert_eq!(held.state(), GuardState::Held);
        held.release().await.unwrap();
        world.client.close().await.unwrap();
    });
}

#[test]
fn a_grant_whose_end_a_renewal_brings_forward_is_reported_lost_at_that_end() {
    with_leases(None, async |world| {
        let held = world.hold("job").await;
        // Renewed after 2.5 s: from then on it is certain for 2.1 s, and the next renewal would come 0.4 s later.
        world.grants_for(ms(3_100));
        pass(&world.clock, ms(2_500)).await;
        assert_eq!(held.remaining(), ms(2_100));
        world.store.partition();
        pass(&world.clock, ms(2_000)).await;
        assert!(held.lost().now_or_never().is_none());
        pass(&world.clock, ms(100)).await;
        assert_eq!(held.lost().now_or_never(), Some(Loss::Unconfirmed), "not at the next wake");
    });
}

#[test]
fn a_grant_that_ended_before_its_answer_came_is_released() {
    with_leases(None, async |world| {
        let delayed = world.store.delay_next(fencelock::memory::Operation::Enter);
        let lock = world.client.mutex("brief").unwrap();
        let acquiring = tokio::spawn(async move { lock.acquire().await });
        settle().await;
        delayed.caught().await;
        // Within the request deadline, and longer than the certainty of the grant.
        world.clock.advance(secs(3));
        delayed.release();
        settle().await;
        assert_eq!(world.store.census().places, 0, "given back before another is asked for");
        world.clock.advance(ms(20));
        settle().await;
        let held = acquiring.await.unwrap().unwrap();
        assert_eq!(held.remaining(), secs(2) - MARGIN, "the next one");
        held.release().await.unwrap();
        world.client.close().await.unwrap();
        assert_eq!(world.store.census(), Default::default());
    });
}
