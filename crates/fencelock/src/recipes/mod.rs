//! What people build on a lock: thin files over what users have themselves.

mod election;
mod multi;
mod pattern;
mod router;

pub use election::{Election, Leader, Leading};
pub use multi::{MultiGuard, MultiLock};
pub use router::Router;
