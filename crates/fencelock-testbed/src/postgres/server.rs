//! A server: its files, its processes, and its faults.

use std::fs::{self, DirBuilder};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::settings::Settings;
use super::shared::OWNER;
use crate::clock::Clock;
use crate::daemon::Daemon;
use crate::packages::POSTGRESQL;
use crate::ports::Port;
use crate::process::bound;
use crate::runner::{Runner, Template, open_scratch, run};
use crate::scratch::Scratch;
use crate::versions::postgres_program;
use crate::{PATIENCE, wait_for, wait_until};

/// The user of the server's package.
pub(super) const USER: &str = "postgres";

/// A server. Dropping it kills it and removes its data.
#[derive(Debug)]
pub struct Server {
    settings: Settings,
    port: Port,
    clock: Option<Clock>,
    runner: Runner,
    daemon: Daemon,
    directory: Scratch,
}

impl Server {
    /// Starts a server and waits until it serves. The role [`OWNER`] is there, and a database that it owns and that is called so, too.
    ///
    /// # Errors
    /// When it does not, with the end of its log.
    ///
    /// # Panics
    /// When PostgreSQL is not installed, with the command that installs it.
    pub fn start(settings: Settings) -> io::Result<Self> {
        let server = Self::prepare(settings)?;
        server.restart()?;
        server.wait_until_serving()?;
        if server.settings.standby_of.is_none() {
            server.sql("postgres", &format!("CREATE ROLE {OWNER} LOGIN PASSWORD 'secret'"))?;
            server.sql("postgres", &format!("CREATE DATABASE {OWNER} OWNER {OWNER}"))?;
        }
        Ok(server)
    }

    fn prepare(settings: Settings) -> io::Result<Self> {
        POSTGRESQL.require();
        let (directory, port, runner) = (open_scratch()?, Port::reserve()?, Runner::of(USER)?);
        let clock = settings.own_clock.then(|| Clock::new(directory.path())).transpose()?;
        let data = directory.path().join("data");
        match settings.standby_of {
            None => {
                run(Command::new("cp").arg("-a").arg(template(runner)?).arg(&data))?;
            }
            Some(primary) => {
                DirBuilder::new().mode(0o700).create(&data)?;
                runner.give(&data)?;
                let mut copy = runner.command(&postgres_program("pg_basebackup"));
                copy.args(["-h", &primary.ip().to_string(), "-p", &primary.port().to_string(), "-U", "postgres"]);
                copy.args(["--checkpoint=fast", "--no-sync", "-R", "-D"]).arg(&data);
                run(&mut copy)?;
            }
        }
        let sockets = directory.path().join("sockets");
        fs::create_dir(&sockets)?;
        runner.give(&sockets)?;
        let tls = match &settings.tls {
            None => None,
            Some(tls) => Some((own_copy(runner, &tls.certificate, &data)?, own_copy(runner, &tls.key, &data)?)),
        };
        let daemon = Daemon::new(directory.path().join("log"));
        let server = Self { settings, port, clock, runner, daemon, directory };
        let tls = tls.as_ref().map(|(certificate, key)| (&**certificate, &**key));
        let config = server.settings.config(server.port.number(), &sockets.to_string_lossy(), tls);
        for (file, text) in [("postgresql.auto.conf", config), ("pg_hba.conf", server.settings.access())] {
            fs::write(data.join(file), text)?;
            runner.give(&data.join(file))?;
        }
        Ok(server)
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The directory of its socket file.
    #[must_use]
    pub fn sockets(&self) -> PathBuf {
        self.directory.path().join("sockets")
    }

    /// The URL of a store in the database that [`Server::start`] makes.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://{OWNER}:secret@{}/{OWNER}", self.address())
    }

    /// Runs statements as the superuser, and returns what `psql` prints of them, unadorned.
    ///
    /// # Errors
    /// What the server says.
    pub fn sql(&self, database: &str, statements: &str) -> io::Result<String> {
        sql_at(self.address(), database, statements)
    }

    /// Kills the server with all its processes, as `kill -9` does. Repeatable.
    ///
    /// # Panics
    /// When the system refuses to.
    pub fn kill(&self) {
        if let Some(mut process) = self.daemon.process().take() {
            // Stopped first, so that it starts no other one meanwhile.
            let children = process.pause().map(|()| children(process.id())).unwrap_or_default();
            signal(&children, Signal::KILL);
            process.kill().expect("killing a child");
            wait_until(PATIENCE, || children.iter().all(|child| !is_there(*child)));
        }
    }

