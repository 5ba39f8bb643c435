//! The one idea, pure: a lock is a place in a queue. No I/O in here, and no clock.

mod claim;
mod rule;
pub(crate) mod view;
mod wake;

pub use claim::Claim;
pub use rule::{Admission, admits, granted};
pub use wake::{WakeOn, wake_condition, woken_by_departure, woken_by_lightening};
