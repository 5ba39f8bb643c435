//! etcd servers, and everything that breaks them.

mod server;
mod shared;

pub use server::Server;
pub use shared::KIND;
