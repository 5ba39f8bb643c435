//! The scripts on a real server.

mod bed;
mod costs;
mod differential;
mod edges;
mod leases;
mod numbers;
mod sessions;
