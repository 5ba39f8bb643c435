//! The primitives: each only a claim, and what its guard may do.

mod guard;
mod guard_error;
pub mod kind;
mod lock;
mod mutex;
mod note;
mod rwlock;
mod semaphore;
mod sticky;

pub use guard::{AnyGuard, Guard};
pub use guard_error::GuardError;
pub use mutex::Mutex;
pub use rwlock::{ReadGuard, RwLock, WriteGuard};
pub use semaphore::{PermitGuard, Semaphore};
pub(crate) use sticky::StickyLocks;
