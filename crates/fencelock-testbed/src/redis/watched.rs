//! A primary with replicas, and the Sentinels that watch it.

use std::io;
use std::net::SocketAddr;
use std::sync::OnceLock;

use super::hands::Reply;
use super::server::Server;
use super::settings::{Role, Settings};
use super::shared::database;
use crate::wait_for;

/// Several servers, one of which is the primary, and three Sentinels of which two suffice for a failover.
#[derive(Debug)]
pub struct Watched {
    /// The servers; at first the primary is the first one.
    pub servers: Vec<Server>,
    /// The Sentinels.
    pub sentinels: Vec<Server>,
}

impl Watched {
    /// Starts a primary and its replicas with these settings, and Sentinels with the configuration lines `sentinel`. Waits until
    /// a failover can begin.
    ///
    /// # Panics
    /// When Redis is not installed, with the command that installs it.
    pub fn start(replicas: usize, settings: &Settings, sentinel: &[&str]) -> io::Result<Self> {
        let primary = Server::start(settings.clone())?;
        let copies = Role::ReplicaOf(primary.address());
        let replica = |_| Server::start(Settings { role: copies, ..settings.clone() });
        let watches = Settings::role(Role::SentinelOf(primary.address()));
        let watches = sentinel.iter().fold(watches, |watches, line| watches.with(line));
        let servers: Vec<_> =
            std::iter::once(Ok(primary)).chain((0..replicas).map(replica)).collect::<io::Result<_>>()?;
        let in_sync = |server: &Server| server.info("master_link_status").is_ok_and(|status| status == "up");
        // A Sentinel looks for replicas when it starts, and then every ten seconds.
        wait_for("the replicas are in sync", || servers[1..].iter().all(in_sync))?;
        let sentinels = (0..3).map(|_| Server::start(watches.clone())).collect::<io::Result<_>>()?;
        let watched = Self { servers, sentinels };
        watched.wait_until_watched(replicas)?;
        Ok(watched)
    }

    /// Waits until each Sentinel that answers knows the other Sentinels, and `replicas` replicas in sync.
    pub fn wait_until_watched(&self, replicas: usize) -> io::Result<()> {
        let knows = |sentinel: &Server, about: &str, number: usize| {
            let answer = sentinel.ask(&["SENTINEL", about, "locks"]);
            answer.is_ok_and(|answer| answer.items().iter().filter(|one| is_well(one)).count() >= number)
        };
        let knows_all = |sentinel: &Server| knows(sentinel, "REPLICAS", replicas) && knows(sentinel, "SENTINELS", 2);
        wait_for("the Sentinels know all", || self.sentinels.iter().filter(|one| one.is_running()).all(knows_all))
    }

    /// The URL of a store in the first database, or in `namespace` such as `/7`, with these options.
    #[must_use]
    pub fn url(&self, namespace: &str, options: &str) -> String {
        let sentinels: Vec<_> = self.sentinels.iter().map(|sentinel| sentinel.address().to_string()).collect();
        let query = if options.is_empty() { String::new() } else { format!("?{options}") };
        format!("redis+sentinel://{}/locks{namespace}{query}", sentinels.join(","))
    }

    /// The address that most Sentinels name.
    ///
    /// # Errors
    /// An error if no two Sentinels name the same server.
    pub fn named(&self) -> io::Result<SocketAddr> {
        let named: Vec<SocketAddr> = self.sentinels.iter().filter_map(|sentinel| named(sentinel).ok()).collect();
        let by_most = named.iter().find(|one| named.iter().filter(|other| other == one).count() >= 2);
        by_most.copied().ok_or_else(|| io::Error::other("no two Sentinels name the same primary"))
    }

    /// The server that most Sentinels name.
    #[must_use]
    pub fn primary(&self) -> &Server {
        let named = self.named().expect("a primary");
        self.servers.iter().find(|server| server.address() == named).expect("one of the servers")
    }

    /// Waits until a Sentinel names another server than the one at this address, and that server says that it is the primary.
    pub fn wait_until_replaced(&self, old: SocketAddr) -> io::Result<()> {
        let is_promoted = |address: SocketAddr| {
            let promoted = self.servers.iter().find(|server| server.address() == address && address != old);
            promoted.is_some_and(|server| server.info("role").is_ok_and(|role| role == "master"))
        };
        wait_for("a replica is promoted", || {
            self.sentinels.iter().any(|sentinel| named(sentinel).is_ok_and(is_promoted))
        })
    }

    /// A database of the primary that no other test uses, as in `/7`.
    pub fn namespace(&self) -> io::Result<String> {
        database(self.named()?)
    }
}

/// Stops the replicas of `primary`, one of these servers, and ends their connections: the kernel receives for a stopped
/// process. Returns the replicas, which receive no further write of `primary`.
///
/// # Errors
/// When the primary does not answer.
pub fn cut_replicas_off<'a>(servers: &'a [Server], primary: &Server) -> io::Result<Vec<&'a Server>> {
    let port = primary.address().port().to_string();
    let is_replica = |server: &&Server| server.info("master_port").is_ok_and(|of| of == port);
    let replicas: Vec<_> = servers.iter().filter(is_replica).collect();
    replicas.iter().for_each(|replica| replica.pause());
    primary.ask(&["CLIENT", "KILL", "TYPE", "replica"]).map(|_| replicas)
}

/// Sentinels with this never replace the primary, however long it stands still on a busy machine.
pub const NO_FAILOVER: &[&str] = &["sentinel down-after-milliseconds locks 3600000"];

/// The servers that all tests share. No test may break them.
pub fn shared_watched() -> &'static Watched {
    static SHARED: OnceLock<Watched> = OnceLock::new();
    SHARED.get_or_init(|| {
        Watched::start(2, &Settings::default(), NO_FAILOVER).expect("a primary, replicas and Sentinels")
    })
}

fn named(sentinel: &Server) -> io::Result<SocketAddr> {
    let answer = sentinel.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "locks"])?;
    let [host, port] = answer.items() else { return Err(io::Error::other("it names none")) };
    format!("{host}:{port}").parse().map_err(io::Error::other)
}

/// Whether a Sentinel's report of a server says that the server is up, and a replica in sync.
fn is_well(about: &Reply) -> bool {
    let about = about.items();
    let value = |key: &str| Some(about.get(about.iter().position(|word| word.to_string() == key)? + 1)?.to_string());
    let is_up = value("flags").is_some_and(|flags| !flags.contains("down") && !flags.contains("disconnected"));
    is_up && value("master-link-status").is_none_or(|status| status == "ok")
}