    /// Ends it as an immediate shutdown does: without a word, and without anything that was not on disk yet.
    ///
    /// # Errors
    /// When it does not end.
    pub fn stop_immediately(&self) -> io::Result<()> {
        let Some(mut process) = self.daemon.process().take() else { return Ok(()) };
        signal(&[process.id()], Signal::QUIT);
        wait_for("the server ends", || matches!(process.ended(), Ok(Some(_))))
    }

    /// Stops the server with all its processes, as SIGSTOP does; its sockets stay.
    ///
    /// # Panics
    /// When it does not run.
    pub fn pause(&self) {
        let mut process = self.daemon.process();
        let process = process.as_mut().expect("a server that runs");
        process.pause().expect("stopping a child");
        signal(&children(process.id()), Signal::STOP);
    }

    /// Lets a paused server go on.
    ///
    /// # Panics
    /// When it does not run.
    pub fn resume(&self) {
        let mut process = self.daemon.process();
        let process = process.as_mut().expect("a server that runs");
        signal(&children(process.id()), Signal::CONT);
        process.resume().expect("continuing a child");
    }

    /// Starts the server again with what is on its disk, after killing it if it still runs. Does not wait until it serves.
    ///
    /// # Errors
    /// Whatever the system says.
    pub fn restart(&self) -> io::Result<()> {
        self.kill();
        let words = self.runner.words_of_server();
        let mut command = bound(&words[0]);
        command.args(&words[1..]).arg(postgres_program("postgres")).arg("-D").arg(self.data()).current_dir("/");
        if let Some(clock) = &self.clock {
            clock.give_to(&mut command);
        }
        self.daemon.start(command)
    }

    /// Its processes: the first one, and those that it started.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        self.daemon.id().into_iter().flat_map(|id| [id].into_iter().chain(children(id))).collect()
    }

    /// Makes a standby take writes from now on.
    ///
    /// # Errors
    /// When it does not.
    pub fn promote(&self) -> io::Result<()> {
        self.sql("postgres", "SELECT pg_promote(true, 60)").map(drop)
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

    /// Whether it runs, paused or not.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.daemon.is_running()
    }

    /// Lets everything go on: a paused server, one that is dead, a clock that is off.
    ///
    /// # Errors
    /// As [`Server::wait_until_serving`].
    pub fn heal(&self) -> io::Result<()> {
        if let Some(clock) = &self.clock {
            clock.set(0)?;
        }
        if self.is_running() {
            self.resume();
        } else {
            self.restart()?;
        }
        self.wait_until_serving()
    }

    /// Waits until it answers.
    ///
    /// # Errors
    /// With the end of its log when it does not within [`PATIENCE`], or when it ended.
    pub fn wait_until_serving(&self) -> io::Result<()> {
        self.daemon.wait_until(self.address(), || self.sql("postgres", "SELECT 1").is_ok())
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs statements as the superuser of the server at `address`.
pub(super) fn sql_at(address: SocketAddr, database: &str, statements: &str) -> io::Result<String> {
    let mut psql = Command::new(postgres_program("psql"));
    psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", database]).args(["-c", statements]);
    psql.args(["-h", &address.ip().to_string(), "-p", &address.port().to_string()]).env("PGCONNECT_TIMEOUT", "10");
    run(psql.stdin(Stdio::null()).current_dir("/"))
}

/// The data of a server that never ran, whose superuser is `postgres`.
fn template(runner: Runner) -> io::Result<PathBuf> {
    static TEMPLATE: Template = Template::new();
    TEMPLATE.data(runner, |data| {
        let mut initdb = runner.command(&postgres_program("initdb"));
        initdb.args(["--no-sync", "-U", "postgres", "-E", "UTF8", "--locale=C", "--auth=trust", "-D"]).arg(data);
        initdb
    })
}

/// A copy that the server's user alone can read, as the server wants it of a key.
fn own_copy(runner: Runner, file: &Path, data: &Path) -> io::Result<String> {
    use std::os::unix::fs::PermissionsExt;
    let copy = data.join(file.file_name().unwrap_or_default());
    fs::copy(file, &copy)?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o600))?;
    runner.give(&copy)?;
    Ok(copy.to_string_lossy().into_owned())
}

/// The children of a process.
fn children(parent: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_child = |id: &u32| stat(*id).is_some_and(|(_, of)| of == parent);
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_child).collect()
}

/// The state of a process, and its parent.
fn stat(id: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

fn is_there(id: u32) -> bool {
    stat(id).is_some_and(|(state, _)| state != 'Z')
}

/// Sends it to those that are still there.
fn signal(processes: &[u32], signal: Signal) {
    let pids = processes.iter().filter_map(|id| Pid::from_raw(i32::try_from(*id).ok()?));
    for pid in pids {
        // The process may have ended meanwhile.
        let _ = kill_process(pid, signal);
    }
}
