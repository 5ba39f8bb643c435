//! The client: its requests.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::acl::Acl;
use crate::answer::{self, Answer, Asked, Decode, Fault, decode};
use crate::config::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::events::Events;
use crate::multi::{Done, Operation};
use crate::node::{CreateMode, Created, Stat};
use crate::outbox::Request;
use crate::path;
use crate::proto::frame::Frame;
use crate::proto::op::Op;
use crate::proto::{multi, request, response};
use crate::session;
use crate::shared::{SessionInfo, Shared};
use crate::watches::{Watch, WatchKind};

/// A session with a ZooKeeper ensemble. Cheap to clone; all clones are one session.
///
/// Requests are queued at the call, in the order of the calls, from all clones and threads; a request made while there is no connection
/// waits for one until its deadline. Requests that were written when a connection was lost fail with [`ErrorKind::ConnectionLoss`], their
/// outcome unknown; nothing is ever sent twice.
///
/// Dropping the last clone closes the session, in the background. [`Client::close`] says how that went.
#[derive(Debug, Clone)]
pub struct Client {
    handle: Arc<Handle>,
}

/// The state that clones share; the last one closes the session.
#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
}

/// The properties of a request besides its frame: the watch that it sets, and whether its answer is evidence of the session's life.
type Asking = (Option<WatchKind>, bool);

impl Client {
    /// Opens a session. The connection is served by a task on the runtime that this is called on; requests may come from anywhere.
    ///
    /// # Errors
    /// After [`Config::connect_deadline`]: which servers were tried, and why each one gave no session. At once: [`ErrorKind::Config`] for
    /// settings that cannot work, [`ErrorKind::AuthFailed`] when a server refuses the credentials, [`ErrorKind::NoNode`] when the chroot is
    /// not there.
    ///
    /// # Cancel safety
    /// Dropped, it gives the session up again.
    pub async fn connect(config: Config) -> Result<(Self, Events)> {
        config.check()?;
        let shared = Arc::new(Shared::new(config));
        let events = shared.events.reader();
        let client = Self::of(&shared);
        session::open(&shared).await?;
        client.check_chroot().await?;
        Ok((client, events))
    }

    pub(crate) fn of(shared: &Arc<Shared>) -> Self {
        Self { handle: Arc::new(Handle { shared: Arc::clone(shared) }) }
    }

