//! Waiters that receive no event, as after the last inotify instance is taken. Outside of a runtime there are no events. Time is moved by
//! the test, and each sleep of a waiter is one look at the store.

use std::future::poll_fn;
use std::sync::atomic::AtomicU64;
use std::task::Poll;

use futures_executor::block_on;
use futures_util::FutureExt as _;

use super::super::place;
use super::*;

const REPAIR: Duration = place::REPAIR.0;

/// A clock that the test moves.
#[derive(Debug, Default)]
struct Stepped {
    nanos: AtomicU64,
    sleeps: AtomicU64,
}

impl Stepped {
    fn advance(&self, duration: Duration) {
        self.nanos.fetch_add(u64::try_from(duration.as_nanos()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for Stepped {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.nanos.load(Ordering::SeqCst))
    }

    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }

    fn sleep_until(&self, at: Moment) -> BoxFuture<'_, ()> {
        self.sleeps.fetch_add(1, Ordering::SeqCst);
        Box::pin(poll_fn(move |_| if self.now() >= at { Poll::Ready(()) } else { Poll::Pending }))
    }
}

/// A holder and the waiters behind it, each in a process of its own.
struct Crowd {
    _directory: TempDir,
    clock: Arc<Stepped>,
    clients: Vec<Client>,
    holder: Box<dyn Place>,
    waiting: Vec<BoxFuture<'static, Box<dyn Place>>>,
}

impl Crowd {
    fn gather(waiters: usize) -> Self {
        Self::gather_as(Claim::MUTEX, Claim::MUTEX, waiters)
    }

    fn gather_as(first: Claim, others: Claim, waiters: usize) -> Self {
        let (directory, clock) = (directory(), Arc::new(Stepped::default()));
        let stores: Vec<_> = (0..=waiters).map(|_| store(&directory)).collect();
        let mut clients: Vec<_> =
            stores.iter().map(|store| Client::with_clock(store, Arc::clone(&clock) as Arc<dyn Clock>)).collect();
        let claims = std::iter::once(first).chain(std::iter::repeat(others));
        let mut places = clients.iter_mut().zip(claims).map(|(client, claim)| block_on(client.enter("job", claim)));
        let holder = places.next().unwrap();
        let waiting = places.map(|mut place| {
            async move {
                place.next(Moment::NEVER).await.unwrap();
                place
            }
            .boxed()
        });
        let waiting = waiting.collect();
        Self { _directory: directory, clock, clients, holder, waiting }
    }

    fn looks(&self) -> u64 {
        self.clock.sleeps.load(Ordering::SeqCst)
    }

    fn listings(&self) -> u64 {
        self.clients.iter().map(|client| client.core.directory.counts.listings.load(Ordering::SeqCst)).sum()
    }

    /// Lets `time` pass in small steps, or until a waiter is granted.
    fn pass(&mut self, time: Duration) -> Option<Box<dyn Place>> {
        let mut granted = self.pass_until(1, time);
        assert!(granted.len() <= 1, "two hold the lock");
        granted.pop()
    }

    /// The same until `count` waiters are granted.
    fn pass_until(&mut self, count: usize, mut time: Duration) -> Vec<Box<dyn Place>> {
        const STEP: Duration = Duration::from_micros(250);
        let mut granted = Vec::new();
        while !time.is_zero() && granted.len() < count {
            time = time.saturating_sub(STEP);
            self.clock.advance(STEP);
            self.waiting.retain_mut(|next| match next.now_or_never() {
                Some(place) => {
                    granted.push(place);
                    false
                }
                None => true,
            });
        }
        granted
    }

    /// Hands the lock over to every waiter, each of which keeps it for a while; says how long the slowest hand-over took.
    fn drain(&mut self, held: Duration) -> Duration {
        let mut slowest = Duration::ZERO;
        while !self.waiting.is_empty() {
            assert!(self.pass(held).is_none(), "it is held");
            block_on(self.holder.leave()).unwrap();
            let left = self.clock.now();
            self.holder = self.pass(REPAIR).expect("the next one is let in");
            slowest = slowest.max(self.clock.now().since(left));
        }
        slowest
    }
}

#[test]
fn without_events_the_next_waiter_looks_soon_and_rarely_while_the_queue_does_not_move() {
    for held in [1, 10, 50, 1000].map(Duration::from_millis) {
        let mut crowd = Crowd::gather(40);
        let slowest = crowd.drain(held);
        assert!(slowest <= place::POLL.1 + Duration::from_millis(1), "{slowest:?}, held for {held:?}");
    }
}

