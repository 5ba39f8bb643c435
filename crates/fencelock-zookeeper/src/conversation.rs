//! The protocol on one connection: which answer belongs to which request, and what a notification means. No I/O, and no clock of its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::answer::Reply;
use crate::error::{Error, ErrorKind};
use crate::events::Event;
use crate::frames::Incoming;
use crate::liveness::Contacts;
use crate::outbox::Request;
use crate::proto::codec::{Malformed, Reader};
use crate::proto::op::Op;
use crate::proto::response::{self, Header};
use crate::proto::{code, request, xid};
use crate::shared::Shared;
use crate::watches::{WatchEvent, WatchKind};

/// Why a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// The connection is gone; the session may still live.
    Lost(String),
    /// The session has expired, as the server said.
    Expired,
    /// The server refused the credentials, with this code.
    AuthFailed(i32),
    /// The session was closed on request.
    Closed,
    /// The session could not be closed in time.
    CloseFailed(String),
}

impl From<Malformed> for End {
    fn from(Malformed(what): Malformed) -> Self {
        Self::Lost(format!("the server sent what is not ZooKeeper's protocol: {what}"))
    }
}

/// A request that was written, or is about to be.
#[derive(Debug)]
struct Written {
    request: Request,
    /// The time just before the write, on the configured clock.
    sent: Duration,
    /// For a `sync` that renews: the moment up to which the answer proves the session.
    proves: Option<Duration>,
    /// How many bytes went out on this connection before the request.
    offset: u64,
}

#[derive(Debug)]
pub(crate) struct Conversation {
    shared: Arc<Shared>,
    server: String,
    /// Answers come in the order of the requests.
    written: VecDeque<Written>,
    /// How many requests at the front have failed by their deadline.
    given_up: usize,
    pings: VecDeque<Duration>,
    auths: usize,
    set_watches: usize,
    /// Whether the session may have moved to another server: the client asks the leader first.
    is_doubted: bool,
    contacts: Contacts,
    /// The newest transaction in an answer.
    seen: i64,
}

impl Conversation {
    pub(crate) fn new(shared: Arc<Shared>, server: String, contacts: Contacts, seen: i64) -> Self {
        let written = VecDeque::new();
        let pings = VecDeque::new();
        let (auths, set_watches, is_doubted) = (0, 0, false);
        Self { shared, server, written, given_up: 0, pings, auths, set_watches, is_doubted, contacts, seen }
    }

    /// Other servers may have got the session meanwhile: the client asks the leader, and only its reply confirms that the session continues.
    pub(crate) fn doubted(self) -> Self {
        Self { is_doubted: true, ..self }
    }

    /// Whether requests may be sent.
    pub(crate) fn is_settled(&self) -> bool {
        !self.is_doubted
    }

    /// The first messages of a new connection: the credentials, the question which server has the session, then the watches of the last connection.
    pub(crate) fn begin(&mut self, out: &mut Vec<u8>) {
        for auth in self.shared.credentials() {
            out.extend_from_slice(request::auth(&auth.scheme, &auth.credentials).bytes());
            self.auths += 1;
        }
        if self.is_doubted {
            out.extend_from_slice(request::ask_owner().bytes());
        }
        for frame in crate::rewatch::frames(&self.shared.watches, self.seen, self.shared.config.max_frame) {
            out.extend_from_slice(frame.bytes());
            self.set_watches += 1;
        }
    }

    /// Appends a request to `out`, whose first byte is the `flushed`-th of the connection. `now` is before the write.
    pub(crate) fn send(&mut self, request: Request, now: Duration, out: &mut Vec<u8>, flushed: u64) {
        let proves = if request.confirms { self.contacts.proven_by_sync(now) } else { None };
        let offset = flushed + out.len() as u64;
        out.extend_from_slice(request.frame.bytes());
        self.written.push_back(Written { request, sent: now, proves, offset });
    }

    pub(crate) fn ping(&mut self, now: Duration, out: &mut Vec<u8>) {
        out.extend_from_slice(request::ping().bytes());
        self.pings.push_back(now);
    }

