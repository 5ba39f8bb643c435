//! Every client that takes part, and the lock that it takes.

use std::process::Command;

use anyhow::{Context as _, Result};
use fencelock_interop::{Built, Foreign, Purpose};
use fencelock_testbed::process;

/// A program that drives clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Program {
    /// This one.
    Fencelock,
    /// This one, as a driver of the crate `rslock`.
    Rslock,
    /// A client of another language.
    Other(Foreign),
}

impl Program {
    /// The command that starts it, bound to our life.
    pub(crate) fn command(self, built: &Built) -> Result<Command> {
        match self {
            Self::Fencelock => this("driver"),
            Self::Rslock => this("rslock"),
            Self::Other(driver) => Ok(built.command(driver, Purpose::Playing)),
        }
    }

    /// The servers, as an argument of the client's driver. Only fencelock's driver takes the options.
    pub(crate) fn servers(self, servers: &str, options: &str) -> String {
        match self {
            Self::Fencelock if !options.is_empty() => format!("{servers}?{options}"),
            _ => servers.to_owned(),
        }
    }
}

fn this(driver: &str) -> Result<Command> {
    let mut command = process::bound(std::env::current_exe().context("where is this program?")?);
    command.arg(driver);
    Ok(command)
}

impl Client {
    /// Whether several clients of this kind may hold the lock at once.
    pub(crate) fn is_shared(&self) -> bool {
        self.recipe == "ReadLock" || self.recipe.ends_with(":read") || self.recipe.ends_with("#read")
    }

    /// Whether a waiter can be stopped. Go's locks wait for as long as it takes.
    pub(crate) fn can_give_up(&self) -> bool {
        self.program != GO
    }
}

const CURATOR_5_9: Program = Program::Other(Foreign::Curator59);
const CURATOR_5_4: Program = Program::Other(Foreign::Curator54);
const PYTHON: Program = Program::Other(Foreign::Kazoo);
/// Lists nodes for the harness, too.
pub(crate) const GO: Program = Program::Other(Foreign::Go);

/// The places of nodes of contenders for one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nodes {
    /// Under a node of that name.
    Apart,
    /// All names under one parent.
    Together,
    /// Under `leases` below a node of that name: Curator's semaphores.
    Leases,
    /// Holders under a node of that name, waiters next to it: kazoo's semaphore.
    Siblings,
    /// On Redis: the key of a string is the name, with this before it.
    String(&'static str),
    /// The key of a string on each of several masters of Redis.
    Masters(&'static str),
}

impl Nodes {
    /// The key of `name` on Redis; `None` on ZooKeeper.
    pub(crate) fn key(self, parent: &str, name: &str) -> Option<String> {
        match self {
            Self::String(before) | Self::Masters(before) => Some(format!("{before}{parent}:{name}")),
            _ => None,
        }
    }

    /// The nodes whose children contend for `name`.
    pub(crate) fn queues(self, parent: &str, name: &str) -> Vec<String> {
        match self {
            Self::Apart => vec![format!("{parent}/{name}")],
            Self::Together => vec![parent.to_owned()],
            Self::Leases => vec![format!("{parent}/{name}/leases")],
            Self::Siblings => vec![format!("{parent}/{name}"), format!("{parent}/{name}-__lock__")],
            Self::String(_) | Self::Masters(_) => self.key(parent, name).into_iter().collect(),
        }
    }
}

/// A lock of a client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) title: &'static str,
    pub(crate) program: Program,
    /// The driver's name for the lock.
    pub(crate) recipe: &'static str,
    pub(crate) nodes: Nodes,
    /// How many clients may hold the lock: for semaphores, the number of permits.
    pub(crate) capacity: usize,
}

const fn apart(title: &'static str, program: Program, recipe: &'static str) -> Client {
    at(Nodes::Apart, title, program, recipe)
}

pub(crate) const fn at(nodes: Nodes, title: &'static str, program: Program, recipe: &'static str) -> Client {
    Client { title, program, recipe, nodes, capacity: 1 }
}

const fn seats(client: Client) -> Client {
    Client { capacity: 3, ..client }
}

const OURS: Program = Program::Fencelock;

