//! The words of the tables: stores, networks, scenes, and figures.

use clap::ValueEnum;

use crate::report::{micros, millis};

/// The store that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Store {
    File,
    Memory,
    #[value(name = "zookeeper")]
    ZooKeeper,
    Redis,
    Postgres,
    Mysql,
    Etcd,
    /// Three masters of Redis.
    #[value(skip)]
    Redlock,
}

impl Store {
    /// The name on the command line and in the document.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Memory => "memory",
            Self::ZooKeeper => "zookeeper",
            Self::Redis => "redis",
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
            Self::Etcd => "etcd",
            Self::Redlock => "redlock",
        }
    }

    /// Whether clients reach the store over a server.
    pub(crate) const fn has_server(self) -> bool {
        !matches!(self, Self::File | Self::Memory)
    }

    pub(crate) const fn is_sql(self) -> bool {
        matches!(self, Self::Postgres | Self::Mysql)
    }

    /// Whether each request to the store waits for a disk.
    pub(crate) const fn syncs(self) -> bool {
        self.is_sql() || matches!(self, Self::ZooKeeper | Self::Etcd)
    }

    /// The store, and the network before its server.
    pub(crate) fn place(self, network: Network) -> String {
        let scheme = if self == Self::ZooKeeper { "zk" } else { self.name() };
        if self.has_server() { format!("`{scheme}:`, {}", network.title()) } else { format!("`{scheme}:`") }
    }
}

/// The network between a client and the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Network {
    /// Loopback, and the server keeps to the core of the client.
    OneCore,
    /// Loopback, and the server keeps to a core of its own where the client does. A store without a server, too.
    Loopback,
    /// A proxy that holds bytes for 2 ms each way.
    Delay,
}

impl Network {
    /// The name in a table.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::OneCore => "same core",
            Self::Loopback => "loopback",
            Self::Delay => "2 ms each way",
        }
    }

    /// The unit of a table's times, and how nanoseconds are written in it.
    pub(crate) const fn unit(self) -> (&'static str, fn(f64) -> String) {
        match self {
            Self::OneCore | Self::Loopback => ("µs", micros),
            Self::Delay => ("ms", millis),
        }
    }
}

/// How many tasks of how many processes take locks as often as they can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// 64 tasks of one process, each on a name of its own.
    Apart,
    /// 8 tasks in each of 8 processes, each on a name of its own.
    Services,
    /// 32 tasks of one process, all on one name.
    Together,
    /// 8 tasks in each of 4 processes, all on one name.
    Processes,
}

impl Way {
    pub(crate) const ALL: [Self; 4] = [Self::Apart, Self::Services, Self::Together, Self::Processes];

    /// The title, how many processes, and how many tasks in each.
    const fn facts(self) -> (&'static str, u64, u64) {
        match self {
            Self::Apart => ("64 tasks on 64 names", 1, 64),
            Self::Services => ("8 processes × 8 names each", 8, 8),
            Self::Together => ("32 tasks on one name", 1, 32),
            Self::Processes => ("4 processes × 8 on one name", 4, 8),
        }
    }

    pub(crate) const fn title(self) -> &'static str {
        self.facts().0
    }

    pub(crate) const fn processes(self) -> u64 {
        self.facts().1
    }

    /// Tasks in each process.
    pub(crate) const fn each(self) -> u64 {
        self.facts().2
    }

    /// Whether each task has a name of its own.
    pub(crate) const fn is_apart(self) -> bool {
        matches!(self, Self::Apart | Self::Services)
    }
}

/// A queue: how many wait, and in how many sessions, each a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) waiters: u64,
    pub(crate) sessions: u64,
}

/// All waiters in one session.
pub(crate) const fn one(waiters: u64) -> Shape {
    Shape { waiters, sessions: 1 }
}

/// A figure. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// p50 and p99 of the uncontended cycle.
    Cycle,
    CycleTail,
    /// Processor time of the server in an uncontended cycle.
    Server,
    /// Sections per second.
    Rate(Way),
    /// Least over most served.
    Served(Way),
    /// Requests that the server received for each section.
    Requests(Way),
    /// Requests that the server rolled back because of a deadlock.
    Undone(Way),
    /// Processor time of the client in a cycle of [`Way::Apart`].
    Client,
    /// p50 and p99 from a release to the next grant.
    HandOver(Shape),
    HandOverTail(Shape),
    /// Neighbours served in the order of their arrival: from 0 to 1.
    Order(Shape),
    QueueRequests,
    Woken,
    Aside,
    Seconds,
    Held,
    Waiting,
    Aged,
}

impl What {
    pub(crate) fn title(self) -> String {
        let text = match self {
            Self::Cycle => "cycle",
            Self::CycleTail => "cycle, p99",
            Self::Server => "server's processor in a cycle",
            Self::Client => "client's processor in a cycle",
            Self::Rate(way) => way.title(),
            Self::Served(way) => return format!("least ÷ most served, {}", way.title()),
            Self::Requests(way) => return format!("requests per section, {}", way.title()),
            Self::Undone(way) => return format!("deadlocks, {}", way.title()),
            Self::HandOver(Shape { waiters, sessions: 1 }) => return format!("hand-over, {waiters} waiters"),
            Self::HandOver(Shape { waiters, sessions }) => {
                return format!("hand-over, {waiters} waiters of {sessions} processes");
            }
            Self::HandOverTail(shape) => return format!("p99 of {}", Self::HandOver(shape).title()),
            Self::Order(_) => "order kept",
            Self::QueueRequests => "requests per hand-over, a queue of 100 in one session",
            Self::Woken => "waiters woken per hand-over, each in a session of its own",
            Self::Aside => "notifications of a release off the way of the hand-over, each in a session of its own",
            Self::Seconds => "taking many locks on new names",
            Self::Held => "bytes per held lock",
            Self::Waiting => "bytes per waiting lock",
            Self::Aged => "cycle beside an open transaction: old ÷ fresh",
        };
        text.to_owned()
    }

    /// The p50 that belongs to a p99.
    pub(crate) const fn p50(self) -> Self {
        match self {
            Self::CycleTail => Self::Cycle,
            Self::HandOverTail(shape) => Self::HandOver(shape),
            what => what,
        }
    }

    /// The unit, and how a figure is written in it.
    pub(crate) const fn unit(self) -> (&'static str, fn(f64) -> String) {
        match self {
            Self::Cycle | Self::CycleTail | Self::Server | Self::Client => (", µs", micros),
            Self::HandOver(_) | Self::HandOverTail(_) => (", µs", micros),
            Self::Rate(_) => (", /s", |rate| format!("{rate:.0}")),
            Self::Held | Self::Waiting => ("", |bytes| format!("{bytes:.0}")),
            _ => ("", |figure| format!("{figure:.2}")),
        }
    }
}
