//! Waiters whom no event reaches, as when the inotify instances have run out: outside of a runtime there are none. Time
//! is moved by the test, and each sleep of a waiter is one look at the store.

use std::future::poll_fn;
use std::sync::atomic::AtomicU64;
use std::task::Poll;

use futures_executor::block_on;
use futures_util::FutureExt as _;

use super::super::place::REPAIR;
use super::*;

/// A clock that the test moves.
#[derive(Debug, Default)]
struct Stepped {
    nanos: AtomicU64,
    sleeps: AtomicU64,
}

impl Stepped {
    fn go_on(&self, duration: Duration) {
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

/// One holder and those behind it, each in a process of its own.
struct Untold {
    _directory: TempDir,
    clock: Arc<Stepped>,
    clients: Vec<Client>,
    holder: Box<dyn Place>,
    waiting: Vec<BoxFuture<'static, Box<dyn Place>>>,
}

impl Untold {
    fn gather(waiters: usize) -> Self {
        let (directory, clock) = (directory(), Arc::new(Stepped::default()));
        let stores: Vec<_> = (0..=waiters).map(|_| store(&directory)).collect();
        let mut clients: Vec<_> =
            stores.iter().map(|store| Client::with_clock(store, Arc::clone(&clock) as Arc<dyn Clock>)).collect();
        let mut places = clients.iter_mut().map(|client| block_on(client.enter("job", Claim::MUTEX)));
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

    /// Lets time pass in small steps, until somebody is let in or it has passed.
    fn pass(&mut self, mut time: Duration) -> Option<Box<dyn Place>> {
        const STEP: Duration = Duration::from_micros(250);
        while !time.is_zero() {
            time = time.saturating_sub(STEP);
            self.clock.go_on(STEP);
            let mut granted = None;
            self.waiting.retain_mut(|next| match next.now_or_never() {
                Some(place) => granted.replace(place).is_some_and(|_| panic!("two hold the lock")),
                None => true,
            });
            if granted.is_some() {
                return granted;
            }
        }
        None
    }

    /// Hands the lock over to everybody, each of whom keeps it for a while; says how long the slowest hand-over took.
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
fn the_looks_of_one_wait_hardly_grow_with_the_processes_that_no_event_reaches() {
    let per_wait = |waiters: usize, held| {
        let mut crowd = Untold::gather(waiters);
        let slowest = crowd.drain(held);
        (crowd.looks() / waiters as u64, slowest)
    };
    for held in [1, 10, 50].map(Duration::from_millis) {
        let ((few, _), (many, slowest)) = (per_wait(10, held), per_wait(80, held));
        assert!(many <= 2 * few + 6, "{few} looks of each of 10, {many} of each of 80, held for {held:?}");
        assert!(slowest <= Duration::from_millis(50), "{slowest:?}, held for {held:?}");
    }
}

#[test]
fn a_queue_that_stands_still_costs_the_processes_that_no_event_reaches_little() {
    let mut crowd = Untold::gather(80);
    assert!(crowd.pass(Duration::from_secs(2)).is_none());
    let (before, tests) = (crowd.looks(), tested(&crowd));
    assert!(crowd.pass(Duration::from_secs(1)).is_none());
    let (looks, tests) = (crowd.looks() - before, tested(&crowd) - tests);
    assert!(looks <= 80 * 5 + 400, "{looks} looks in a second");
    assert!(tests <= 80 * 2 + 200, "{tests} tests of sessions in a second");
}

fn tested(crowd: &Untold) -> u64 {
    crowd.clients.iter().map(|client| client.core.directory.sessions_tested.load(Ordering::SeqCst)).sum()
}

#[test]
fn one_that_dies_ahead_of_those_whom_no_event_reaches_keeps_nobody_out() {
    let mut crowd = Untold::gather(20);
    assert!(crowd.pass(Duration::from_secs(1)).is_none());
    let is_dead = |process: usize| process % 3 != 2;
    let mut process = 0;
    crowd.waiting.retain(|_| {
        process += 1;
        !is_dead(process)
    });
    for dead in (0..=20).filter(|process| is_dead(*process)) {
        crowd.clients[dead].core.forsake();
    }
    let died = crowd.clock.now();
    let next = crowd.pass(REPAIR * 2).expect("the first that lives is let in");
    token(&*next);
    assert_eq!(next.id().request.client, crowd.clients[2].core.client);
    assert!(crowd.clock.now().since(died) <= REPAIR, "{:?}", crowd.clock.now().since(died));
}
