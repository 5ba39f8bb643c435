//! A server: its process, while there is one, its log, and its faults.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process};

use crate::clock::Clock;
use crate::ports::Port;
use crate::process::Process;
use crate::scratch::Scratch;
use crate::{PATIENCE, Server, wait_until};

/// A kind of server: its program and its settings.
pub trait Program: fmt::Debug + Send + Sync + Sized {
    /// The command that starts the server.
    fn command(server: &Daemon<Self>) -> Command;

    /// Whether the server answers requests, and has read its data.
    fn serves(server: &Daemon<Self>) -> bool;

    /// How many requests of clients the server has received.
    fn requests(server: &Daemon<Self>) -> io::Result<u64>;

    /// Where clients connect, unless it is the port of the server.
    fn front(&self) -> Option<SocketAddr> {
        None
    }

    /// Ends faults of a server whose process runs.
    fn mend(server: &Daemon<Self>) {
        let _ = server;
    }
}

/// A server of one kind. A dropped server is killed, and its data removed.
#[derive(Debug)]
pub struct Daemon<P: Program> {
    pub(crate) port: Port,
    clock: Option<Clock>,
    process: Mutex<Option<Process>>,
    pub(crate) directory: Scratch,
    pub(crate) program: P,
}

impl<P: Program> Daemon<P> {
    /// A server that is not started yet.
    pub(crate) fn new(port: Port, own_clock: bool, directory: Scratch, program: P) -> io::Result<Self> {
        let clock = own_clock.then(|| Clock::new(directory.path())).transpose()?;
        Ok(Self { port, clock, process: Mutex::default(), directory, program })
    }

    /// Starts the server, and waits until it serves.
    pub(crate) fn started(self) -> io::Result<Self> {
        self.restart()?;
        self.wait_until_serving().map(|()| self)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    pub(crate) fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Whether the daemon's process is there, paused or not.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.process().as_mut().is_some_and(|process| matches!(process.ended(), Ok(None)))
    }

    /// Kills the server with all its processes, as `kill -9` does. Repeatable.
    pub fn kill(&self) {
        if let Some(mut process) = self.process().take() {
            // Each process is stopped first, so that it starts no other meanwhile. The number of an ended process may belong to another.
            let is_stopped = matches!(process.ended(), Ok(None)) && process.pause().is_ok();
            let children = if is_stopped { children(process.id()) } else { Vec::new() };
            signal(&children, Signal::KILL);
            process.kill().expect("killing a child");
            wait_until(PATIENCE, || children.iter().all(|child| !is_there(*child)));
        }
    }

    /// Stops the server with all its processes, as SIGSTOP does; its sockets stay.
    ///
    /// # Panics
    /// If the server does not run.
    pub fn pause(&self) {
        let mut process = self.process();
        let process = process.as_mut().expect("a server that runs");
        process.pause().expect("stopping a child");
        signal(&children(process.id()), Signal::STOP);
    }

    /// Continues a paused server.
    ///
    /// # Panics
    /// If the server does not run.
    pub fn resume(&self) {
        let mut process = self.process();
        let process = process.as_mut().expect("a server that runs");
        signal(&children(process.id()), Signal::CONT);
        process.resume().expect("continuing a child");
    }

    /// Starts the server again with what is on its disk, after killing it if it still runs. Does not wait until it serves.
    pub fn restart(&self) -> io::Result<()> {
        self.kill();
        let mut command = P::command(self);
        if let Some(clock) = &self.clock {
            clock.give_to(&mut command);
        }
        let log = File::options().create(true).append(true).open(self.log())?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        *self.process() = Some(Process::start(command)?);
        Ok(())
    }

    /// Shifts the server's wall clock by `seconds` from the true time. The setting `own_clock` gives the server a clock.
    ///
    /// # Panics
    /// If the server has no clock of its own.
    pub fn set_clock(&self, seconds: i64) -> io::Result<()> {
        self.clock.as_ref().expect("a server with a clock of its own, see the settings").set(seconds)
    }

    /// Ends all faults: a pause, a death, a wrong clock, and [`Program::mend`]. The data stays.
    pub fn heal(&self) -> io::Result<()> {
        self.revive()?;
        P::mend(self);
        self.wait_until_serving()
    }

    /// Continues a paused server, or starts a dead one again. Does not wait until it serves.
    pub(crate) fn revive(&self) -> io::Result<()> {
        if let Some(clock) = &self.clock {
            clock.set(0)?;
        }
        if !self.is_running() {
            return self.restart();
        }
        self.resume();
        Ok(())
    }

    /// Waits until the server serves.
    ///
    /// # Errors
    /// An error with the end of the log if the server ended, or does not serve within [`PATIENCE`].
    pub fn wait_until_serving(&self) -> io::Result<()> {
        let mut runs = true;
        let settled = wait_until(PATIENCE, || {
            runs = self.is_running();
            !runs || P::serves(self)
        });
        if settled && runs {
            return Ok(());
        }
        let why = if runs { "does not serve" } else { "ended" };
        let log = fs::read(self.log()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        let end = lines[lines.len().saturating_sub(20)..].join("\n");
        Err(io::Error::other(format!("the server at {} {why}; its log ends:\n{end}", self.address())))
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }
}

impl<P: Program> Drop for Daemon<P> {
    fn drop(&mut self) {
        self.kill();
    }
}

impl<P: Program> Server for Daemon<P> {
    fn address(&self) -> SocketAddr {
        self.program.front().unwrap_or_else(|| self.address())
    }

    fn processes(&self) -> Vec<u32> {
        let first = self.process().as_ref().map(Process::id);
        first.into_iter().flat_map(|id| [id].into_iter().chain(children(id))).collect()
    }

    fn kill(&self) {
        self.kill();
    }

    fn pause(&self) {
        self.pause();
    }

    fn resume(&self) {
        self.resume();
    }

    fn restart(&self) -> io::Result<()> {
        self.restart()?;
        self.wait_until_serving()
    }

    fn heal(&self) -> io::Result<()> {
        self.heal()
    }

    fn requests(&self) -> io::Result<u64> {
        P::requests(self)
    }
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

/// Sends the signal to the processes that are still there.
pub(crate) fn signal(processes: &[u32], signal: Signal) {
    let pids = processes.iter().filter_map(|id| Pid::from_raw(i32::try_from(*id).ok()?));
    for pid in pids {
        // The process may have ended meanwhile.
        let _ = kill_process(pid, signal);
    }
}
