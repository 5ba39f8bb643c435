//! Waiting for the state of something outside of this process.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a state is waited for that takes a second or two on a machine at rest.
pub const PATIENCE: Duration = Duration::from_secs(180);

const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Looks until `is_so`; false when `patience` ends before.
pub fn wait_until(patience: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if is_so() {
            return true;
        }
        if start.elapsed() >= patience {
            return false;
        }
        sleep(LOOK_AGAIN);
    }
}
