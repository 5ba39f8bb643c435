//! Queues, as other clients see them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{Grant, Owner, RequestId};
use crate::name::Name;
use crate::queue::Claim;

/// A part of a queue: up to `limit` contenders after the first `skip`, counted from the front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// The number of contenders at the front that are left out.
    pub skip: usize,
    /// The most contenders that are read.
    pub limit: usize,
}

impl Page {
    /// The whole queue.
    pub const ALL: Self = Self { skip: 0, limit: usize::MAX };

    /// The items of `all` that are on this page.
    pub fn of<T>(self, all: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
        all.into_iter().skip(self.skip).take(self.limit)
    }
}

/// A queue, or one [`Page`] of it, as it stood when it was read, front first.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Queue {
    /// The lock.
    pub name: Name,
    /// The contenders on the requested page.
    pub contenders: Vec<Contender>,
    /// The number of contenders in the queue, on all pages.
    pub queued: usize,
    /// Locks of other clients that this queue does not exclude, on all pages; empty on most stores, whose layouts no other client has.
    pub foreign_locks: Vec<ForeignLock>,
    /// Entries in the store that look like part of this queue and are not.
    pub strangers: Vec<String>,
    /// The reason for which the store grants no lock to any client, and until when, in words; `None` for a store that grants locks.
    pub closed: Option<String>,
}

impl Queue {
    /// A page of a queue that was read as a whole.
    #[must_use]
    pub fn page_of(name: Name, contenders: Vec<Contender>, page: Page) -> Self {
        let queued = contenders.len();
        let (contenders, foreign_locks, strangers) = (page.of(contenders).collect(), Vec::new(), Vec::new());
        Self { name, contenders, queued, foreign_locks, strangers, closed: None }
    }
}

/// A contender, as other clients see it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Contender {
    /// The contender's request.
    pub id: RequestId,
    /// The contender's client, where the store names it.
    pub owner: Option<Owner>,
    /// The contender's claim.
    pub claim: Claim,
    /// The contender's grant, if it has one.
    pub grant: Option<Grant>,
    /// The time since which the contender holds (when granted) or waits, by the store's clock.
    pub since: Option<SystemTime>,
    /// The contender's purpose.
    pub purpose: Option<Arc<str>>,
    /// The kind of lock, if another family of clients made it; `None` for a fencelock's.
    pub foreign: Option<Foreign>,
    /// When the contender's grant ends without a renewal, where the store keeps an end for each grant.
    pub expiry: Expiry,
    /// A fault of its process, where the store is on the same host and can see it.
    pub process: Option<ProcessState>,
}

/// A fault of the process of a contender that still has its place.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProcessState {
    /// The process is stopped (SIGSTOP, Ctrl-Z, a debugger): its place stays, and the waiters behind it wait.
    Stopped,
    /// The process is dead, and other processes keep its session open.
    Gone {
        /// The processes that keep the session open, as far as this user can see.
        kept_by: Vec<u32>,
    },
}

/// When a grant ends by the store's clock, unless a renewal extends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expiry {
    /// Unknown to the store.
    Unknown,
    /// Never: only its holder, or a break, ends it. Such a record of another client may be no lock at all, but data.
    Never,
    /// After this time.
    In(Duration),
}

impl Contender {
    /// The longest purpose, in bytes.
    pub const MAX_PURPOSE: usize = 512;

    /// A fencelock's contender with no further details.
    #[must_use]
    pub const fn new(id: RequestId, claim: Claim) -> Self {
        Self {
            id,
            owner: None,
            claim,
            grant: None,
            since: None,
            purpose: None,
            foreign: None,
            expiry: Expiry::Unknown,
            process: None,
        }
    }

    /// The fault of its process and the remedy, in words for people; `None` without a known fault. The contender is in the queue of `name`.
    #[must_use]
    pub fn trouble(&self, name: &Name) -> Option<String> {
        let pid = self.owner.as_ref()?.pid;
        Some(match self.process.as_ref()? {
            ProcessState::Stopped if self.grant.is_some() => format!(
                "process {pid} is stopped and keeps the lock: `kill -CONT {pid}` continues it, `fencelock break {name}` takes the lock from it"
            ),
            ProcessState::Stopped => {
                format!("process {pid} is stopped and keeps its place: `kill -CONT {pid}` continues it")
            }
            ProcessState::Gone { kept_by } if kept_by.is_empty() => format!(
                "there is no process {pid} here: it ended, or never was here; this user cannot see which process keeps its session open"
            ),
            ProcessState::Gone { kept_by } => {
                let pids: Vec<_> = kept_by.iter().map(u32::to_string).collect();
                format!("process {pid} is gone; its session is kept open by process {}", pids.join(", "))
            }
        })
    }
}

/// A contender of another client. A break does not notify it, and it continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Foreign {
    /// The kind of lock and client, as far as the store's data show.
    pub what: &'static str,
    /// Whether the contender waits for the contenders ahead of it; [`Waits::Yes`] if there are none.
    pub waits: Waits,
}

/// Whether a contender of another client waits for the contenders ahead of it. A contender that does not wait holds the lock, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Waits {
    /// No: the contender holds the lock, too.
    No,
    /// The other program's configuration decides, which the store does not show.
    Perhaps,
    /// Yes.
    Yes,
}

/// A kind of lock of other clients under the same name, which the queue does not exclude.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForeignLock {
    /// The kind of lock, and its client.
    pub what: &'static str,
    /// The number of contenders that hold that lock or wait for it.
    pub contenders: usize,
    /// Whether these contenders wait for the contenders ahead of them: [`Waits::No`] or [`Waits::Perhaps`].
    pub waits: Waits,
}
