//! A server: its files, its process, and its reports of itself.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::snapshot;
use crate::Network;
use crate::daemon::Daemon;
use crate::ports::Port;
use crate::process::bound;
use crate::versions::zookeeper_class_path;

/// The part of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The only server.
    Standalone,
    /// The others follow it.
    Leader,
    /// Follows the leader.
    Follower,
    /// Something else, such as read-only.
    Other,
}

/// A server of an ensemble.
#[derive(Debug)]
pub struct Server {
    pub(super) client: Port,
    pub(super) secure: Option<Port>,
    pub(super) directory: PathBuf,
    /// Where it runs, unless it is here.
    host: Option<(Arc<Network>, usize)>,
    /// Java's arguments.
    java: Vec<String>,
    daemon: Daemon,
}

/// How long a server may take to answer a four-letter word.
const WORD: Duration = Duration::from_secs(2);

impl Server {
    /// A server whose `zoo.cfg` is in `directory`, not started yet.
    pub(super) fn new(
        client: Port,
        secure: Option<Port>,
        directory: PathBuf,
        host: Option<(Arc<Network>, usize)>,
        java: Vec<String>,
    ) -> Self {
        let daemon = Daemon::new(directory.join("log"));
        Self { client, secure, directory, host, java, daemon }
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.client.address()
    }

    /// Where clients connect with TLS, if that was asked for.
    #[must_use]
    pub fn secure_address(&self) -> Option<SocketAddr> {
        self.secure.as_ref().map(Port::address)
    }

    /// Kills the server, as `kill -9` does. Repeatable.
    ///
    /// # Panics
    /// When the system refuses to.
    pub fn kill(&self) {
        self.daemon.kill();
    }

    /// Stops the server, as SIGSTOP does; its sockets stay.
    ///
    /// # Panics
    /// When it does not run.
    pub fn pause(&self) {
        self.daemon.pause();
    }

    /// Lets a paused server go on.
    ///
    /// # Panics
    /// When it does not run.
    pub fn resume(&self) {
        self.daemon.resume();
    }

    /// Starts the server again with the data it has, after killing it if it still runs. Does not wait until it serves.
    ///
    /// # Errors
    /// Whatever the system says.
    pub fn restart(&self) -> io::Result<()> {
        self.kill();
        let mut java = match &self.host {
            None => bound("java"),
            Some((network, number)) => network.command(*number, "java"),
        };
        java.args(&self.java)
            .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
            .args(
                ["showDateTime=true", "dateTimeFormat=HH:mm:ss.SSS"]
                    .map(|option| format!("-Dorg.slf4j.simpleLogger.{option}")),
            )
            .args(["-cp", &zookeeper_class_path()])
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(self.directory.join("zoo.cfg"))
            .current_dir(&self.directory);
        self.daemon.start(java)
    }

    /// Restarts the server, which must be alone and have been started with `digest.enabled=false`, so that the next
    /// sequential child of each node at one of `paths` gets the number `next`. No request can do that: the number counts
    /// children.
    ///
    /// # Errors
    /// When there is no such node, or the server does not come back.
    pub fn set_sequence(&self, paths: &[impl AsRef<str>], next: i32) -> io::Result<()> {
        // The server writes a snapshot of its data when it starts.
        self.restart()?;
        self.wait_until_serving()?;
        self.kill();
        let directory = self.directory.join("data/version-2");
        paths.iter().try_for_each(|path| snapshot::set_sequence(&directory, path.as_ref(), next))?;
        self.restart()?;
        self.wait_until_serving()
    }

    /// Starts the server again without its data, which it then gets from the others.
    ///
    /// # Errors
    /// Whatever the system says.
    pub fn forget(&self) -> io::Result<()> {
        self.kill();
        fs::remove_dir_all(self.directory.join("data/version-2"))?;
        self.restart()
    }

    /// The digests of its data, by the transaction after which each was taken: every 128th has one.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn digests(&self) -> io::Result<BTreeMap<i64, i64>> {
        let answer = self.word("hash")?;
        let digest = |line: &str| {
            let (transaction, digest) = line.split_once(": ")?;
            Some((i64::from_str_radix(transaction, 16).ok()?, digest.trim().parse().ok()?))
        };
        Ok(answer.lines().filter_map(digest).collect())
    }

    /// The id of its process, if it was started.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        self.daemon.id()
    }

    /// Whether its process is there, paused or not.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.daemon.is_running()
    }

    /// Continues it, or starts it again. Does not wait until it serves: a server needs a majority for that.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn heal(&self) -> io::Result<()> {
        self.daemon.revive(|| self.restart())
    }

    /// The answer to a four-letter word such as `srvr`, `mntr`, `wchs`, `cons` or `dump`.
    ///
    /// # Errors
    /// When it does not answer within 2 s.
    pub fn word(&self, word: &str) -> io::Result<String> {
        match &self.host {
            None => self.ask(word),
            Some((network, _)) => network.inside(|| self.ask(word))?,
        }
    }

    fn ask(&self, word: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&self.address(), WORD)?;
        stream.set_read_timeout(Some(WORD))?;
        stream.write_all(word.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// A value of `mntr`, such as `zk_watch_count`.
    ///
    /// # Errors
    /// When it does not answer, or tells no such number.
    pub fn monitor(&self, key: &str) -> io::Result<u64> {
        let answer = self.word("mntr")?;
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

    /// Whether it says that it leads. A leader that was cut off from the others says so for a while longer.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.mode() == Some(Mode::Leader)
    }

    /// Waits until it takes part in any way but read-only.
    ///
    /// # Errors
    /// With the end of its log when it does not within [`PATIENCE`](crate::PATIENCE), or when it ended.
    pub fn wait_until_serving(&self) -> io::Result<()> {
        let serves = || matches!(self.mode(), Some(Mode::Standalone | Mode::Leader | Mode::Follower));
        self.daemon.wait_until(self.address(), serves)
    }
}
