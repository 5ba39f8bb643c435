//! Queues, as others see them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

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
#[non_exhaustive]
pub struct Queue {
    /// The lock.
    pub name: Name,
    /// Those on the page that was asked for.
    pub contenders: Vec<Contender>,
    /// How many are in the queue, on whatever page.
    pub queued: usize,
    /// Locks of other clients that may be held beside this one, on whatever page they stand; empty on most stores, whose layouts nobody else has.
    pub beside: Vec<Beside>,
    /// Things in the store that look like part of this queue and are not.
    pub strangers: Vec<String>,
    /// Until when the store grants no lock to any client, and why, in words; `None` for a store that grants locks.
    pub closed: Option<String>,
}

impl Queue {
    /// One page of a queue that was read as a whole.
    #[must_use]
    pub fn page_of(name: Name, everybody: Vec<Contender>, page: Page) -> Self {
        let queued = everybody.len();
        let (contenders, beside, strangers) = (page.of(everybody).collect(), Vec::new(), Vec::new());
        Self { name, contenders, queued, beside, strangers, closed: None }
    }
}

/// One contender, as others see it.
#[derive(Debug, Clone)]
#[non_exhaustive]
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
    /// What it is, where another client made it; `None` for a fencelock's.
    pub foreign: Option<Foreign>,
    /// When its grant ends unless it is prolonged, where the store tells of each grant by itself.
    pub expiry: Expiry,
    /// What is wrong with its process, where the store lives on its host and can tell.
    pub process: Option<ProcessState>,
}

/// What is wrong with the process of a contender that is there nevertheless.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProcessState {
    /// It is stopped (SIGSTOP, Ctrl-Z, a debugger): it keeps its place, and those behind it wait.
    Stopped,
    /// It is dead, and others keep its session open.
    Gone {
        /// The processes that do, as far as this user can see.
        kept_by: Vec<u32>,
    },
}

/// When a grant ends by the store's clock, unless it is prolonged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expiry {
    /// The store does not tell.
    Unknown,
    /// Never: only its holder, or a break, ends it. What another client left so may be no lock at all, but data.
    Never,
    /// After this time.
    In(Duration),
}

impl Contender {
    /// The longest purpose, in bytes.
    pub const MAX_PURPOSE: usize = 512;

    /// A fencelock's contender of which no more is known.
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

    /// What is wrong with its process, and what helps, in words for people; `None` where nothing is known to be. It is in the queue of `name`.
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
                "there is no process {pid} here, where it ended or never was; which one keeps its session open cannot be seen from here"
            ),
            ProcessState::Gone { kept_by } => {
                let pids: Vec<_> = kept_by.iter().map(u32::to_string).collect();
                format!("process {pid} is gone; its session is kept open by process {}", pids.join(", "))
            }
        })
    }
}

/// A contender of another client. It hears of no break, and goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Foreign {
    /// Which lock of which client it is, as far as its traces in the store tell.
    pub what: &'static str,
    /// Whether it waits for those ahead of it; [`Waits::Yes`] when there is nobody to wait for.
    pub waits: Waits,
}

/// Whether a contender of another client waits for those ahead of it. One that does not holds the lock beside them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Waits {
    /// It passes them over: it holds the lock, too.
    No,
    /// That depends on how it is set up, which the store does not tell.
    Perhaps,
    /// It does.
    Yes,
}

/// Locks of one kind of other clients under the same name that may be held beside the queue's.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Beside {
    /// Which lock of which client they are.
    pub what: &'static str,
    /// How many hold it or wait for it.
    pub contenders: usize,
    /// Whether they wait for the contenders ahead of them, [`Waits::No`] or [`Waits::Perhaps`].
    pub waits: Waits,
}
