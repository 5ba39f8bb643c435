//! The state that the handles and the connection's task share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::config::{Auth, Config};
use crate::conversation::End;
use crate::error::{Error, Result};
use crate::events::{Event, EventQueue};
use crate::outbox::Outbox;
use crate::watches::WatchTable;

/// The session as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionInfo {
    /// The session's number, the `ephemeral_owner` of its ephemeral nodes.
    pub id: i64,
    /// The session's timeout, as the server granted it.
    pub timeout: Duration,
    /// The address of the present or the last server.
    pub server: String,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) request_deadline: Duration,
    pub(crate) outbox: Outbox,
    pub(crate) watches: Arc<WatchTable>,
    pub(crate) events: Arc<EventQueue>,
    /// How the client ended, once it has.
    pub(crate) ended: watch::Sender<Option<Result<()>>>,
    session: Mutex<SessionInfo>,
    /// The credentials that each connection sends first.
    credentials: Mutex<Vec<Auth>>,
    epoch: AtomicU64,
    /// Nanoseconds on the configured clock.
    confirmed: AtomicU64,
}

impl Shared {
    pub(crate) fn new(config: Config) -> Self {
        let session = SessionInfo { id: 0, timeout: config.session_timeout, server: String::new() };
        Self {
            request_deadline: config.request_deadline_or_default(),
            credentials: Mutex::new(config.auth.clone()),
            config,
            outbox: Outbox::default(),
            watches: Arc::default(),
            events: Arc::default(),
            ended: watch::Sender::new(None),
            session: Mutex::new(session),
            epoch: AtomicU64::new(0),
            confirmed: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, SessionInfo> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn credentials(&self) -> Vec<Auth> {
        self.credentials.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks for the credentials of the next connection; where they cannot be had, the last ones stay.
    pub(crate) async fn ask_credentials(&self) -> Result<()> {
        if self.config.asked.is_empty() {
            return Ok(());
        }
        let credentials = self.config.credentials().await?;
        *self.credentials.lock().unwrap_or_else(PoisonError::into_inner) = credentials;
        Ok(())
    }

    pub(crate) fn session(&self) -> SessionInfo {
        self.lock().clone()
    }

    /// A connection was established; returns its number, counted from 1.
    pub(crate) fn connected(&self, session: SessionInfo) -> u64 {
        *self.lock() = session;
        self.epoch.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The client has ended, by `end`: all waiters are notified, and further requests fail with `why`.
    pub(crate) fn finish(&self, end: &End, why: Error) {
        for mut request in self.outbox.end(why.clone()) {
            let error = why.clone().in_operation(request.frame.op().name());
            request.settle(Err(error.on_path(self.visible(request.frame.path()))));
        }
        self.watches.end();
        self.events.push(match end {
            End::Expired => Event::Expired,
            End::AuthFailed(_) => Event::AuthFailed,
            End::Lost(_) | End::Closed | End::CloseFailed(_) => Event::Closed,
        });
        self.ended.send_replace(Some(match end {
            End::Closed | End::Expired => Ok(()),
            End::Lost(_) | End::AuthFailed(_) | End::CloseFailed(_) => Err(why.in_operation("close").unknown()),
        }));
    }

    /// A server's path, without the chroot.
    pub(crate) fn visible<'p>(&self, path: &'p str) -> &'p str {
        match path.strip_prefix(&self.config.chroot) {
            Some("") => "/",
            Some(visible) => visible,
            None => path,
        }
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// The session was certainly alive at this moment; moments never go back.
    pub(crate) fn confirm(&self, at: Duration) {
        self.confirmed.fetch_max(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX), Ordering::AcqRel);
    }

    pub(crate) fn confirmed(&self) -> Duration {
        Duration::from_nanos(self.confirmed.load(Ordering::Acquire))
    }
}