#[test]
fn a_queue_that_stands_still_costs_the_processes_that_no_event_reaches_little() {
    let mut crowd = Crowd::gather(80);
    assert!(crowd.pass(Duration::from_secs(2)).is_none());
    let (before, tests) = (crowd.looks(), tested(&crowd));
    assert!(crowd.pass(Duration::from_secs(1)).is_none());
    let (looks, tests) = (crowd.looks() - before, tested(&crowd) - tests);
    assert!(looks <= 80 * 5 + 400, "{looks} looks in a second");
    assert!(tests <= 80 * 5 + 400, "{tests} tests of sessions in a second");
}

fn tested(crowd: &Crowd) -> u64 {
    crowd.clients.iter().map(|client| client.core.directory.counts.sessions_tested.load(Ordering::SeqCst)).sum()
}

#[test]
fn a_contender_that_dies_ahead_of_waiters_without_events_keeps_none_out() {
    for (first, others) in [(Claim::MUTEX, Claim::MUTEX), (Claim::WRITER, Claim::READER), (permits(3), permits(1))] {
        let mut crowd = Crowd::gather_as(first, others, 20);
        assert!(crowd.pass(Duration::from_secs(1)).is_none());
        let is_dead = |process: usize| process % 3 != 2;
        let mut process = 0;
        crowd.waiting.retain(|_| {
            process += 1;
            !is_dead(process)
        });
        for dead in (0..=20).filter(|process| is_dead(*process)) {
            crowd.clients[dead].core.drop_session();
        }
        let died = crowd.clock.now();
        let next = crowd.pass_until(1, REPAIR * 2);
        token(&**next.first().expect("the first that lives is let in"));
        assert!(others != Claim::MUTEX || next[0].id().request.client == crowd.clients[2].core.client);
        let took = crowd.clock.now().since(died);
        assert!(took <= REPAIR * 5 / 4, "{took:?} for {others}");
    }
}

fn permits(weight: u32) -> Claim {
    Claim::new(weight, 3).unwrap()
}

#[test]
fn readers_and_permits_whom_no_event_reaches_cost_little_while_their_queue_stands_still() {
    for (first, others) in [(Claim::WRITER, Claim::READER), (permits(3), permits(1))] {
        let mut crowd = Crowd::gather_as(first, others, 80);
        assert!(crowd.pass(Duration::from_secs(2)).is_none());
        let before = [crowd.looks(), tested(&crowd), crowd.listings()];
        assert!(crowd.pass(Duration::from_secs(1)).is_none());
        let [looks, tests, listings] = [crowd.looks(), tested(&crowd), crowd.listings()];
        assert!(looks - before[0] <= 80 * 5 + 400, "{} looks of {others} in a second", looks - before[0]);
        assert!(tests - before[1] <= 80 * 5 + 400, "{} tests of sessions by {others}", tests - before[1]);
        let most = if others.is_reader() { 0 } else { looks - before[0] };
        assert!(listings - before[2] <= most, "{} listings by {others}", listings - before[2]);
    }
}

#[test]
fn readers_whom_no_event_reaches_are_let_in_together_within_the_time_that_they_waited() {
    for held in [10, 100, 1000].map(Duration::from_millis) {
        let mut crowd = Crowd::gather_as(Claim::WRITER, Claim::READER, 40);
        assert!(crowd.pass(held).is_none(), "it is held");
        block_on(crowd.holder.leave()).unwrap();
        let left = crowd.clock.now();
        assert_eq!(crowd.pass_until(40, REPAIR).len(), 40);
        let took = crowd.clock.now().since(left);
        assert!(
            took <= held.min(Duration::from_millis(200)) + Duration::from_millis(20),
            "{took:?}, held for {held:?}"
        );
    }
}

#[test]
fn permits_whom_no_event_reaches_are_handed_on_soon_and_never_beyond_the_capacity() {
    let mut crowd = Crowd::gather_as(permits(3), permits(1), 60);
    assert!(crowd.pass(REPAIR).is_none(), "all are held");
    block_on(crowd.holder.leave()).unwrap();
    let mut held = crowd.pass_until(3, REPAIR);
    let mut slowest = Duration::ZERO;
    while !crowd.waiting.is_empty() {
        assert_eq!(held.len(), 3);
        assert!(crowd.pass(Duration::from_millis(5)).is_none(), "all are held");
        block_on(held.remove(0).leave()).unwrap();
        let left = crowd.clock.now();
        held.extend(crowd.pass(REPAIR));
        slowest = slowest.max(crowd.clock.now().since(left));
    }
    assert!(slowest <= place::POLL.1 + Duration::from_millis(1), "{slowest:?}");
}
