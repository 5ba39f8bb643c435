//! The client with hostile or broken servers, and tests that judge time.

#[path = "../client/common/mod.rs"]
mod common;

mod hostile;
mod liveness;
mod reconnect;
