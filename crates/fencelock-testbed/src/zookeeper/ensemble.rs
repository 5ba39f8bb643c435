//! A single server, or three that replicate.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::server::{Mode, Server, Zookeeper};
use super::settings::Settings;
use crate::packages::ZOOKEEPER;
use crate::ports::Port;
use crate::proxy::Proxy;
use crate::scratch::Scratch;
use crate::{PATIENCE, wait_until};

/// A single server, or three that replicate. The drop kills the servers and removes their data.
#[derive(Debug)]
pub struct Ensemble {
    servers: Vec<Server>,
    /// The links, by follower and leader.
    links: Vec<Vec<Option<Proxy>>>,
    /// The ports, reserved as long as the servers may be started again.
    _peers: Vec<Peer>,
    tick_ms: u64,
}

/// The ports on which a server listens for the other servers.
#[derive(Debug)]
struct Peer {
    quorum: Port,
    election: Port,
}

/// How long a link waits for a leader that does not listen yet. A refused follower tries again. A follower whose connection
/// is dropped asks for another election: without this wait, elections took ten seconds, not half of one.
const ELECTION: Duration = Duration::from_secs(1);

impl Ensemble {
    /// Starts servers and waits until they serve.
    ///
    /// # Errors
    /// An error with the end of a log if a server does not serve.
    ///
    /// # Panics
    /// When ZooKeeper is not installed, with the command that installs it.
    pub fn start(settings: Settings) -> io::Result<Self> {
        ZOOKEEPER.require();
        let count = settings.servers;
        let peer = |number| Ok(Peer { quorum: settings.port(number, 2888)?, election: settings.port(number, 3888)? });
        let peers = (0..count).map(peer).collect::<io::Result<Vec<_>>>()?;
        let link =
            |follower: usize, leader: usize| match settings.links && settings.network.is_none() && follower != leader {
                true => Proxy::start_patient(peers[leader].quorum.address(), ELECTION).map(Some),
                false => Ok(None),
            };
        let links = (0..count).map(|follower| (0..count).map(|leader| link(follower, leader)).collect());
        let links = links.collect::<io::Result<Vec<Vec<_>>>>()?;
        let servers = (0..count).map(|number| {
            let secure = settings.tls.as_ref().map(|_| settings.port(number, 2281)).transpose()?;
            let host = settings.network.as_ref().map(|network| (Arc::clone(network), number));
            let zookeeper = Zookeeper { secure, host, java: settings.java.clone() };
            let server = Server::new(settings.port(number, 2181)?, false, Scratch::new()?, zookeeper)?;
            write_files(&server, number, &settings, &peers, &links[number])?;
            server.restart()?;
            Ok(server)
        });
        let servers = servers.collect::<io::Result<Vec<_>>>()?;
        let ensemble = Self { servers, links, _peers: peers, tick_ms: settings.tick_ms };
        ensemble.wait_until_serving()?;
        Ok(ensemble)
    }

    /// The servers, as clients name them: `127.0.0.1:21001,127.0.0.1:21003,…`.
    #[must_use]
    pub fn connect_string(&self) -> String {
        let addresses: Vec<String> = self.servers.iter().map(|server| server.address().to_string()).collect();
        addresses.join(",")
    }

    /// The URL of a store under `parent`, a path such as `/locks`.
    #[must_use]
    pub fn url(&self, parent: &str) -> String {
        format!("zk://{}{parent}?tick_ms={}", self.connect_string(), self.tick_ms)
    }

    /// The length of a tick in milliseconds.
    #[must_use]
    pub fn tick_ms(&self) -> u64 {
        self.tick_ms
    }

    /// The first server, for an ensemble of one.
    pub(super) fn into_first(mut self) -> Server {
        self.servers.remove(0)
    }

    /// The server with this number, from 0.
    #[must_use]
    pub fn server(&self, number: usize) -> &Server {
        &self.servers[number]
    }

    /// All servers.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The number of the server that says it leads (or is alone), once there is one.
    ///
    /// # Panics
    /// When there is none within [`PATIENCE`].
    #[must_use]
    pub fn leader(&self) -> usize {
        let mut leader = None;
        let leads = |server: &Server| matches!(server.mode(), Some(Mode::Leader | Mode::Standalone));
        wait_until(PATIENCE, || {
            leader = self.servers.iter().position(leads);
            leader.is_some()
        });
        leader.expect("a leader within the time of patience")
    }

    /// The servers that do not lead.
    #[must_use]
    pub fn followers(&self) -> Vec<usize> {
        self.others(self.leader()).collect()
    }

    /// All servers but this one.
    pub fn others(&self, server: usize) -> impl Iterator<Item = usize> {
        (0..self.servers.len()).filter(move |number| *number != server)
    }

    /// The proxy by which `follower` alone reaches `leader`: a cut leaves everything else connected.
    ///
    /// # Panics
    /// When the ensemble was started without links, or the two are one.
    #[must_use]
    pub fn link(&self, follower: usize, leader: usize) -> &Proxy {
        self.links[follower][leader].as_ref().expect("links between servers, see Settings::links")
    }

    /// Lets everything through on all links again.
    pub fn heal_links(&self) {
        self.links.iter().flatten().flatten().for_each(Proxy::heal);
    }

    /// Mends everything: paused servers continue, dead ones are started again, links let everything through. Returns once
    /// every server takes part.
    pub fn heal(&self) -> io::Result<()> {
        self.heal_links();
        self.servers.iter().try_for_each(Server::revive)?;
        self.wait_until_serving()
    }

    /// Waits until every server takes part.
    pub fn wait_until_serving(&self) -> io::Result<()> {
        self.servers.iter().try_for_each(Server::wait_until_serving)
    }
}

fn write_files(
    server: &Server,
    number: usize,
    settings: &Settings,
    peers: &[Peer],
    links: &[Option<Proxy>],
) -> io::Result<()> {
    let mut config = String::new();
    // Writing to a string cannot fail.
    let mut line = |key: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(config, "{key}={value}");
    };
    for (key, value) in settings.common() {
        line(&key, &value);
    }
    line("dataDir", &server.data().display());
    line("clientPort", &server.port.number());
    line("clientPortAddress", &server.address().ip());
    if let Some(secure) = &server.program.secure {
        line("secureClientPort", &secure.number());
        line("secureClientPortAddress", &secure.address().ip());
    }
    if peers.len() > 1 {
        line("quorumListenOnAllIPs", &false);
        for (other, peer) in peers.iter().enumerate() {
            let quorum = links[other].as_ref().map_or(peer.quorum.address(), Proxy::address);
            line(&format!("server.{}", other + 1), &format!("{quorum}:{}", peer.election.number()));
        }
    }
    for (key, value) in &settings.extra {
        line(key, value);
    }
    fs::create_dir(server.data())?;
    fs::write(server.data().join("myid"), (number + 1).to_string())?;
    fs::write(server.directory.path().join("zoo.cfg"), config)
}
