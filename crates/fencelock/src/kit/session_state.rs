//! The state of one session over a server, however its locks are kept there: whether it lives, and how the client is notified of its end.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Notify, mpsc};

use super::own_places;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{Loss, SessionEvent};
use crate::time::Moment;

/// The number of a new session or client.
pub(crate) fn random_number(operation: &'static str) -> Result<u64> {
    getrandom::u64()
        .map_err(|error| Error::new(ErrorKind::Exhausted, operation, "no random numbers").caused_by(error.to_string()))
}

pub(crate) struct SessionState {
    events: mpsc::UnboundedSender<SessionEvent>,
    cause: OnceLock<Loss>,
    /// The sending time of the newest request whose answer proved the session alive; 0 before the session is open.
    confirmed: AtomicU64,
    /// Rung when a waiting place is due sooner than was planned.
    pub(crate) bell: Notify,
}

impl SessionState {
    pub(crate) fn new(events: mpsc::UnboundedSender<SessionEvent>) -> Self {
        Self { events, cause: OnceLock::new(), confirmed: AtomicU64::new(0), bell: Notify::new() }
    }

    /// The sending time of the newest request whose answer proved the session alive.
    pub(crate) fn confirmed(&self) -> Moment {
        Moment::from_nanos(self.confirmed.load(Ordering::Acquire))
    }

    /// The server answered a request that was sent at `sent`: the session lives.
    pub(crate) fn confirm(&self, sent: Moment) {
        self.confirmed.fetch_max(sent.as_nanos(), Ordering::AcqRel);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.confirmed().as_nanos() != 0
    }

    /// The cause of the session's end. The first cause stays.
    pub(crate) fn cause(&self) -> Option<Loss> {
        self.cause.get().copied()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.cause().is_some()
    }

    /// Whether the server has removed all places of the session.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.cause(), Some(Loss::Expired | Loss::Closed))
    }

    /// Ends the session, and returns whether it lived until now. A client that closes its session receives no event.
    pub(crate) fn end(&self, loss: Loss) -> bool {
        let is_first = self.cause.set(loss).is_ok();
        if is_first && loss != Loss::Closed {
            self.notify(SessionEvent::Over);
        }
        is_first
    }

    /// Refuses an operation that needs a living session.
    pub(crate) fn alive(&self, operation: &'static str) -> Result<()> {
        if self.has_ended() { Err(own_places::over(operation)) } else { Ok(()) }
    }

    /// Sends an event to the client, which may have dropped the receiver.
    pub(crate) fn notify(&self, event: SessionEvent) {
        let _ = self.events.send(event);
    }
}
