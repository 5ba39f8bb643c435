//! Who was ahead of an acquire that was busy or timed out.

use std::fmt;
use std::time::SystemTime;

use super::{Contender, Queue, RequestId};
use crate::name::Name;

/// Who was ahead of an acquire that was busy, timed out or refused to queue.
#[derive(Debug, Clone)]
pub struct Contention {
    /// The lock.
    pub name: Name,
    /// The holder at the front of the queue; `None` when the store could not tell in time.
    pub holder: Option<Contender>,
    /// How many hold the lock.
    pub holders: usize,
    /// Our position in the queue when we gave up, 1 for the front; `None` when we were not in it.
    pub position: Option<usize>,
    /// How many were in the queue, holders and waiters.
    pub queued: usize,
}

impl Contention {
    /// What `queue` says to the contender `mine`, if it is still in it.
    #[must_use]
    pub fn new(queue: &Queue, mine: Option<RequestId>) -> Self {
        let holder = queue.contenders.iter().find(|contender| contender.grant.is_some());
        Self {
            name: queue.name.clone(),
            holder: holder.cloned(),
            holders: queue.contenders.iter().filter(|contender| contender.grant.is_some()).count(),
            position: mine
                .and_then(|id| queue.contenders.iter().position(|contender| contender.id == id))
                .map(|index| index + 1),
            queued: queue.contenders.len(),
        }
    }

    /// When the queue could not be read.
    #[must_use]
    pub fn unknown(name: Name) -> Self {
        Self { name, holder: None, holders: 0, position: None, queued: 0 }
    }
}

impl fmt::Display for Contention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(holder) = &self.holder else {
            return f.write_str("holder unknown");
        };
        f.write_str("held by ")?;
        match &holder.owner {
            Some(owner) => write!(f, "{owner}")?,
            None => f.write_str("an unknown owner")?,
        }
        if let Some(held) = holder.since.and_then(|since| SystemTime::now().duration_since(since).ok()) {
            write!(f, " for {:.1} s", held.as_secs_f64())?;
        }
        if let Some(purpose) = &holder.purpose {
            write!(f, ", purpose {purpose:?}")?;
        }
        if let Some(token) = holder.grant.and_then(|grant| grant.token) {
            write!(f, ", token {token}")?;
        }
        if self.holders > 1 {
            write!(f, ", and by {} more", self.holders - 1)?;
        }
        match self.position {
            Some(position) => write!(f, "; our position was {position} of {}", self.queued),
            None => write!(f, "; {} in the queue", self.queued),
        }
    }
}