    async fn check_chroot(&self) -> Result<()> {
        let chroot = &self.shared().config.chroot;
        if chroot.is_empty() || self.exists("/").await?.is_some() {
            return Ok(());
        }
        let message = format!("the chroot {chroot} is not there: create it, or leave it out of the connect string");
        Err(Error::new(ErrorKind::NoNode, "connect", message).on_server(self.session().server))
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    /// The present session: its number, its granted timeout, its server.
    #[must_use]
    pub fn session(&self) -> SessionInfo {
        self.shared().session()
    }

    /// Creates a node. The parent must exist. `path` may end with `/` where a number is appended.
    ///
    /// # Errors
    /// [`ErrorKind::NodeExists`], [`ErrorKind::NoNode`] (the parent), [`ErrorKind::NoAuth`] (by the parent's list),
    /// [`ErrorKind::InvalidAcl`], [`ErrorKind::NoChildrenForEphemerals`].
    pub fn create(&self, path: &str, data: &[u8], mode: CreateMode, acl: &[Acl]) -> Answer<Created> {
        if let Some(fault) = not_a_path(mode.op(), path, mode.is_sequential()) {
            return Answer::refused(fault, mode.op());
        }
        let frame = request::create(self.chroot(), path, data, mode, acl);
        self.submit(frame, (None, false), 1, |reply, asked| {
            let (path, stat) = decode(&reply, response::created)?;
            Ok(Created { path: answer::below_chroot(&path, asked)?, stat })
        })
    }

    /// Deletes a node without children; with a version, only a node of that version.
    ///
    /// # Errors
    /// [`ErrorKind::NoNode`], [`ErrorKind::BadVersion`], [`ErrorKind::NotEmpty`], [`ErrorKind::NoAuth`] (by the *parent's* list).
    pub fn delete(&self, path: &str, version: Option<i32>) -> Answer<()> {
        self.ask(Op::Delete, path, |chroot| request::delete(chroot, path, version), |_, _| Ok(()))
    }

    /// Whether a node exists.
    pub fn exists(&self, path: &str) -> Answer<Option<Stat>> {
        self.read(Op::Exists, path, None, |reply, _| exists(&reply))
    }

    /// As [`Client::exists`], and watches the node, or the path where it may appear.
    pub fn exists_watched(&self, path: &str) -> Answer<(Option<Stat>, Watch)> {
        self.read(Op::Exists, path, Some(WatchKind::Data), |reply, _| Ok((exists(&reply)?, answer::watch(reply)?)))
    }

    /// The data of a node.
    ///
    /// # Errors
    /// [`ErrorKind::NoNode`], [`ErrorKind::NoAuth`].
    pub fn get_data(&self, path: &str) -> Answer<(Vec<u8>, Stat)> {
        self.read(Op::GetData, path, None, |reply, _| decode(&reply, response::data))
    }

    /// As [`Client::get_data`], and watches the node. A missing node leaves no watch.
    ///
    /// # Errors
    /// As [`Client::get_data`].
    pub fn get_data_watched(&self, path: &str) -> Answer<(Vec<u8>, Stat, Watch)> {
        self.read(Op::GetData, path, Some(WatchKind::Data), |reply, _| {
            let (data, stat) = decode(&reply, response::data)?;
            Ok((data, stat, answer::watch(reply)?))
        })
    }

    /// Replaces the data of a node; with a version, only of a node of that version.
    ///
    /// # Errors
    /// [`ErrorKind::NoNode`], [`ErrorKind::BadVersion`], [`ErrorKind::NoAuth`].
    pub fn set_data(&self, path: &str, data: &[u8], version: Option<i32>) -> Answer<Stat> {
        let frame = |chroot: &str| request::set_data(chroot, path, data, version);
        self.ask(Op::SetData, path, frame, |reply, _| decode(&reply, Stat::read))
    }

    /// Several operations at once, in this order: the server does all of them or none, and no client sees an intermediate state. The answer
    /// has the result of each one, in their order. They are one request: [`Config::max_frame`] is for all of them together.
    ///
    /// # Errors
    /// The error of the first operation that is refused; [`Error::refused_operation`] says which one it is, and none was done.
    /// [`ErrorKind::BadArguments`] without an operation; [`ErrorKind::TooLarge`].
    pub fn multi(&self, operations: &[Operation<'_>]) -> Answer<Vec<Done>> {
        if operations.is_empty() {
            let error = Error::new(ErrorKind::BadArguments, Op::Multi.name(), "there is no operation to be done");
            return Answer::refused(error, Op::Multi);
        }
        for (number, operation) in operations.iter().enumerate() {
            if let Some(fault) = not_a_path(Op::Multi, operation.path, operation.is_sequential()) {
                return Answer::refused(fault.of_operation(number), Op::Multi);
            }
        }
        let frame = multi::request(self.chroot(), operations);
        self.submit(frame, (None, false), operations.len(), |reply, asked| answer::all_done(&reply, asked))
    }

    /// The names of a node's children, in no order.
    ///
    /// # Errors
    /// [`ErrorKind::NoNode`], [`ErrorKind::NoAuth`]; [`ErrorKind::TooLarge`] when the names are longer than [`Config::max_answer`].
    pub fn get_children(&self, path: &str) -> Answer<(Vec<String>, Stat)> {
        self.read(Op::GetChildren, path, None, |reply, _| decode(&reply, response::children))
    }

    /// As [`Client::get_children`], and watches for children that come and go.
    ///
    /// # Errors
    /// As [`Client::get_children`].
    pub fn get_children_watched(&self, path: &str) -> Answer<(Vec<String>, Stat, Watch)> {
        self.read(Op::GetChildren, path, Some(WatchKind::Children), |reply, _| {
            let (children, stat) = decode(&reply, response::children)?;
            Ok((children, stat, answer::watch(reply)?))
        })
    }

    /// A node's access control list.
    ///
    /// # Errors
    /// [`ErrorKind::NoNode`], [`ErrorKind::NoAuth`].
    pub fn get_acl(&self, path: &str) -> Answer<(Vec<Acl>, Stat)> {
        let frame = |chroot: &str| request::path_only(Op::GetAcl, chroot, path);
        self.ask(Op::GetAcl, path, frame, |reply, _| decode(&reply, response::acl))
    }

    /// Replaces a node's access control list; with a version, only if the list (`Stat::aversion`) has that one.
    ///
    /// # Errors
    /// [`ErrorKind::NoNode`], [`ErrorKind::BadVersion`], [`ErrorKind::NoAuth`], [`ErrorKind::InvalidAcl`].
    pub fn set_acl(&self, path: &str, acl: &[Acl], version: Option<i32>) -> Answer<Stat> {
        let frame = |chroot: &str| request::set_acl(chroot, path, acl, version);
        self.ask(Op::SetAcl, path, frame, |reply, _| decode(&reply, Stat::read))
    }

    /// Lets the server that this client is connected to catch up with the leader: later reads show everything that was committed before
    /// this was sent. The path does not matter to any server of today.
    pub fn sync(&self, path: &str) -> Answer<()> {
        self.ask(Op::Sync, path, |chroot| request::path_only(Op::Sync, chroot, path), |_, _| Ok(()))
    }

    /// Asks for evidence that the session lives, by a `sync`, and returns the newest moment of [`Config::clock`] that there is evidence
    /// for. [`sync_rule`](crate::sync_rule) states what this proves, and what it presumes.
    pub fn confirm(&self) -> Answer<Duration> {
        let frame = request::path_only(Op::Sync, "", "/");
        self.submit(frame, (None, true), 1, |reply, _| Ok(reply.confirmed))
    }

    /// The newest moment so far, on [`Config::clock`], from which the session timeout certainly counts: the leader does not let the session
    /// expire before this + the timeout. Never goes back.
    #[must_use]
    pub fn confirmed(&self) -> Duration {
        self.shared().confirmed()
    }

    /// Rises with each connection that is established; 1 for the first.
    #[must_use]
    pub fn connection_epoch(&self) -> u64 {
        self.shared().epoch()
    }

    /// Ends the session of all clones, and all its ephemeral nodes, once the requests made before are answered. A repeated call is fine.
    ///
    /// # Errors
    /// When no server received the close within the session timeout: the session then expires. This client has ended in any case.
    ///
    /// # Cancel safety
    /// Dropping the future closes the session nonetheless.
    pub async fn close(&self) -> Result<()> {
        self.handle.begin_to_close();
        let mut ended = self.shared().ended.subscribe();
        let outcome = ended.wait_for(Option::is_some).await;
        // This client holds the sender.
        outcome.ok().and_then(|ended| ended.clone()).unwrap_or(Ok(()))
    }

    fn chroot(&self) -> &str {
        &self.shared().config.chroot
    }

    fn read<T>(&self, op: Op, path: &str, watch: Option<WatchKind>, decode: Decode<T>) -> Answer<T> {
        if let Some(fault) = not_a_path(op, path, false) {
            return Answer::refused(fault, op);
        }
        self.submit(request::read(op, self.chroot(), path, watch.is_some()), (watch, false), 1, decode)
    }

    fn ask<T>(&self, op: Op, path: &str, frame: impl FnOnce(&str) -> Frame, decode: Decode<T>) -> Answer<T> {
        match not_a_path(op, path, false) {
            Some(fault) => Answer::refused(fault, op),
            None => self.submit(frame(self.chroot()), (None, false), 1, decode),
        }
    }

    fn submit<T>(&self, frame: Frame, (watch, confirms): Asking, operations: usize, decode: Decode<T>) -> Answer<T> {
        let shared = self.shared();
        let op = frame.op();
        let (length, limit) = (frame.record_len(), shared.config.max_frame);
        if length > limit {
            let message = format!("the request has {length} bytes, and the frame limit is {limit}");
            let path = shared.visible(frame.path());
            return Answer::refused(Error::new(ErrorKind::TooLarge, op.name(), message).on_path(path), op);
        }
        let (answer, receiver) = oneshot::channel();
        let deadline = Instant::now() + shared.request_deadline;
        match shared.outbox.push(Request { frame, answer: Some(answer), deadline, watch, confirms }) {
            Ok(()) => Answer::waiting(receiver, op, Asked { chroot: shared.config.chroot.len(), operations }, decode),
            Err(over) => Answer::refused(over.in_operation(op.name()), op),
        }
    }
}

impl Handle {
    fn begin_to_close(&self) {
        let over = Error::new(ErrorKind::Closed, "close", "the client was closed");
        // After the timeout the session has expired by itself.
        let timeout = self.shared.session().timeout.min(self.shared.config.session_timeout);
        let until = timeout.max(self.shared.request_deadline);
        self.shared.outbox.close(Instant::now() + until, over);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.begin_to_close();
    }
}

fn exists(reply: &answer::Reply) -> Result<Option<Stat>, Fault> {
    // The connection turns "there is no such node" into an empty record.
    if reply.record.is_empty() { Ok(None) } else { decode(reply, Stat::read).map(Some) }
}

fn not_a_path(op: Op, path: &str, prefix: bool) -> Option<Error> {
    let fault = path::fault(path, prefix)?;
    let shown: String = path.chars().take(200).collect();
    Some(Error::new(ErrorKind::BadArguments, op.name(), format!("{shown:?} is no path: {fault}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_and_what_they_give_go_to_any_thread() {
        fn shared<T: Send + Sync + 'static>() {}
        fn sent<T: Send + Unpin + 'static>() {}
        shared::<Client>();
        shared::<Error>();
        sent::<Answer<Created>>();
        sent::<Watch>();
        sent::<Events>();
    }
}
