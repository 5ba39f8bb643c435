//! Drivers, which several cells use in turn: to start a Java machine takes a second of a processor.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use fencelock_interop::Built;

use crate::clients::Program;
use crate::driver::Driver;

/// Drivers that are connected to one server.
#[derive(Debug)]
pub(crate) struct Pool {
    built: Built,
    servers: String,
    /// The options of fencelock for this server.
    options: String,
    /// How long a session lives without its client, or a lock.
    ttl: Duration,
    log: PathBuf,
    idle: Mutex<Vec<(Program, Driver)>>,
}

impl Pool {
    pub(crate) fn new(built: Built, servers: String, options: String, ttl: Duration, log: PathBuf) -> Self {
        Self { built, servers, options, ttl, log, idle: Mutex::default() }
    }

    /// An idle driver, or else a new one, which may not be ready yet. Errors call the driver `name`.
    pub(crate) fn hire(&self, program: Program, name: &'static str) -> Result<Driver> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = idle.iter().position(|(of, _)| *of == program) {
            let (_, mut driver) = idle.swap_remove(index);
            driver.rename(name);
            return Ok(driver);
        }
        drop(idle);
        let mut command = program.command(&self.built)?;
        command.arg(program.servers(&self.servers, &self.options)).arg(self.ttl.as_millis().to_string());
        command.arg(&self.log);
        Driver::start(name, command)
    }

    /// For the next cell. The driver must be ready, and hold nothing.
    pub(crate) fn dismiss(&self, program: Program, driver: Driver) {
        if driver.is_alive() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push((program, driver));
        }
    }
}
