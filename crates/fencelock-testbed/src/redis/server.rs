//! A server: its files, its process, and its faults.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::hands::{Hands, Reply};
use super::settings::{Role, Settings};
use crate::clock::Clock;
use crate::daemon::Daemon;
use crate::packages::REDIS;
use crate::ports::Port;
use crate::process::bound;
use crate::scratch::Scratch;
use crate::versions::{asks_for_debug_commands, redis_server};
use crate::wait_for;

/// A server. Dropping it kills it and removes its data.
#[derive(Debug)]
pub struct Server {
    settings: Settings,
    port: Port,
    secure: Option<Port>,
    /// The port for other nodes of a cluster; `None` for ten thousand above the port of clients.
    bus: Option<Port>,
    clock: Option<Clock>,
    daemon: Daemon,
    directory: Scratch,
}

impl Server {
    /// Starts a server and waits until it serves.
    ///
    /// # Errors
    /// When it does not, with the end of its log.
    ///
    /// # Panics
    /// When Redis is not installed, with the command that installs it.
    pub fn start(settings: Settings) -> io::Result<Self> {
        let server = Self::prepare(settings)?;
        server.restart()?;
        server.wait_until_serving()?;
        if server.settings.role == Role::ClusterNode {
            let all = (0..16_384).map(|slot| slot.to_string()).collect::<Vec<_>>();
            server
                .ask(&["CLUSTER", "ADDSLOTS"].into_iter().chain(all.iter().map(String::as_str)).collect::<Vec<_>>())?;
            let is_ok = || server.ask(&["CLUSTER", "INFO"]).is_ok_and(|info| info.to_string().contains("state:ok"));
            wait_for("a node of a Cluster that has all slots serves them", is_ok)?;
        }
        Ok(server)
    }

    fn prepare(settings: Settings) -> io::Result<Self> {
        REDIS.require();
        let directory = Scratch::new()?;
        let port = match &settings.host {
            None => Port::reserve()?,
            Some((network, host)) => Port::elsewhere(network.address(*host), 6379),
        };
        let secure = settings.tls.as_ref().map(|_| Port::reserve()).transpose()?;
        // Releases before 7.0 have no such option.
        let has_bus = settings.role == Role::ClusterMember && asks_for_debug_commands();
        let bus = has_bus.then(Port::reserve).transpose()?;
        let clock = settings.own_clock.then(|| Clock::new(directory.path())).transpose()?;
        let daemon = Daemon::new(directory.path().join("log"));
        let server = Self { settings, port, secure, bus, clock, daemon, directory };
        let (secure, bus) = (server.secure.as_ref().map(Port::number), server.bus());
        let config = server.settings.config(server.port.number(), secure, bus, &server.data());
        fs::create_dir(server.data())?;
        fs::write(server.directory.path().join("redis.conf"), config)?;
        Ok(server)
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Where clients connect with TLS, if that was asked for.
    #[must_use]
    pub fn secure_address(&self) -> Option<SocketAddr> {
        self.secure.as_ref().map(Port::address)
    }

    /// The port for other nodes of a cluster, unless it is ten thousand above that for clients.
    #[must_use]
    pub fn bus(&self) -> Option<u16> {
        self.bus.as_ref().map(Port::number)
    }

    /// The socket in the file system on which it listens too.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.data().join("socket")
    }

    /// The URL of a store in its first database.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
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

    /// Starts the server again with what is on its disk, after killing it if it still runs. Without
    /// [`Settings::durable`], that is what `SAVE` wrote last, so mostly nothing. Does not wait until it serves.
    ///
    /// # Errors
    /// Whatever the system says.
    pub fn restart(&self) -> io::Result<()> {
        self.kill();
        let mut command = match &self.settings.host {
            None => bound(redis_server()),
            Some((network, host)) => network.command(*host, &redis_server()),
        };
        command.arg(self.directory.path().join("redis.conf"));
        if matches!(self.settings.role, Role::SentinelOf(_)) {
            command.arg("--sentinel");
        }
        if let Some(clock) = &self.clock {
            clock.give_to(&mut command);
        }
        self.daemon.start(command)
    }

