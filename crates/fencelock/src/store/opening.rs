//! The parameters with which a store opens a session, and the runtime of its tasks.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::Owner;
use crate::error::{Error, ErrorKind, Result};
use crate::time::Clock;

/// The parameters with which a store opens a session.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Opening {
    /// The owner of the session.
    pub owner: Owner,
    /// The time that the session lives without a renewal.
    pub ttl: Duration,
    /// The time after which the engine gives up a request.
    pub request_deadline: Duration,
    /// The clock of all measurements.
    pub clock: Arc<dyn Clock>,
    /// The runtime of the session's background tasks.
    pub tasks: Tasks,
}

impl Opening {
    /// Parameters of a session without a client: tasks run on the tokio runtime around the call, and requests may take a third of `ttl`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] without a runtime.
    pub fn here(owner: Owner, ttl: Duration, clock: Arc<dyn Clock>) -> Result<Self> {
        Ok(Self { owner, ttl, request_deadline: ttl / 3, clock, tasks: Tasks::here()? })
    }

    /// How long the store waits for an answer: a tenth less than the engine does, so that the store's error still names the request.
    pub fn patience(&self) -> Duration {
        self.request_deadline * 9 / 10
    }
}

/// The runtime of a store's tasks: the I/O thread, or the runtime of the client.
#[derive(Debug, Clone)]
pub struct Tasks(Handle);

impl Tasks {
    /// The tokio runtime around the call.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] without a runtime.
    pub fn here() -> Result<Self> {
        let missing = |error| {
            Error::new(ErrorKind::Config, "runtime", "there is no tokio runtime around the call").caused_by(error)
        };
        Handle::try_current().map(Self).map_err(missing)
    }

    pub(crate) fn on(handle: Handle) -> Self {
        Self(handle)
    }

    /// Starts `task`. The task ends with the runtime at the latest.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.0.spawn(task).abort_handle()
    }

    /// The runtime itself.
    pub fn handle(&self) -> &Handle {
        &self.0
    }
}
