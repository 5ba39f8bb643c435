//! ZooKeeper servers: a single one, or an ensemble of three.

mod ensemble;
mod hostile;
mod server;
mod settings;
mod shared;
mod snapshot;

pub use ensemble::Ensemble;
pub use hostile::{Manner, hostile};
pub use server::{Mode, Server};
pub use settings::{Settings, Tls};
pub use shared::{KIND, shared};