    /// The same with an empty disk.
    ///
    /// # Errors
    /// Whatever the system says.
    pub fn restart_empty(&self) -> io::Result<()> {
        self.kill();
        fs::remove_dir_all(self.data())?;
        fs::create_dir(self.data())?;
        self.restart()
    }

    /// A backup of the server's data.
    ///
    /// # Errors
    /// When it does not write one.
    pub fn backup(&self) -> io::Result<Vec<u8>> {
        self.ask(&["SAVE"])?;
        fs::read(self.data().join("dump.rdb"))
    }

    /// Restarts the server with a backup instead of what it has, which must not be [durable](Settings::durable).
    ///
    /// # Errors
    /// Whatever the system says.
    pub fn restore(&self, backup: &[u8]) -> io::Result<()> {
        self.kill();
        fs::write(self.data().join("dump.rdb"), backup)?;
        self.restart()
    }

    /// Sets how many seconds its wall clock is off, from now on; [`Settings::own_clock`] gives it one.
    ///
    /// # Errors
    /// Whatever the system says.
    ///
    /// # Panics
    /// When it has no clock of its own.
    pub fn set_clock(&self, seconds: i64) -> io::Result<()> {
        self.clock.as_ref().expect("a server with a clock of its own, see Settings::own_clock").set(seconds)
    }

    /// Whether its process is there, paused or not.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.daemon.is_running()
    }

    /// A connection to do things by hand, as the user `default`.
    ///
    /// # Errors
    /// When there is none to be had.
    pub fn hands(&self) -> io::Result<Hands> {
        let mut hands = match &self.settings.host {
            None => Hands::connect(self.address())?,
            Some((network, _)) => network.inside(|| Hands::connect(self.address()))??,
        };
        if let Some(password) = &self.settings.password {
            hands.ask(&["AUTH", password])?;
        }
        Ok(hands)
    }

    /// Asks one thing on a connection made for it.
    ///
    /// # Errors
    /// When there is no answer, or it is an error.
    pub fn ask<A: AsRef<[u8]>>(&self, request: &[A]) -> io::Result<Reply> {
        match self.hands()?.ask(request)? {
            Reply::Error(error) => Err(io::Error::other(error)),
            reply => Ok(reply),
        }
    }

    /// A value of `INFO`, such as `role` or `connected_clients`.
    ///
    /// # Errors
    /// When it does not answer, or tells no such thing.
    pub fn info(&self, key: &str) -> io::Result<String> {
        let info = self.ask(&["INFO", "everything"])?.to_string();
        let value = info.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        value.map(|value| value.trim().to_owned()).ok_or_else(|| io::Error::other(format!("no {key} in INFO")))
    }

    /// Ends all faults: a paused server, one that is dead, a script that does not end, clients that have to wait, a
    /// clock that is off. Its data stays.
    ///
    /// # Errors
    /// As [`Server::wait_until_serving`].
    pub fn heal(&self) -> io::Result<()> {
        if let Some(clock) = &self.clock {
            clock.set(0)?;
        }
        self.daemon.revive(|| self.restart())?;
        // Neither need be there to be ended.
        let _ = self.ask(&["SCRIPT", "KILL"]);
        let _ = self.ask(&["CLIENT", "UNPAUSE"]);
        self.wait_until_serving()
    }

    /// Waits until it answers and has read its data.
    ///
    /// # Errors
    /// With the end of its log when it does not within [`PATIENCE`](crate::PATIENCE), or when it ended.
    pub fn wait_until_serving(&self) -> io::Result<()> {
        let waits = |reply: &Reply| matches!(reply, Reply::Error(error) if error.starts_with("LOADING") || error.starts_with("BUSY"));
        let serves = || self.hands().and_then(|mut hands| hands.ask(&["PING"])).is_ok_and(|reply| !waits(&reply));
        self.daemon.wait_until(self.address(), serves)
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }
}
