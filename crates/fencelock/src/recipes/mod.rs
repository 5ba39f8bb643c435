//! What people build on a lock: thin files over what users have themselves.

mod multi;

pub use multi::{MultiGuard, MultiLock};
