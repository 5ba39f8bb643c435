//! The clock for evidence of the session's life.

use std::fmt;
use std::time::Duration;

/// A clock: the time since an arbitrary origin. Never goes back.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Duration;
}

/// `CLOCK_BOOTTIME` on Linux, which counts the time that the machine was suspended; elsewhere the standard library's `Instant`, which may
/// not.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[cfg(target_os = "linux")]
    fn now(&self) -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
    }

    #[cfg(not(target_os = "linux"))]
    fn now(&self) -> Duration {
        static ORIGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        ORIGIN.get_or_init(std::time::Instant::now).elapsed()
    }
}
