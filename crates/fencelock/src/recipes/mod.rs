//! What people build on a lock: thin files over what users have themselves.

mod multi;
mod pattern;
mod router;

pub use multi::{MultiGuard, MultiLock};
pub use router::Router;
