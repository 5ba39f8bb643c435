//! A server: its files, and requests to it.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use super::hands::{Hands, Reply};
use super::settings::{Role, Settings};
use crate::daemon::{Daemon, Program};
use crate::packages::REDIS;
use crate::ports::Port;
use crate::process::bound;
use crate::scratch::Scratch;
use crate::versions::{REDIS_SERVER, asks_for_debug_commands, program};
use crate::wait_for;

/// Redis.
#[derive(Debug)]
pub struct Redis {
    settings: Settings,
    secure: Option<Port>,
    /// The port for other nodes of a cluster; `None` for ten thousand above that of clients.
    bus: Option<Port>,
}

impl Program for Redis {
    fn command(server: &Server) -> Command {
        let settings = &server.program.settings;
        let mut command = match &settings.host {
            None => bound(program(REDIS_SERVER, "redis-server")),
            Some((network, host)) => network.command(*host, &program(REDIS_SERVER, "redis-server")),
        };
        command.arg(server.directory.path().join("redis.conf"));
        if matches!(settings.role, Role::SentinelOf(_)) {
            command.arg("--sentinel");
        }
        command
    }

    fn serves(server: &Server) -> bool {
        let waits = |reply: &Reply| matches!(reply, Reply::Error(error) if error.starts_with("LOADING") || error.starts_with("BUSY"));
        server.hands().and_then(|mut hands| hands.ask(&["PING"])).is_ok_and(|reply| !waits(&reply))
    }

    fn requests(server: &Server) -> io::Result<u64> {
        server.info("total_commands_processed")?.parse().map_err(io::Error::other)
    }

    /// Ends a script that does not end, and a pause of clients.
    fn mend(server: &Server) {
        // An error says that there was nothing to end.
        let _ = server.ask(&["SCRIPT", "KILL"]);
        let _ = server.ask(&["CLIENT", "UNPAUSE"]);
    }
}

/// A server. A dropped server is killed, and its data removed.
pub type Server = Daemon<Redis>;

impl Server {
    /// Starts a server, and waits until it serves.
    ///
    /// # Errors
    /// An error with the end of the log if the server does not serve.
    ///
    /// # Panics
    /// When Redis is not installed, with the command that installs it.
    pub fn start(settings: Settings) -> io::Result<Self> {
        REDIS.require();
        let role = settings.role;
        let server = Self::prepare(settings)?.started()?;
        if role == Role::ClusterNode {
            let all = (0..16_384).map(|slot| slot.to_string()).collect::<Vec<_>>();
            server
                .ask(&["CLUSTER", "ADDSLOTS"].into_iter().chain(all.iter().map(String::as_str)).collect::<Vec<_>>())?;
            let is_ok = || server.ask(&["CLUSTER", "INFO"]).is_ok_and(|info| info.to_string().contains("state:ok"));
            wait_for("a node of a Cluster that has all slots serves them", is_ok)?;
        }
        Ok(server)
    }

    fn prepare(settings: Settings) -> io::Result<Self> {
        let port = match &settings.host {
            None => Port::reserve()?,
            Some((network, host)) => Port::elsewhere(network.address(*host), 6379),
        };
        let secure = settings.tls.as_ref().map(|_| Port::reserve()).transpose()?;
        // Releases before 7.0 have no such option.
        let has_bus = settings.role == Role::ClusterMember && asks_for_debug_commands();
        let bus = has_bus.then(Port::reserve).transpose()?;
        let own_clock = settings.own_clock;
        let server = Self::new(port, own_clock, Scratch::new()?, Redis { settings, secure, bus })?;
        let secure = server.program.secure.as_ref().map(Port::number);
        let config = server.program.settings.config(server.port.number(), secure, server.bus(), &server.data());
        fs::create_dir(server.data())?;
        fs::write(server.directory.path().join("redis.conf"), config)?;
        Ok(server)
    }

    /// The address for clients with TLS, if the settings have TLS.
    #[must_use]
    pub fn secure_address(&self) -> Option<SocketAddr> {
        self.program.secure.as_ref().map(Port::address)
    }

    /// The port for other nodes of a cluster, unless it is ten thousand above that for clients.
    #[must_use]
    pub fn bus(&self) -> Option<u16> {
        self.program.bus.as_ref().map(Port::number)
    }

    /// The socket file on which the server listens, too.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.data().join("socket")
    }

    /// The URL of a store in the server's first database.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Restarts the server with an empty disk. Without [`Settings::durable`], [`Daemon::restart`] keeps what `SAVE` wrote last, mostly nothing.
    pub fn restart_empty(&self) -> io::Result<()> {
        self.kill();
        fs::remove_dir_all(self.data())?;
        fs::create_dir(self.data())?;
        self.restart()
    }

    /// A backup of the server's data.
    pub fn backup(&self) -> io::Result<Vec<u8>> {
        self.ask(&["SAVE"])?;
        fs::read(self.data().join("dump.rdb"))
    }

    /// Restarts the server, which must not be [durable](Settings::durable), with a backup instead of its data.
    pub fn restore(&self, backup: &[u8]) -> io::Result<()> {
        self.kill();
        fs::write(self.data().join("dump.rdb"), backup)?;
        self.restart()
    }

    /// A connection to do things by hand, as the user `default`.
    pub fn hands(&self) -> io::Result<Hands> {
        let mut hands = match &self.program.settings.host {
            None => Hands::connect(self.address())?,
            Some((network, _)) => network.inside(|| Hands::connect(self.address()))??,
        };
        if let Some(password) = &self.program.settings.password {
            hands.ask(&["AUTH", password])?;
        }
        Ok(hands)
    }

    /// Sends one request on a connection of its own.
    ///
    /// # Errors
    /// An error without an answer, or for an answer that is an error.
    pub fn ask<A: AsRef<[u8]>>(&self, request: &[A]) -> io::Result<Reply> {
        match self.hands()?.ask(request)? {
            Reply::Error(error) => Err(io::Error::other(error)),
            reply => Ok(reply),
        }
    }

    /// A value of `INFO`, such as `role` or `connected_clients`.
    ///
    /// # Errors
    /// An error if the server does not answer, or its answer lacks the field.
    pub fn info(&self, key: &str) -> io::Result<String> {
        let info = self.ask(&["INFO", "everything"])?.to_string();
        let value = info.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        value.map(|value| value.trim().to_owned()).ok_or_else(|| io::Error::other(format!("no {key} in INFO")))
    }
}