    /// Whether the server owes an answer.
    pub(crate) fn awaits(&self) -> bool {
        !self.written.is_empty() || !self.pings.is_empty() || self.auths > 0 || self.set_watches > 0 || self.is_doubted
    }

    /// Whether all credentials were taken.
    pub(crate) fn is_ready(&self) -> bool {
        self.auths == 0
    }

    pub(crate) fn seen(&self) -> i64 {
        self.seen
    }

    /// Applies a frame that was read by `now`. Returns whether it was an answer.
    pub(crate) fn receive(&mut self, incoming: &Incoming<'_>, now: Duration) -> Result<bool, End> {
        let (Incoming::Whole(bytes) | Incoming::TooLarge { header: bytes, .. }) = incoming;
        let mut record = Reader::new(bytes);
        let header = Header::read(&mut record)?;
        match header.xid {
            xid::NOTIFICATION => return self.notified(incoming, &mut record).map(|()| false),
            xid::PING => self.answered_ping(now)?,
            xid::AUTH => self.answered_auth(header.code)?,
            xid::OWNER => self.answered_owner(header.code)?,
            xid::SET_WATCHES => self.answered_set_watches(header.code)?,
            _ => self.answered(header, incoming, now)?,
        }
        Ok(true)
    }

    fn notified(&self, incoming: &Incoming<'_>, record: &mut Reader<'_>) -> Result<(), End> {
        if matches!(incoming, Incoming::TooLarge { .. }) {
            return Err(Malformed("a notification is longer than the frame limit").into());
        }
        let (event, path) = response::notification(record)?;
        // Events about the connection's state have no known number, and are ignored.
        if let Some(event) = WatchEvent::from_number(event) {
            self.shared.watches.tell(&path, event);
        }
        Ok(())
    }

    fn answered_ping(&mut self, now: Duration) -> Result<(), End> {
        let sent = self.pings.pop_front().ok_or(Malformed("an answer to a ping that was not sent"))?;
        self.contacts.answered(sent, now);
        Ok(())
    }

    fn answered_auth(&mut self, code: i32) -> Result<(), End> {
        if code != code::OK {
            return Err(End::AuthFailed(code));
        }
        self.auths = self.auths.checked_sub(1).ok_or(Malformed("an answer to credentials that were not sent"))?;
        Ok(())
    }

    fn answered_owner(&mut self, code: i32) -> Result<(), End> {
        if !std::mem::take(&mut self.is_doubted) {
            return Err(Malformed("an answer to a question that was not asked").into());
        }
        match code {
            code::SESSION_MOVED => return Err(moved()),
            code::SESSION_EXPIRED => return Err(End::Expired),
            // Any other answer comes from the session's own server.
            _ => self.shared.events.push(Event::Reconnected { server: self.server.clone() }),
        }
        Ok(())
    }

    fn answered_set_watches(&mut self, code: i32) -> Result<(), End> {
        self.set_watches =
            self.set_watches.checked_sub(1).ok_or(Malformed("an answer to watches that were not set"))?;
        if code != code::OK {
            // A waiter for one of these watches would wait for ever: the next connection sets them anew.
            return Err(End::Lost(format!("the server did not set the watches anew, with error {code}")));
        }
        Ok(())
    }

    fn answered(&mut self, header: Header, incoming: &Incoming<'_>, now: Duration) -> Result<(), End> {
        let is_asked = |written: &Written| written.request.frame.xid() == header.xid;
        let next = if self.written.front().is_some_and(is_asked) { self.written.pop_front() } else { None };
        let Some(Written { mut request, sent, proves, .. }) = next else {
            // A server that reports the move of the session never answers that request.
            let is_later = self.written.iter().any(is_asked);
            return Err(if is_later { moved() } else { Malformed("an answer out of turn").into() });
        };
        self.given_up = self.given_up.saturating_sub(1);
        self.seen = self.seen.max(header.zxid);
        self.contacts.answered(sent, now);
        if let Some(moment) = proves.filter(|_| header.code == code::OK) {
            self.shared.confirm(moment);
        }
        if request.frame.op() == Op::Close {
            return Err(End::Closed);
        }
        if header.code == code::SESSION_EXPIRED {
            request.settle(Err(self.refused(&request, header.code)));
            return Err(End::Expired);
        }
        let outcome = match incoming {
            Incoming::TooLarge { length, .. } => Err(self.too_large(&request, *length)),
            Incoming::Whole(frame) => self.outcome(&request, header.code, &frame[Header::LEN..]),
        };
        request.settle(outcome);
        Ok(())
    }

