//! The primitives: each only a claim, and what its guard may do.

mod guard;
mod mutex;

pub use guard::Guard;
pub use mutex::Mutex;
