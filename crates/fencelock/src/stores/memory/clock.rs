//! A clock that stands still until a test moves it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use futures_core::future::BoxFuture;

use crate::sync::Mutex;
use crate::time::{Clock, Moment};

/// A clock for tests: the clock stands still until [`VirtualClock::advance`] moves it. Clones are the same clock.
///
/// The clock needs no runtime: the thread that advances the clock wakes the sleepers, in the order of their moments, and for one moment in
/// the order in which the sleeps began.
///
/// ```
/// use std::time::Duration;
/// use fencelock::time::Clock;
/// use fencelock::memory::VirtualClock;
///
/// let clock = VirtualClock::new();
/// let start = clock.now();
/// clock.advance(Duration::from_secs(10));
/// assert_eq!(clock.now().since(start), Duration::from_secs(10));
/// ```
#[derive(Clone)]
pub struct VirtualClock(Arc<Mutex<Time>>);

struct Time {
    now: Moment,
    wall: SystemTime,
    /// The sleepers, by the moment of their wake-up; the number tells sleepers of one moment apart.
    sleepers: BTreeMap<(Moment, u64), Waker>,
    sleeps: u64,
}

/// Where a virtual clock starts: far enough from the origin that a ttl can be subtracted.
const START: Moment = Moment::from_nanos(1_000_000_000_000);
/// The wall clock's first time, in seconds since 1970.
const WALL_START_SECS: u64 = 1_000_000_000;

impl VirtualClock {
    /// A new clock. [`MemoryStore::with_virtual_clock`](super::MemoryStore::with_virtual_clock) makes one together with
    /// a store that runs on it.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Time {
            now: START,
            wall: SystemTime::UNIX_EPOCH + Duration::from_secs(WALL_START_SECS),
            sleepers: BTreeMap::new(),
            sleeps: 0,
        })))
    }

    /// Moves the clock forward by `duration` and wakes, in order, every sleeper until then.
    ///
    /// The woken tasks run when their executor lets them, and read the clock of that moment. A test that must see each
    /// moment by itself advances to [`VirtualClock::next_sleeper`] again and again.
    pub fn advance(&self, duration: Duration) {
        let woken = {
            let mut time = self.0.lock();
            time.now = time.now.after(duration);
            time.wall += duration;
            let now = time.now;
            let later = time.sleepers.split_off(&(now, u64::MAX));
            std::mem::replace(&mut time.sleepers, later)
        };
        woken.into_values().for_each(Waker::wake);
    }

    /// Moves the wall clock alone forward by `duration`, as after a pause of a virtual machine.
    pub fn jump_wall(&self, duration: Duration) {
        self.0.lock().wall += duration;
    }

    /// The earliest wake-up of a sleeper, if there is one.
    #[must_use]
    pub fn next_sleeper(&self) -> Option<Moment> {
        self.0.lock().sleepers.keys().next().map(|(at, _)| *at)
    }
}

impl Default for VirtualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for VirtualClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "VirtualClock({:?})", self.now().since(START))
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Moment {
        self.0.lock().now
    }

    fn wall(&self) -> SystemTime {
        self.0.lock().wall
    }

    fn sleep_until(&self, at: Moment) -> BoxFuture<'_, ()> {
        Box::pin(Sleep { clock: self, at, key: None })
    }
}

struct Sleep<'a> {
    clock: &'a VirtualClock,
    at: Moment,
    key: Option<(Moment, u64)>,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut time = self.clock.0.lock();
        if time.now >= self.at {
            return Poll::Ready(());
        }
        let key = self.key.unwrap_or_else(|| {
            time.sleeps += 1;
            (self.at, time.sleeps)
        });
        time.sleepers.insert(key, cx.waker().clone());
        drop(time);
        self.key = Some(key);
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.clock.0.lock().sleepers.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as StdMutex;
    use std::task::Wake;

    use super::*;

    struct Note(u32, Arc<StdMutex<Vec<u32>>>);

    impl Wake for Note {
        fn wake(self: Arc<Self>) {
            self.1.lock().unwrap().push(self.0);
        }
    }

    #[test]
    fn sleepers_wake_in_the_order_of_their_moments_and_only_when_they_are_reached() {
        let (clock, order) = (VirtualClock::new(), Arc::new(StdMutex::new(Vec::new())));
        let seconds = [3, 1, 2, 1, 9];
        let mut sleeps: Vec<_> =
            seconds.iter().map(|s| clock.sleep_until(clock.now().after(Duration::from_secs(*s)))).collect();
        for (sleep, number) in sleeps.iter_mut().zip(0..) {
            let waker = Waker::from(Arc::new(Note(number, Arc::clone(&order))));
            assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        assert_eq!(clock.next_sleeper(), Some(clock.now().after(Duration::from_secs(1))));
        clock.advance(Duration::from_secs(3));
        assert_eq!(*order.lock().unwrap(), [1, 3, 2, 0]);
        drop(sleeps);
        assert_eq!(clock.next_sleeper(), None, "a dropped sleep is forgotten");
    }

    #[test]
    fn no_sleep_lasts_until_a_moment_that_has_come() {
        let clock = VirtualClock::new();
        let mut sleep = clock.sleep_until(clock.now());
        assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }

    #[test]
    fn the_wall_clock_can_jump_alone() {
        let clock = VirtualClock::new();
        let (now, wall) = (clock.now(), clock.wall());
        clock.jump_wall(Duration::from_secs(5));
        assert_eq!(clock.now(), now);
        assert_eq!(clock.wall().duration_since(wall).unwrap(), Duration::from_secs(5));
    }
}
