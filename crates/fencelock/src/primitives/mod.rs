//! The primitives: each only a claim, and what its guard may do.

mod guard;
pub mod kind;
mod lock;
mod mutex;
mod rwlock;
mod semaphore;

pub use guard::{AnyGuard, Guard};
pub use mutex::Mutex;
pub use rwlock::{DowngradeError, ReadGuard, RwLock, WriteGuard};
pub use semaphore::{PermitGuard, Semaphore};
