//! The process of one server, while there is one, and its log.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::process::Process;
use crate::{PATIENCE, wait_until};

#[derive(Debug)]
pub(crate) struct Daemon {
    process: Mutex<Option<Process>>,
    log: PathBuf,
}

impl Daemon {
    /// A daemon that is not started yet.
    pub(crate) fn new(log: PathBuf) -> Self {
        Self { process: Mutex::default(), log }
    }

    pub(crate) fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn start(&self, mut command: Command) -> io::Result<()> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        *self.process() = Some(Process::start(command)?);
        Ok(())
    }

    pub(crate) fn id(&self) -> Option<u32> {
        self.process().as_ref().map(Process::id)
    }

    /// Whether it is there, paused or not.
    pub(crate) fn is_running(&self) -> bool {
        self.process().as_mut().is_some_and(|process| matches!(process.ended(), Ok(None)))
    }

    pub(crate) fn kill(&self) {
        if let Some(mut process) = self.process().take() {
            process.kill().expect("killing a child");
        }
    }

    pub(crate) fn pause(&self) {
        self.process().as_mut().expect("a server that runs").pause().expect("stopping a child");
    }

    pub(crate) fn resume(&self) {
        self.process().as_mut().expect("a server that runs").resume().expect("continuing a child");
    }

    /// Continues a stopped process, or starts a dead one by `restart`.
    pub(crate) fn revive(&self, restart: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        match self.is_running() {
            true => self.resume(),
            false => restart()?,
        }
        Ok(())
    }

    /// Waits until it serves; with the end of its log when it does not within [`PATIENCE`], or when it ended.
    pub(crate) fn wait_until(&self, address: SocketAddr, serves: impl Fn() -> bool) -> io::Result<()> {
        let mut runs = true;
        let settled = wait_until(PATIENCE, || {
            runs = self.is_running();
            !runs || serves()
        });
        if settled && runs {
            return Ok(());
        }
        let why = if runs { "does not serve" } else { "ended" };
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        let end = lines[lines.len().saturating_sub(20)..].join("\n");
        Err(io::Error::other(format!("the server at {address} {why}; its log ends:\n{end}")))
    }
}
