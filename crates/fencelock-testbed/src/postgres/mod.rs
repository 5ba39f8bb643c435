//! PostgreSQL servers, and everything that breaks them.

mod pooler;
mod server;
mod settings;
mod shared;

pub use pooler::Pooler;
pub use server::Server;
pub use settings::{Settings, Tls};
pub use shared::{KIND, LIMITED, LIMITS, OWNER, PLANTED, POOLED, shared};
