//! The session: opened, continued on another server, ended.

use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::config::{Config, SHORTEST_PATIENCE};
use crate::connection::Connection;
use crate::conversation::{Conversation, End};
use crate::dial::{Dialer, Established, Expired, Times};
use crate::error::{Error, ErrorKind, Result};
use crate::events::Event;
use crate::handshake::Hello;
use crate::liveness::Contacts;
use crate::proto::handshake::SessionKey;
use crate::shared::{SessionInfo, Shared};

/// Opens a session and serves it on the runtime of the settings. Returns when it is established and all credentials were taken.
pub(crate) async fn open(shared: &Arc<Shared>) -> Result<()> {
    let config = &shared.config;
    let within = config.connect_deadline_or_default();
    let deadline = Instant::now() + within;
    let mut dialer = config.addresses.newcomer(Times::of_newcomer(config.session_timeout, config.attempt));
    let hello = Hello { ticket: SessionKey::none(), timeout: config.session_timeout, seen: 0 };
    match timeout_at(deadline, shared.ask_credentials()).await {
        Ok(asked) => asked?,
        Err(_) => return Err(Error::new(ErrorKind::Deadline, "connect", "the credentials were not given in time")),
    }
    let dialled = timeout_at(deadline, dialer.dial(shared, hello)).await;
    config.addresses.newcomer_ended(&dialer, matches!(dialled, Ok(Ok(_))));
    let Ok(Ok(established)) = dialled else { return Err(dialer.error("connect", within)) };
    let (ready, outcome) = oneshot::channel();
    let session = Session {
        shared: Arc::clone(shared),
        ticket: SessionKey::none(),
        seen: 0,
        dialer,
        ready: Some(ready),
        over: false,
    };
    let runtime = config.runtime.clone().unwrap_or_else(Handle::current);
    runtime.spawn(session.run(established));
    match timeout_at(deadline, outcome).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => {
            let unknown = || Error::new(ErrorKind::Closed, "connect", "the client was closed");
            Err(shared.outbox.why_over().unwrap_or_else(unknown).in_operation("connect"))
        }
        Err(_) => Err(Error::new(ErrorKind::Deadline, "connect", "no server took the credentials in time")),
    }
}

/// For a session that was granted this timeout: how long a server may be silent, how long the client may send nothing, and the times of
/// dialling. A server that grants more than was asked for makes no caller wait longer.
fn times(config: &Config, granted: Duration) -> (Duration, Duration, Times) {
    let timeout = granted.min(config.session_timeout);
    // A client of one server wins nothing by leaving it early. A name may stand for several servers, even with one address.
    let is_only = matches!(&config.servers[..], [server] if server.host.parse::<IpAddr>().is_ok());
    let patience = config.patience.unwrap_or(if is_only { timeout / 3 } else { timeout / 8 });
    (patience.max(SHORTEST_PATIENCE), timeout / 3, Times::of(timeout, config.attempt))
}

/// The task that keeps the session.
struct Session {
    shared: Arc<Shared>,
    ticket: SessionKey,
    /// The newest transaction in an answer.
    seen: i64,
    dialer: Dialer,
    ready: Option<oneshot::Sender<()>>,
    over: bool,
}

impl Session {
    async fn run(mut self, first: Established) {
        let mut established = first;
        loop {
            let end = self.serve(established).await;
            established = match self.after(end).await {
                Some(established) => established,
                None => return,
            };
        }
    }

