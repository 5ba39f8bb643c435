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
}

/// Where those who contend for one name put their nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nodes {
    /// Under a node of that name.
    Apart,
    /// All names under one parent.
    Together,
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
    Client { title, program, recipe, nodes: Nodes::Apart }
}

const fn together(title: &'static str, program: Program, recipe: &'static str) -> Client {
    Client { title, program, recipe, nodes: Nodes::Together }
}

pub(crate) static CURATOR: Client = apart("fencelock dialect=curator", Program::Fencelock, "curator");
pub(crate) static KAZOO: Client = apart("fencelock dialect=kazoo", Program::Fencelock, "kazoo");
pub(crate) static SHARED: Client = together("fencelock dialect=shared", Program::Fencelock, "shared");

pub(crate) static CURATOR_59: Client = apart("Curator 5.9 InterProcessMutex", Program::Curator59, "InterProcessMutex");
pub(crate) static CURATOR_54: Client = apart("Curator 5.4 InterProcessMutex", Program::Curator54, "InterProcessMutex");
pub(crate) static CURATOR_WRITE: Client = apart("Curator 5.9 write lock", Program::Curator59, "WriteLock");
pub(crate) static KAZOO_LOCK: Client = apart("kazoo Lock", Program::Kazoo, "Lock");
pub(crate) static KAZOO_EXTRA: Client = apart("kazoo Lock + -lock-", Program::Kazoo, "Lock:-lock-");
pub(crate) static KAZOO_WRITE: Client = apart("kazoo WriteLock", Program::Kazoo, "WriteLock");
pub(crate) static GO_LOCK: Client = apart("go-zk Lock", Program::Go, "Lock");
pub(crate) static PLAIN: Client = apart("plain lock-N, last ten", Program::Go, "plain");
pub(crate) static ZK_LOCK: Client = together("zk-lock's shared parent", Program::Go, "shared");
pub(crate) static BARE: Client = together("plain key-N, one parent", Program::Go, "bare");
