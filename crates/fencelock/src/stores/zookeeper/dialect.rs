//! The node names of each family of clients, as data.

use crate::queue::Claim;
use crate::store::Peer;

/// A kind of lock. Each has nodes of its own, and only one kind is in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Mutex,
    ReadWrite,
    Semaphore,
}

impl Kind {
    pub(super) const fn of(claim: Claim) -> Self {
        match (claim.weight(), claim.capacity()) {
            (1, 1) => Self::Mutex,
            (_, Claim::UNBOUNDED) => Self::ReadWrite,
            _ => Self::Semaphore,
        }
    }
}

/// The node names of a family of clients, by kind of lock.
#[derive(Debug)]
pub(super) struct Dialect {
    /// The value of the URL option `layout`.
    pub(super) name: &'static str,
    /// The layout's name in the capability.
    pub(super) layout: &'static str,
    /// The clients whose locks exclude ours and are excluded by them.
    pub(super) same_as: &'static [Peer],
    /// Whether the nodes of all locks are children of one node.
    pub(super) one_parent: bool,
    pub(super) mutex: Form,
    /// The forms for a reader and a writer.
    pub(super) read_write: Option<(Form, Form)>,
    pub(super) semaphore: Option<Form>,
    /// The other clients' contenders in the queues.
    pub(super) marks: &'static [Mark],
}

/// The name of our node: `before` + request id + `after` + number.
#[derive(Debug)]
pub(super) struct Form {
    pub(super) before: &'static str,
    pub(super) id: IdForm,
    pub(super) after: After,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum IdForm {
    /// `a0000000-0000-0001-…`: 36 characters.
    Dashed,
    /// 32 hexadecimal digits.
    Plain,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum After {
    Text(&'static str),
    /// `-` and the name of the lock: many locks share one parent.
    Key,
    /// `-__PERM__2of5__`: the name holds the permits requested, or every listing would cost a read of each node.
    Permit,
}

/// The text before the number shows the kind of client that made the node.
#[derive(Debug)]
pub(super) struct Mark {
    pub(super) text: &'static str,
    pub(super) claim: Claim,
    /// Whether mutexes queue with such a node. Otherwise the node is of another kind of lock: ahead of a mutex, a conflict.
    pub(super) with_mutexes: bool,
    /// The claim among readers and writers; `None` for another kind of lock.
    pub(super) with_readers: Option<Claim>,
}

const fn mark(text: &'static str, claim: Claim, with_mutexes: bool, with_readers: Option<Claim>) -> Mark {
    Mark { text, claim, with_mutexes, with_readers }
}

/// The mark of kazoo's mutexes and writers alike.
pub(super) const LOCK: &str = "__lock__";
pub(super) const RLOCK: &str = "__rlock__";
/// The marks of Curator's readers and writers.
pub(super) const READ: &str = "__READ__";
pub(super) const WRIT: &str = "__WRIT__";

/// All of these draw their numbers from one counter, so waiting for the smaller numbers never deadlocks.
pub(super) const CURATOR_MARKS: &[Mark] = &[
    mark("lock-", Claim::MUTEX, true, None),
    mark(LOCK, Claim::MUTEX, true, None),
    mark(RLOCK, Claim::READER, true, None),
    mark(READ, Claim::READER, false, Some(Claim::READER)),
    mark(WRIT, Claim::WRITER, false, Some(Claim::WRITER)),
];

const KAZOO_MARKS: &[Mark] = &[
    mark("lock-", Claim::MUTEX, true, None),
    mark(LOCK, Claim::MUTEX, true, Some(Claim::WRITER)),
    mark(RLOCK, Claim::READER, true, Some(Claim::READER)),
    mark(READ, Claim::READER, false, None),
    mark(WRIT, Claim::WRITER, false, None),
];

const fn form(before: &'static str, id: IdForm, after: After) -> Form {
    Form { before, id, after }
}

/// Permits have the same form in every dialect: no other client has such semaphores.
const PERMIT: Form = form("_c_", IdForm::Plain, After::Permit);

/// Every dialect; the first one is the default.
pub(super) static DIALECTS: [Dialect; 3] = [
    Dialect {
        name: "curator",
        layout: "Curator's nodes (_c_<id>-lock-<number>, __READ__, __WRIT__), and __PERM__<k>of<n>__ for semaphores",
        same_as: &[Peer::Curator, Peer::GoZk, Peer::KazooWithPattern],
        one_parent: false,
        mutex: form("_c_", IdForm::Dashed, After::Text("-lock-")),
        read_write: Some((
            form("_c_", IdForm::Dashed, After::Text("-__READ__")),
            form("_c_", IdForm::Dashed, After::Text("-__WRIT__")),
        )),
        semaphore: Some(PERMIT),
        marks: CURATOR_MARKS,
    },
    Dialect {
        name: "kazoo",
        layout: "kazoo's nodes (<id>__lock__<number>, __rlock__), and __PERM__<k>of<n>__ for semaphores",
        same_as: &[Peer::Kazoo, Peer::GoZk],
        one_parent: false,
        mutex: form("", IdForm::Plain, After::Text(LOCK)),
        read_write: Some((form("", IdForm::Plain, After::Text(RLOCK)), form("", IdForm::Plain, After::Text(LOCK)))),
        semaphore: Some(PERMIT),
        marks: KAZOO_MARKS,
    },
    Dialect {
        name: "shared",
        layout: "_c_<id>-<name><number> under one node for all locks",
        same_as: &[Peer::ZkLock],
        one_parent: true,
        mutex: form("_c_", IdForm::Plain, After::Key),
        // To every other client, a mark for readers would be part of the name, and so of another lock.
        read_write: None,
        semaphore: None,
        marks: &[],
    },
];

impl Dialect {
    /// Whether the dialect has readers, writers and permits as well as mutexes.
    pub(super) const fn has_shared_claims(&self) -> bool {
        self.read_write.is_some() && self.semaphore.is_some()
    }
}
