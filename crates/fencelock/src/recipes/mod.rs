//! What people build on a lock, each over what a program could write itself: several locks at once, names that choose their store, elections,
//! windows, and what is made once.

mod election;
mod multi;
mod once;
mod pattern;
mod router;
mod window;

pub use election::{Election, Leader, Leading};
pub use multi::{MultiGuard, MultiLock};
pub use once::Once;
pub use router::Router;
pub use window::{Passage, Window};
