//! The identifiers of clients, requests, places and grants.

use std::fmt;

use crate::name::Name;
use crate::token::FencingToken;

/// A client, as other clients see it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Owner {
    /// A random number, the `client` of all its request ids.
    pub client: u64,
    /// The host's name, or the name that another family's client gives itself; empty when opaque.
    pub host: String,
    /// The process; 0 when opaque, or unknown, if another client gives its host only.
    pub pid: u32,
}

impl Owner {
    /// The client of that number, on `host` (empty when opaque), in the process `pid` (0 when opaque).
    #[must_use]
    pub fn new(client: u64, host: impl Into<String>, pid: u32) -> Self {
        Self { client, host: host.into(), pid }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pid, &*self.host) {
            (_, "") => write!(f, "client {:016x}", self.client),
            (0, host) => f.write_str(host),
            (pid, host) => write!(f, "pid {pid} on {host}"),
        }
    }
}

/// The id of one request of one client; no two requests ever share one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId {
    /// A random number that the client drew when it was made.
    pub client: u64,
    /// The number of the request within the client, from 1.
    pub number: u64,
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:x}", self.client, self.number)
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The id of a place: a lock and the request that took it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PlaceId {
    /// The lock.
    pub name: Name,
    /// The request.
    pub request: RequestId,
}

/// The id of a grant: a place, and the token of the grant.
///
/// A request may be granted twice: its `enter` is repeated after a lost answer, and the first grant was broken meanwhile. So every event
/// of a grant names its number as well, and concerns no other grant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GrantId {
    /// The place.
    pub place: PlaceId,
    /// The grant's token. `None` where the store has no tokens, and for a waiting place: then the id names the place in any state.
    pub token: Option<FencingToken>,
}

impl GrantId {
    /// Whether this is the grant of `place` with that token.
    #[must_use]
    pub fn is_of(&self, place: &PlaceId, token: Option<FencingToken>) -> bool {
        self.place == *place && (self.token.is_none() || token.is_none() || self.token == token)
    }
}
