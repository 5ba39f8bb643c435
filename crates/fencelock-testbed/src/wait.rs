//! Waits for states outside of this process.

use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a test waits for a state that takes a second or two on a machine at rest.
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

/// Looks until `is_so`, within [`PATIENCE`].
///
/// # Errors
/// An error if the state never comes; the error names `what`, a clause.
pub fn wait_for(what: &str, is_so: impl FnMut() -> bool) -> io::Result<()> {
    if wait_until(PATIENCE, is_so) { Ok(()) } else { Err(io::Error::other(format!("it never came that {what}"))) }
}

/// Prints how much of its bound a measured time took, and fails above the bound. The deep tier repeats these lines at its end.
///
/// # Panics
/// When it took longer than `bound`.
#[track_caller]
pub fn within(bound: Duration, took: Duration, what: &str) {
    println!("bound: {what}: {:.2} s of {:.2} s", took.as_secs_f64(), bound.as_secs_f64());
    assert!(took <= bound, "{what} took {took:?}, and may take {bound:?}");
}
