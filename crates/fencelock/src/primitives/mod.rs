//! The primitives: each is a claim, and the methods of its guard.

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
