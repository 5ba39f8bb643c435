//! The store `zk:` beside what other clients and operators do to the same nodes, on real servers.

mod breaks;
mod crowd;
mod cuts;
mod edges;
mod foreign;
mod hand_over;
mod kinds;
mod lab;
mod outage;
mod reach;
mod requests;
mod sequence;
mod tls;
