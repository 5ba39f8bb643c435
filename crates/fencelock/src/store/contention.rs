//! The contenders ahead of an acquire that was busy or timed out.

use std::collections::HashMap;
use std::fmt;
use std::time::SystemTime;

use super::{Contender, Foreign, RequestId};
use crate::name::Name;

/// The contenders ahead of an acquire that was busy, timed out or refused to queue.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Contention {
    /// The lock.
    pub name: Name,
    /// The holder at the front of the queue; `None` when the store could not tell in time.
    pub holder: Option<Contender>,
    /// The number of holders.
    pub holders: usize,
    /// Our position in the queue when we gave up, 1 for the front; `None` when we were not in it.
    pub position: Option<usize>,
    /// The number of contenders in the queue, holders and waiters.
    pub queued: usize,
    /// The reason for which the store grants no lock to any client, and until when, in words; `None` for a store that grants locks.
    pub closed: Option<String>,
}

impl Contention {
    /// The contention for `name` when the store gave no answer in time.
    #[must_use]
    pub fn unknown(name: Name) -> Self {
        Self { name, holder: None, holders: 0, position: None, queued: 0, closed: None }
    }

    /// How many waited ahead of us, if our position is known.
    pub(crate) fn waiters_ahead(&self) -> Option<u32> {
        let ahead = self.position?.saturating_sub(1).saturating_sub(self.holders);
        Some(u32::try_from(ahead).unwrap_or(u32::MAX))
    }
}

/// A summary of a queue, as [`Store::contention`](super::Store::contention) returns it.
#[derive(Debug, Clone, Default)]
pub struct Outline {
    /// The holder at the front of the queue.
    pub holder: Option<Contender>,
    /// The number of holders.
    pub holders: usize,
    /// The number of contenders in the queue.
    pub queued: usize,
    /// The positions of the requested contenders, in the order of the request: 1 for the front, `None` for a contender that is not in the queue.
    pub positions: Vec<Option<usize>>,
    /// As in [`Contention`].
    pub closed: Option<String>,
}

impl Outline {
    /// The outline of a queue that was read as a whole.
    #[must_use]
    pub fn of(contenders: &[Contender], mine: &[RequestId]) -> Self {
        let places: HashMap<RequestId, usize> = match mine {
            [] => HashMap::new(),
            _ => contenders.iter().zip(1..).map(|(contender, position)| (contender.id, position)).collect(),
        };
        let holders = contenders.iter().filter(|contender| contender.grant.is_some());
        Self {
            holder: holders.clone().next().cloned(),
            holders: holders.count(),
            queued: contenders.len(),
            positions: mine.iter().map(|id| places.get(id).copied()).collect(),
            closed: None,
        }
    }

    /// The contention as seen from `position`.
    pub(crate) fn contention(&self, name: Name, position: Option<usize>) -> Contention {
        // At the front may stand a waiter, while the store grants no locks.
        let holder = self.holder.clone().filter(|holder| holder.grant.is_some());
        Contention { name, holder, holders: self.holders, position, queued: self.queued, closed: self.closed.clone() }
    }
}

impl fmt::Display for Contention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(holder) = &self.holder else {
            return f.write_str(self.closed.as_deref().unwrap_or("holder unknown"));
        };
        f.write_str("held by ")?;
        match &holder.owner {
            Some(owner) => write!(f, "{owner}")?,
            None => f.write_str("an unknown owner")?,
        }
        if let Some(Foreign { what, .. }) = holder.foreign {
            write!(f, " ({what})")?;
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
        if let Some(trouble) = holder.trouble(&self.name) {
            write!(f, "; {trouble}")?;
        }
        self.closed.iter().try_for_each(|closed| write!(f, "; {closed}"))?;
        match self.position {
            Some(position) => write!(f, "; our position was {position} of {}", self.queued),
            None => write!(f, "; {} in the queue", self.queued),
        }
    }
}
