//! Every client that takes part, and the lock of it that does.

/// A program that drives the clients of one language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Program {
    Fencelock,
    Curator59,
    Curator54,
    Kazoo,
    Go,
}

impl Program {
    pub(crate) const ALL: [Self; 5] = [Self::Fencelock, Self::Curator59, Self::Curator54, Self::Kazoo, Self::Go];

    /// How its driver is told where the servers are. The options are for fencelock, the only one that knows any.
    pub(crate) fn servers(self, servers: &str, options: &str) -> String {
        match self {
            Self::Fencelock => format!("{servers}?{options}"),
            _ => servers.to_owned(),
        }
    }
}

impl Client {
    /// Whether one who waits can be told to stop. Go's locks wait for as long as it takes.
    pub(crate) fn can_give_up(&self) -> bool {
        self.program != Program::Go
    }
}

/// Where those who contend for one name put their nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nodes {
    /// Under a node of that name.
    Apart,
    /// All names under one parent.
    Together,
    /// Under `leases` below a node of that name: Curator's semaphores.
    Leases,
    /// Holders under a node of that name, those who wait beside it: kazoo's semaphore.
    Beside,
}

impl Nodes {
    /// The nodes whose children contend for `name`.
    pub(crate) fn queues(self, parent: &str, name: &str) -> Vec<String> {
        match self {
            Self::Apart => vec![format!("{parent}/{name}")],
            Self::Together => vec![parent.to_owned()],
            Self::Leases => vec![format!("{parent}/{name}/leases")],
            Self::Beside => vec![format!("{parent}/{name}"), format!("{parent}/{name}-__lock__")],
        }
    }
}

/// One lock of one client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) title: &'static str,
    pub(crate) program: Program,
    /// What its driver calls the lock.
    pub(crate) recipe: &'static str,
    pub(crate) nodes: Nodes,
}

const fn apart(title: &'static str, program: Program, recipe: &'static str) -> Client {
    at(Nodes::Apart, title, program, recipe)
}

const fn at(nodes: Nodes, title: &'static str, program: Program, recipe: &'static str) -> Client {
    Client { title, program, recipe, nodes }
}

pub(crate) static CURATOR: Client = apart("fencelock dialect=curator", Program::Fencelock, "curator");
pub(crate) static KAZOO: Client = apart("fencelock dialect=kazoo", Program::Fencelock, "kazoo");
pub(crate) static SHARED: Client = at(Nodes::Together, "fencelock dialect=shared", Program::Fencelock, "shared");

pub(crate) static CURATOR_59: Client = apart("Curator 5.9 InterProcessMutex", Program::Curator59, "InterProcessMutex");
pub(crate) static CURATOR_54: Client = apart("Curator 5.4 InterProcessMutex", Program::Curator54, "InterProcessMutex");
pub(crate) static CURATOR_WRITE: Client = apart("Curator 5.9 write lock", Program::Curator59, "WriteLock");
pub(crate) static CURATOR_READ: Client = apart("Curator 5.9 read lock", Program::Curator59, "ReadLock");
pub(crate) static CURATOR_SEMAPHORE_MUTEX: Client =
    at(Nodes::Leases, "Curator 5.9 SemaphoreMutex", Program::Curator59, "InterProcessSemaphoreMutex");
pub(crate) static CURATOR_SEMAPHORE: Client =
    at(Nodes::Leases, "Curator 5.9 SemaphoreV2, 1 lease", Program::Curator59, "InterProcessSemaphoreV2:1");
pub(crate) static KAZOO_LOCK: Client = apart("kazoo Lock", Program::Kazoo, "Lock");
pub(crate) static KAZOO_EXTRA: Client = apart("kazoo Lock + -lock-", Program::Kazoo, "Lock:-lock-");
pub(crate) static KAZOO_WRITE: Client = apart("kazoo WriteLock", Program::Kazoo, "WriteLock");
pub(crate) static KAZOO_READ: Client = apart("kazoo ReadLock", Program::Kazoo, "ReadLock");
pub(crate) static KAZOO_SEMAPHORE: Client =
    at(Nodes::Beside, "kazoo Semaphore, 1 lease", Program::Kazoo, "Semaphore:1");
pub(crate) static GO_LOCK: Client = apart("go-zk Lock", Program::Go, "Lock");
pub(crate) static PLAIN: Client = apart("plain lock-N, last ten", Program::Go, "plain");
pub(crate) static ZK_LOCK: Client = at(Nodes::Together, "zk-lock's shared parent", Program::Go, "shared");
pub(crate) static BARE: Client = at(Nodes::Together, "plain keyN, every child counts", Program::Go, "bare");
pub(crate) static OWN: Client = at(Nodes::Together, "plain keyN, its own count", Program::Go, "own");
