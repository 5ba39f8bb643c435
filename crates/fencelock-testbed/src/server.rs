//! The common part of all servers here, so that a test which is the same for each of them is written once.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::packages::Package;
use crate::{etcd, mysql, postgres, redis, zookeeper};

/// Every kind of server that tests can start. A new one is added here, and in no other list of the test bed.
pub static KINDS: [&Kind; 5] = [&etcd::KIND, &mysql::KIND, &postgres::KIND, &redis::KIND, &zookeeper::KIND];

/// A running server, or several that replicate. The drop kills the servers and removes their data.
pub trait Server: fmt::Debug + Send + Sync {
    /// Where clients connect; of several servers, the first.
    fn address(&self) -> SocketAddr;

    /// The server's processes: the first one, and its children.
    fn processes(&self) -> Vec<u32>;

    /// Kills the server, as `kill -9` does. Repeatable.
    fn kill(&self);

    /// Stops the server, as SIGSTOP does; its sockets stay.
    fn pause(&self);

    /// Continues the server after [`Server::pause`].
    fn resume(&self);

    /// Starts the server again with the data that survives a crash, and waits until it serves.
    fn restart(&self) -> io::Result<()>;

    /// Continues the server, or starts it again, and waits until it serves.
    fn heal(&self) -> io::Result<()>;

    /// How many requests of clients the server has received; this question counts, too.
    fn requests(&self) -> io::Result<u64>;
}

/// A name for a database that no other test uses, as in `t1a2b_7`.
pub(crate) fn database_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("t{:x}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A kind of server: its store, and its start.
#[derive(Debug)]
pub struct Kind {
    /// The scheme of the store's URLs.
    pub scheme: &'static str,
    /// The schemes of other routes to such a server, over TLS or a socket file. Tests of these routes start servers of their own.
    pub other_schemes: &'static [&'static str],
    /// The environment variable that names a running server with the default set-up, as `host:port`.
    pub variable: &'static str,
    /// The package to install.
    pub package: Package,
    /// The options of every URL for a server with the default set-up, such as `tick_ms=500`; may be empty.
    pub(crate) options: &'static str,
    pub(crate) start: fn() -> io::Result<Box<dyn Server>>,
    pub(crate) namespace: fn(SocketAddr) -> io::Result<String>,
    pub(crate) shared: OnceLock<Shared>,
}

impl Kind {
    /// A server of the caller's own with the default set-up, which may be broken.
    ///
    /// # Errors
    /// An error with the end of the log if the server does not start.
    ///
    /// # Panics
    /// When it is not installed, with the command that installs it.
    pub fn start(&self) -> io::Result<Box<dyn Server>> {
        (self.start)()
    }

    /// The server that [`Kind::variable`] names, or one that lives as long as this process.
    pub fn shared(&'static self) -> &'static Shared {
        self.shared.get_or_init(|| match std::env::var(self.variable) {
            Ok(address) => {
                let address = address.parse().expect("an address in the environment");
                Shared { kind: self, address, _started: None }
            }
            Err(_) => {
                let started = self.start().expect("a server");
                Shared { kind: self, address: started.address(), _started: Some(started) }
            }
        })
    }

    /// A part of the server at `address` that no other test uses, in the form of URLs: a database, a path.
    pub fn namespace(&self, address: SocketAddr) -> io::Result<String> {
        (self.namespace)(address)
    }

    /// The URL of the store in `namespace`, by way of `address`, with `options` such as `ttl_ms=4000&owner=me`.
    #[must_use]
    pub fn url(&self, address: SocketAddr, namespace: &str, options: &str) -> String {
        let said: Vec<_> = [self.options, options].into_iter().filter(|options| !options.is_empty()).collect();
        let query = if said.is_empty() { String::new() } else { format!("?{}", said.join("&")) };
        format!("{}://{address}{namespace}{query}", self.scheme)
    }
}

/// A server that tests share. No test may break it, and each test has a part of its own.
#[derive(Debug)]
pub struct Shared {
    kind: &'static Kind,
    address: SocketAddr,
    /// `None` when another process started it.
    _started: Option<Box<dyn Server>>,
}

impl Shared {
    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// An empty part that no other test uses, as URLs name it: a database such as `/7`, a path such as `/t1a2b-7`.
    ///
    /// # Panics
    /// When the server does not answer, or has no such part left.
    #[must_use]
    pub fn namespace(&self) -> String {
        self.kind.namespace(self.address).expect("a namespace")
    }

    /// The URL of a store in a part of its own.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_with("")
    }

    /// [`Self::url`] with `options`, such as `ttl_ms=4000&owner=me`.
    #[must_use]
    pub fn url_with(&self, options: &str) -> String {
        self.kind.url(self.address, &self.namespace(), options)
    }
}
