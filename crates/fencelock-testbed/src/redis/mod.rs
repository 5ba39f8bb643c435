//! Redis servers: a single one, a replica, a Sentinel or a node of a cluster, and everything that breaks them.

mod cluster;
mod hands;
mod server;
mod settings;
mod shared;
mod watched;

pub use cluster::{Cluster, shared_cluster};
pub use hands::{Hands, Reply};
pub use server::Server;
pub use settings::{Role, Settings, Tls};
pub use shared::{KIND, shared};
pub use watched::{NO_FAILOVER, Watched, cut_replicas_off, shared_watched};
