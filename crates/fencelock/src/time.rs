//! The clock that validity is counted on: a clock that advances while the machine sleeps.

use std::fmt;
use std::time::{Duration, SystemTime};

use futures_core::future::BoxFuture;

/// An instant on a [`Clock`]: nanoseconds since an arbitrary origin, the same for all clocks of one kind on one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    /// The origin of the clock.
    pub const ORIGIN: Self = Self(0);
    /// Later than every moment that a clock shows.
    pub const NEVER: Self = Self(u64::MAX);

    /// The moment `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// `duration` later, or [`Moment::NEVER`].
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// `duration` earlier, at the earliest the origin. [`Moment::NEVER`] stays never.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        if self == Self::NEVER {
            return self;
        }
        Self(self.0.saturating_sub(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// The time from `earlier` to this moment; zero if this is the earlier one. [`Duration::MAX`] for [`Moment::NEVER`].
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        if self == Self::NEVER { Duration::MAX } else { Duration::from_nanos(self.0.saturating_sub(earlier.0)) }
    }
}

/// The engine's clock and timer. Tests own one; everything else uses [`SystemClock`].
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Now. Never goes back, and counts the time that the machine was suspended.
    fn now(&self) -> Moment;

    /// The wall clock, only to notice that a virtual machine was paused.
    fn wall(&self) -> SystemTime;

    /// Completes once [`Clock::now`] is at or past `at`; never for [`Moment::NEVER`].
    fn sleep_until(&self, at: Moment) -> BoxFuture<'_, ()>;
}

/// The outcome of `work`; `None` if `limit` comes first.
pub(crate) async fn outcome_before<T>(clock: &dyn Clock, limit: Moment, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        outcome = work => Some(outcome),
        () = clock.sleep_until(limit) => None,
    }
}

/// `CLOCK_BOOTTIME` on Linux; elsewhere the time since the process asked first, by the standard library's `Instant`, which may stop in suspend.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

/// The longest single timer: tokio's timers stop in suspend, so a long sleep looks at the real clock after each of these intervals.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Clock for SystemClock {
    #[cfg(target_os = "linux")]
    fn now(&self) -> Moment {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Moment(now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs())
    }

    #[cfg(not(target_os = "linux"))]
    fn now(&self) -> Moment {
        static ORIGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        Moment::ORIGIN.after(ORIGIN.get_or_init(std::time::Instant::now).elapsed() + Duration::from_nanos(1))
    }

    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }

    fn sleep_until(&self, at: Moment) -> BoxFuture<'_, ()> {
        if at == Moment::NEVER {
            // Most waits have no limit, and need no timer.
            return Box::pin(std::future::pending());
        }
        Box::pin(async move {
            loop {
                let now = self.now();
                if now >= at {
                    return;
                }
                tokio::time::sleep(at.since(now).min(LOOK_AGAIN)).await;
            }
        })
    }
}
