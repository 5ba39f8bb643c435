//! The client, where servers mean harm or are broken, and where time is judged.

#[path = "../client/common/mod.rs"]
mod common;

mod hostile;
mod liveness;
mod reconnect;