pub(crate) static CURATOR: Client = apart("fencelock layout=curator", OURS, "curator");
pub(crate) static CURATOR_DIALECT_WRITE: Client = apart("fencelock layout=curator write", OURS, "curator:write");
pub(crate) static CURATOR_DIALECT_READ: Client = apart("fencelock layout=curator read", OURS, "curator:read");
pub(crate) static CURATOR_DIALECT_SEATS: Client = seats(apart("fencelock layout=curator 3 permits", OURS, "curator:3"));
pub(crate) static KAZOO: Client = apart("fencelock layout=kazoo", OURS, "kazoo");
pub(crate) static KAZOO_DIALECT_WRITE: Client = apart("fencelock layout=kazoo write", OURS, "kazoo:write");
pub(crate) static KAZOO_DIALECT_READ: Client = apart("fencelock layout=kazoo read", OURS, "kazoo:read");
pub(crate) static KAZOO_DIALECT_SEATS: Client = seats(apart("fencelock layout=kazoo 3 permits", OURS, "kazoo:3"));
pub(crate) static SHARED: Client = at(Nodes::Together, "fencelock layout=shared", OURS, "shared");

pub(crate) static CURATOR_59: Client = apart("Curator 5.9 InterProcessMutex", CURATOR_5_9, "InterProcessMutex");
pub(crate) static CURATOR_54: Client = apart("Curator 5.4 InterProcessMutex", CURATOR_5_4, "InterProcessMutex");
pub(crate) static CURATOR_WRITE: Client = apart("Curator 5.9 write lock", CURATOR_5_9, "WriteLock");
pub(crate) static CURATOR_READ: Client = apart("Curator 5.9 read lock", CURATOR_5_9, "ReadLock");
pub(crate) static CURATOR_54_WRITE: Client = apart("Curator 5.4 write lock", CURATOR_5_4, "WriteLock");
pub(crate) static CURATOR_54_READ: Client = apart("Curator 5.4 read lock", CURATOR_5_4, "ReadLock");
pub(crate) static CURATOR_SEMAPHORE_MUTEX: Client =
    at(Nodes::Leases, "Curator 5.9 SemaphoreMutex", CURATOR_5_9, "InterProcessSemaphoreMutex");
pub(crate) static CURATOR_SEMAPHORE: Client =
    at(Nodes::Leases, "Curator 5.9 SemaphoreV2, 1 lease", CURATOR_5_9, "InterProcessSemaphoreV2:1");
pub(crate) static CURATOR_SEATS: Client =
    seats(at(Nodes::Leases, "Curator 5.9 SemaphoreV2, 3 leases", CURATOR_5_9, "InterProcessSemaphoreV2:3"));
pub(crate) static KAZOO_LOCK: Client = apart("kazoo Lock", PYTHON, "Lock");
pub(crate) static KAZOO_EXTRA: Client = apart("kazoo Lock + -lock-", PYTHON, "Lock:-lock-");
pub(crate) static KAZOO_WRITE: Client = apart("kazoo WriteLock", PYTHON, "WriteLock");
pub(crate) static KAZOO_READ: Client = apart("kazoo ReadLock", PYTHON, "ReadLock");
pub(crate) static KAZOO_SEMAPHORE: Client = at(Nodes::Siblings, "kazoo Semaphore, 1 lease", PYTHON, "Semaphore:1");
pub(crate) static KAZOO_SEATS: Client = seats(at(Nodes::Siblings, "kazoo Semaphore, 3 leases", PYTHON, "Semaphore:3"));
/// Sees Curator's read-write locks.
pub(crate) static KAZOO_EXTRA_READ_WRITE: Client =
    apart("kazoo Lock + __WRIT__, __READ__", PYTHON, "Lock:__WRIT__,__READ__");
pub(crate) static GO_LOCK: Client = apart("go-zk Lock", GO, "Lock");
pub(crate) static PLAIN: Client = apart("plain lock-N, last ten", GO, "plain");
pub(crate) static ZK_LOCK: Client = at(Nodes::Together, "zk-lock's shared parent", GO, "shared");
pub(crate) static BARE: Client = at(Nodes::Together, "plain keyN, every child counts", GO, "bare");
pub(crate) static OWN: Client = at(Nodes::Together, "plain keyN, its own count", GO, "own");
