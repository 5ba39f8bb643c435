//! A server: its files, and its reports of itself.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use super::snapshot;
use crate::daemon::{Daemon, Program};
use crate::ports::Port;
use crate::process::bound;
use crate::versions::zookeeper_class_path;
use crate::{Network, PATIENCE};

/// The part of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The only server.
    Standalone,
    /// The leader, which the other servers follow.
    Leader,
    /// Follows the leader.
    Follower,
    /// Another part, such as read-only.
    Other,
}

/// ZooKeeper.
#[derive(Debug)]
pub struct Zookeeper {
    pub(super) secure: Option<Port>,
    /// The network and the host of a server that runs elsewhere.
    pub(super) host: Option<(Arc<Network>, usize)>,
    /// Java's arguments.
    pub(super) java: Vec<String>,
}

impl Program for Zookeeper {
    fn command(server: &Server) -> Command {
        let Self { host, java, .. } = &server.program;
        let mut command = match host {
            None => bound("java"),
            Some((network, number)) => network.command(*number, "java"),
        };
        command
            .args(java)
            .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
            .args(
                ["showDateTime=true", "dateTimeFormat=HH:mm:ss.SSS"]
                    .map(|option| format!("-Dorg.slf4j.simpleLogger.{option}")),
            )
            .args(["-cp", &zookeeper_class_path()])
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(server.directory.path().join("zoo.cfg"))
            .current_dir(server.data());
        command
    }

    /// Whether the server takes part, other than read-only.
    fn serves(server: &Server) -> bool {
        matches!(server.mode(), Some(Mode::Standalone | Mode::Leader | Mode::Follower))
    }

    fn requests(server: &Server) -> io::Result<u64> {
        server.monitor("zk_packets_received")
    }
}

/// A server of an ensemble, whose `zoo.cfg` is in its directory.
pub type Server = Daemon<Zookeeper>;

/// How long a server may take to answer a four-letter word.
const WORD: Duration = Duration::from_secs(2);

impl Server {
    /// The address for clients with TLS, if the settings have TLS.
    #[must_use]
    pub fn secure_address(&self) -> Option<SocketAddr> {
        self.program.secure.as_ref().map(Port::address)
    }

    /// Restarts the server, which must be alone and have been started with `digest.enabled=false`, so that the next
    /// sequential child of each node at one of `paths` gets the number `next`. No request can set that number, which
    /// counts children.
    ///
    /// # Errors
    /// An error without such a node, or if the server does not serve again.
    pub fn set_sequence(&self, paths: &[impl AsRef<str>], next: i32) -> io::Result<()> {
        // The server writes a snapshot of its data when it starts.
        self.restart()?;
        self.wait_until_serving()?;
        self.kill();
        let directory = self.data().join("version-2");
        paths.iter().try_for_each(|path| snapshot::set_sequence(&directory, path.as_ref(), next))?;
        self.restart()?;
        self.wait_until_serving()
    }

    /// Starts the server again without its data, which it then copies from the other servers.
    pub fn forget(&self) -> io::Result<()> {
        self.kill();
        fs::remove_dir_all(self.data().join("version-2"))?;
        self.restart()
    }

    /// The digests of the server's data, by transaction: every 128th transaction has a digest.
    pub fn digests(&self) -> io::Result<BTreeMap<i64, i64>> {
        let answer = self.word("hash")?;
        let digest = |line: &str| {
            let (transaction, digest) = line.split_once(": ")?;
            Some((i64::from_str_radix(transaction, 16).ok()?, digest.trim().parse().ok()?))
        };
        Ok(answer.lines().filter_map(digest).collect())
    }

    /// The answer to a four-letter word such as `srvr`, `mntr`, `wchs`, `cons` or `dump`.
    ///
    /// # Errors
    /// An error if the server does not answer within 2 s.
    pub fn word(&self, word: &str) -> io::Result<String> {
        self.word_within(WORD, word)
    }

    fn word_within(&self, limit: Duration, word: &str) -> io::Result<String> {
        match &self.program.host {
            None => self.ask(limit, word),
            Some((network, _)) => network.inside(|| self.ask(limit, word))?,
        }
    }

    fn ask(&self, limit: Duration, word: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&self.address(), limit)?;
        stream.set_read_timeout(Some(limit))?;
        stream.write_all(word.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// A value of `mntr`, such as `zk_watch_count`.
    ///
    /// # Errors
    /// An error if the server does not answer, or its answer lacks the number.
    pub fn monitor(&self, key: &str) -> io::Result<u64> {
        let answer = self.word_within(PATIENCE, "mntr")?;
        let line = answer.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('\t'));
        let number = line.and_then(|value| value.trim().parse().ok());
        number.ok_or_else(|| io::Error::other(format!("no number {key} in: {answer}")))
    }

    /// The part of this server; `None` while it does not serve.
    #[must_use]
    pub fn mode(&self) -> Option<Mode> {
        let answer = self.word("srvr").ok()?;
        let mode = answer.lines().find_map(|line| line.strip_prefix("Mode: "))?;
        Some(match mode {
            "standalone" => Mode::Standalone,
            "leader" => Mode::Leader,
            "follower" => Mode::Follower,
            _ => Mode::Other,
        })
    }

    /// Whether the server says that it leads. A leader that was cut off from the other servers still says so for a while.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.mode() == Some(Mode::Leader)
    }
}