    /// The outcome of a request, from its reply's code and record.
    fn outcome(&self, request: &Request, code: i32, record: &[u8]) -> crate::error::Result<Reply> {
        let is_absent = request.frame.op() == Op::Exists && code == code::NO_NODE;
        if code != code::OK && !is_absent {
            return Err(self.refused(request, code));
        }
        let record = if is_absent { &[] } else { record };
        // A watch begins when its answer is read, and not earlier: the server sends the answer before the watch's event.
        let watch = request.watch.filter(|_| !request.is_unwanted()).map(|kind| {
            let kind = if is_absent { WatchKind::Absent } else { kind };
            self.shared.watches.register(request.frame.path(), kind, self.shared.config.chroot.len())
        });
        Ok(Reply { record: record.to_vec(), watch, confirmed: self.shared.confirmed() })
    }

    fn refused(&self, request: &Request, code: i32) -> Error {
        self.place(request, code::error(code, request.frame.op().name()))
    }

    fn too_large(&self, request: &Request, length: usize) -> Error {
        let limit = self.shared.config.max_answer;
        let message = format!("the answer has {length} bytes, and the limit for answers is {limit}");
        // The server has carried the request out; only its reply is lost.
        self.place(request, Error::new(ErrorKind::TooLarge, request.frame.op().name(), message).unknown())
    }

    /// Adds the server and the path of the request to an error.
    fn place(&self, request: &Request, error: Error) -> Error {
        let error = error.on_server(self.server.as_str());
        match self.shared.visible(request.frame.path()) {
            "" => error,
            path => error.on_path(path),
        }
    }

    /// The deadline of the first request that was not given up yet.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.written.get(self.given_up).map(|written| written.request.deadline)
    }

    /// Gives up the requests whose deadline has passed; their answers will be dropped.
    pub(crate) fn give_up(&mut self, now: Instant) {
        while let Some(index) = self.next_deadline().filter(|deadline| *deadline <= now).map(|_| self.given_up) {
            self.given_up += 1;
            let request = &self.written[index].request;
            let message = "no answer came before the deadline";
            let error = Error::new(ErrorKind::Deadline, request.frame.op().name(), message).unknown();
            let error = self.place(request, error);
            self.written[index].request.settle(Err(error));
        }
    }

    /// Whether a write has no answer of which at least a part was among the first `flushed` bytes.
    pub(crate) fn owes_a_write(&self, flushed: u64) -> bool {
        self.written.iter().any(|written| written.offset < flushed && written.request.frame.op().is_write())
    }

    /// The connection has ended, and `flushed` bytes went out on it. Written requests fail with `why`, their outcome unknown; unwritten
    /// requests are returned, in their order.
    pub(crate) fn end(self, flushed: u64, why: &Error) -> Vec<Request> {
        let (server, shared) = (self.server, self.shared);
        let mut unwritten = Vec::new();
        for Written { mut request, offset, .. } in self.written {
            if offset >= flushed {
                unwritten.extend(Some(request).filter(|request| request.frame.op() != Op::Close));
                continue;
            }
            let error = why.clone().in_operation(request.frame.op().name()).on_server(server.as_str()).unknown();
            let error = error.on_path(shared.visible(request.frame.path()));
            request.settle(Err(error));
        }
        unwritten
    }
}

fn moved() -> End {
    End::Lost("the server left a request without an answer: another server was given the session meanwhile".to_owned())
}
