//! What people build on a lock: thin files over what users have themselves.

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