    /// Serves one connection to its end.
    async fn serve(&mut self, established: Established) -> End {
        let Established { stream, server, welcome, is_doubted } = established;
        let begun = Instant::now();
        // Contacts of the connection before count no more: a sync on this one proves nothing about another server's messages.
        let mut contacts = Contacts::new(welcome.timeout);
        contacts.answered(welcome.sent, welcome.answered);
        self.ticket = welcome.ticket;
        let (patience, idle, times) = times(&self.shared.config, welcome.timeout);
        self.dialer.found(&server, times);
        if self.ready.is_none() {
            // That is how long a server waits for the rest of a conversation; a server that is silent for longer was left.
            let _ = timeout(times.attempt, self.shared.ask_credentials()).await;
        }
        self.shared.confirm(welcome.sent);
        let info = SessionInfo { id: self.ticket.id, timeout: welcome.timeout, server: server.clone() };
        if self.shared.connected(info) > 1 && !is_doubted {
            self.shared.events.push(Event::Reconnected { server: server.clone() });
        }
        let conversation = Conversation::new(Arc::clone(&self.shared), server.clone(), contacts, self.seen);
        let conversation = if is_doubted { conversation.doubted() } else { conversation };
        let shared = Arc::clone(&self.shared);
        let mut connection = Connection::new(shared, stream, conversation, (patience, idle), self.ready.take());
        let end = connection.serve().await;
        let owes;
        (self.seen, self.ready, owes) = connection.end(&error(&end));
        self.dialer.ended(server, begun.elapsed(), owes);
        end
    }

    /// Takes the next step after the end of a connection: another one, or nothing.
    async fn after(&mut self, end: End) -> Option<Established> {
        let End::Lost(why) = end else {
            self.finish(&end);
            return None;
        };
        let without = format!("there was no connection before the deadline, since {why}");
        self.shared.events.push(Event::Disconnected { why });
        let shared = Arc::clone(&self.shared);
        let hello = Hello { ticket: self.ticket.clone(), timeout: shared.config.session_timeout, seen: self.seen };
        let over = tokio::select! {
            dialled = self.dialer.dial(&shared, hello) => match dialled {
                Ok(established) => return Some(established),
                // The close of a session that is gone has succeeded.
                Err(Expired) if shared.outbox.is_closing() => End::Closed,
                Err(Expired) => End::Expired,
            },
            () = keep_line(&shared, &without) => End::CloseFailed(without),
        };
        self.finish(&over);
        None
    }

    /// The client has ended: notifies all waiters.
    fn finish(&mut self, end: &End) {
        self.over = true;
        self.shared.finish(end, error(end));
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.over {
            // The runtime went, and the task with it.
            self.finish(&End::CloseFailed("the runtime that served the connection is gone".to_owned()));
        }
    }
}

/// While there is no connection: gives up requests that waited for too long. Ends when the session could not be closed in time.
async fn keep_line(shared: &Shared, without: &str) {
    let mut timer = pin!(sleep_until(Instant::now()));
    poll_fn(|context| {
        loop {
            let now = Instant::now();
            let Some(due) = next_due(shared, without, now, context) else { return Poll::Pending };
            if due <= now {
                return Poll::Ready(());
            }
            timer.as_mut().reset(due);
            if timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    })
    .await;
}

/// When to look at the line again; not after `now` when closing is to be given up.
fn next_due(shared: &Shared, without: &str, now: Instant, context: &Context<'_>) -> Option<Instant> {
    let closing = shared.outbox.listen(context);
    let (expired, next) = shared.outbox.expire(now);
    for mut request in expired {
        let error = Error::new(ErrorKind::Unreachable, request.frame.op().name(), without.to_owned());
        let path = shared.visible(request.frame.path()).to_owned();
        request.settle(Err(error.on_path(path)));
    }
    [closing, next].into_iter().flatten().min()
}

/// The error of requests that were unanswered when their connection ended.
fn error(end: &End) -> Error {
    let (kind, message) = match end {
        End::Lost(why) => (ErrorKind::ConnectionLoss, format!("the connection was lost: {why}")),
        End::Expired => (ErrorKind::SessionExpired, "the session has expired".to_owned()),
        End::AuthFailed(_) => (ErrorKind::AuthFailed, "the server refused the credentials".to_owned()),
        End::Closed => (ErrorKind::Closed, "the client was closed".to_owned()),
        End::CloseFailed(why) => {
            (ErrorKind::Closed, format!("the client is closed, and its session ends by its timeout: {why}"))
        }
    };
    let error = Error::new(kind, "connect", message);
    if let End::AuthFailed(code) = end { error.with_code(*code) } else { error }
}
