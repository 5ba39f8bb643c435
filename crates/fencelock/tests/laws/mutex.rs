//! The laws of the mutex, which are the laws of every exclusive claim.

#[path = "exclusive/acquire.rs"]
mod acquire;
#[path = "exclusive/edge.rs"]
mod edge;
#[path = "exclusive/guard.rs"]
mod guard;

use fencelock::inspect::Claim;
use fencelock::{Client, Mutex, Result};

/// The exclusive form of this primitive, for the laws.
fn whole(client: &Client, name: &str) -> Result<Mutex> {
    client.mutex(name)
}

/// A claim that cannot share a queue with it.
const OTHER_KIND: Claim = Claim::READER;
