//! Queues, as others see them.

use std::sync::Arc;
use std::time::SystemTime;

use super::{Grant, Owner, RequestId};
use crate::name::Name;
use crate::queue::Claim;

/// Which part of a queue is read: up to `limit` contenders after the first `skip`, counted from the front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// How many contenders at the front are left out.
    pub skip: usize,
    /// How many are read at most.
    pub limit: usize,
}

impl Page {
    /// The whole queue.
    pub const ALL: Self = Self { skip: 0, limit: usize::MAX };

    /// What of `all` is on this page.
    pub fn of<T>(self, all: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
        all.into_iter().skip(self.skip).take(self.limit)
    }
}

/// A queue, or one [`Page`] of it, as it stood when it was read, front first.
#[derive(Debug, Clone)]
pub struct Queue {
    /// The lock.
    pub name: Name,
    /// Those on the page that was asked for.
    pub contenders: Vec<Contender>,
    /// How many are in the queue, on whatever page.
    pub queued: usize,
    /// Things in the store that look like part of this queue and are not.
    pub strangers: Vec<String>,
}

impl Queue {
    /// One page of a queue that was read as a whole.
    #[must_use]
    pub fn page_of(name: Name, everybody: Vec<Contender>, page: Page) -> Self {
        let queued = everybody.len();
        Self { name, contenders: page.of(everybody).collect(), queued, strangers: Vec::new() }
    }
}

/// One contender, as others see it.
#[derive(Debug, Clone)]
pub struct Contender {
    /// Its request.
    pub id: RequestId,
    /// Who it is, where the store tells.
    pub owner: Option<Owner>,
    /// What it asked for.
    pub claim: Claim,
    /// Its grant, if it has one.
    pub grant: Option<Grant>,
    /// Since when it holds the lock (when granted) or waits, by the store's clock.
    pub since: Option<SystemTime>,
    /// What it wants the lock for.
    pub purpose: Option<Arc<str>>,
}
