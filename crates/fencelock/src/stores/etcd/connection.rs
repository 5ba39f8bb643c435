//! An HTTP/2 connection to a member: its requests, and its stream of watches.

use std::collections::HashMap;
use std::iter;
use std::pin::pin;
use std::sync::{Arc, OnceLock, Weak};

use futures_util::{FutureExt, future};
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderValue, Request, Response, Version};
use prost::Message;
use prost::bytes::{self, BytesMut};
use tokio::sync::{mpsc, oneshot};
use tonic::{Code, Status};

use super::fault::fault;
use super::proto::watch_request::RequestUnion;
use super::proto::*;
use crate::error::{Error, ErrorKind, Outcome, Result};
use crate::kit::bounds::Bounds;
use crate::kit::dial::Bytes;
use crate::name::Name;
use crate::store::{PlaceId, RequestId, Tasks};
use crate::sync::Mutex;

/// The number of the watch of the session's own keys. The watch of a waiting place has the number of its request.
pub(super) const SESSION_WATCH: i64 = i64::MAX;
/// How many bytes a member may send before the client has read them: the queue of a thousand contenders has 250,000.
const WINDOW: u32 = 4 << 20;
/// How many transactions go together: etcd's bound is 128 comparisons or operations, and each has two of both at most.
pub(super) const MOST: usize = 64;

/// A request of the schema, which has the paths of all.
pub(super) trait Rpc: Message {
    type Answer: Message + Default;
    const PATH: &'static str;
}

/// Why a call failed: a [`Status`], or an error of the connection.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The key, or the range of keys, that a waiting place watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Watched {
    pub(super) place: PlaceId,
    pub(super) key: Vec<u8>,
    /// Empty for a single key.
    pub(super) range_end: Vec<u8>,
    /// The number that the place is granted with once the key is deleted; `None` if that takes a look.
    pub(super) grants: Option<u64>,
    /// The revision of the read that found the key.
    pub(super) revision: i64,
}

/// A transaction about a lock with its operation, and the channel of its answer.
type Gathered = (&'static str, Name, TxnRequest, oneshot::Sender<Result<TxnResponse>>);
type Lane = mpsc::UnboundedReceiver<Gathered>;

pub(super) struct Connection {
    pub(super) number: u64,
    sender: SendRequest<bytes::Bytes>,
    origin: String,
    token: OnceLock<HeaderValue>,
    bounds: Bounds,
    /// The connection's task ends with this channel.
    pub(super) close: mpsc::Sender<()>,
    /// Requests gather in two lanes, those that leave queues and those that join them: a full etcd refuses the second ones alone.
    lanes: [mpsc::UnboundedSender<Gathered>; 2],
    to_watch: OnceLock<Mutex<SendStream<bytes::Bytes>>>,
    watched: Mutex<HashMap<i64, Watched>>,
}

impl Connection {
    /// Speaks HTTP/2 over `stream`. `ended` runs when the connection has ended.
    pub(super) async fn open(
        stream: Box<dyn Bytes>,
        origin: String,
        (number, bounds, tasks): (u64, Bounds, &Tasks),
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<Arc<Self>> {
        // Without pings: etcd closes connections that ping more often than every 5 s. Renewals and looks notice a silent member.
        let mut settings = Builder::new();
        settings.initial_window_size(WINDOW).initial_connection_window_size(WINDOW).enable_push(false);
        let (sender, driver) = settings.handshake(stream).await.map_err(|error| {
            let message = "the member does not speak gRPC, or closed the connection";
            Error::new(ErrorKind::Unreachable, "connect", message).with("cause", error).retryable()
        })?;
        let (close, mut closed) = mpsc::channel(1);
        tasks.spawn(async move {
            tokio::select! {
                biased;
                ended = driver => tracing::debug!(?ended, "the connection to a member of etcd ended"),
                // The connection was closed, or dropped.
                _ = closed.recv() => {}
            }
            // The driver is gone, so that the connection is closed before its end is reported.
            drop(closed);
            ended();
        });
        let (token, to_watch, watched) = (OnceLock::new(), OnceLock::new(), Mutex::default());
        let [(leaves, left), (joins, joined)] = [(); 2].map(|()| mpsc::unbounded_channel());
        let (lanes, gathered) = ([leaves, joins], Arc::new(tokio::sync::Mutex::new([left, joined])));
        Ok(Arc::new_cyclic(|connection| {
            // Behind a long way, one sends while the other one waits for answers.
            (0..2).for_each(|_| drop(tasks.spawn(Self::send_gathered(connection.clone(), Arc::clone(&gathered)))));
            Self { number, sender, origin, token, bounds, close, lanes, to_watch, watched }
        }))
    }

    /// Ends the connection. Requests that wait for an answer fail.
    pub(super) fn close(&self) {
        // The channel is full or closed if the connection ends already.
        let _ = self.close.try_send(());
    }

    /// Starts a call. A member without a leader ends it if it `needs_leader`.
    fn call(&self, path: &str, needs_leader: bool) -> Result<(ResponseFuture, SendStream<bytes::Bytes>), Failure> {
        let head = Request::post(format!("{}{path}", self.origin)).version(Version::HTTP_2).header("te", "trailers");
        let head = head.header("content-type", "application/grpc").header("hasleader", needs_leader.to_string());
        let head = self.token.get().into_iter().fold(head, |head, token| head.header("token", token));
        Ok(self.sender.clone().send_request(head.body(())?, false)?)
    }

    /// Sends one request. A member without an answer in time, or without a leader, is left for another one.
    pub(super) async fn ask<Q: Rpc>(&self, operation: &'static str, message: Q) -> Result<Q::Answer> {
        let answer = async {
            let (response, mut request) = self.call(Q::PATH, false)?;
            request.send_data(framed(&message), true)?;
            let mut answers = Messages(response.await?, BytesMut::new());
            let answer = answers.next().await?;
            answers.next::<Q::Answer>().await?;
            answer.ok_or_else(|| "no answer".into())
        };
        let Bounds { clock, silence, .. } = &self.bounds;
        let failure: Failure = tokio::select! {
            biased;
            answer = answer => match answer {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            },
            () = clock.sleep_until(clock.now().after(*silence)) => "no answer in time".into(),
        };
        // Not by `Status::from_error`: with a feature of tonic that another crate may switch on, a broken connection would be a refusal.
        let status = failure.downcast::<Status>();
        let error =
            fault(operation, &status.map_or_else(|failure| Status::unknown(failure.to_string()), |status| *status));
        if error.kind() == ErrorKind::Unreachable {
            self.close();
        }
        Err(error)
    }

    /// Sends a transaction about the lock `name`, with those of the same operation that gather meanwhile.
    pub(super) async fn gather(&self, operation: &'static str, name: &Name, txn: TxnRequest) -> Result<TxnResponse> {
        let (caller, answer) = oneshot::channel();
        let _ = self.lanes[usize::from(operation == "enter")].send((operation, name.clone(), txn.clone(), caller));
        let Ok(answer) = answer.await else { return self.ask(operation, txn).await };
        answer
    }

    /// Sends gathered transactions together. All keys that a transaction makes have one revision, their number: two places of one name would
    /// have the same, so each goes in a further transaction. A request whose caller is gone is not sent.
    async fn send_gathered(connection: Weak<Self>, lanes: Arc<tokio::sync::Mutex<[Lane; 2]>>) {
        loop {
            let mut turn = lanes.lock().await;
            let [leaves, joins] = &mut *turn;
            // A release goes before all acquires that wait.
            let (first, _) = future::select(pin!(leaves.recv()), pin!(joins.recv())).await.factor_first();
            let (mut gathered, mut known) = (Vec::from_iter(first), 0);
            // All callers that the last answers woke call as well.
            while gathered.len() > known {
                known = gathered.len();
                tokio::task::yield_now().await;
                let next = || leaves.try_recv().or_else(|_| joins.try_recv()).ok();
                gathered.extend(iter::from_fn(next).take(MOST - known));
            }
            drop(turn);
            let Some(connection) = connection.upgrade() else { return };
            let mut batches = Vec::<Vec<Gathered>>::new();
            for request in gathered.into_iter().filter(|(.., caller)| !caller.is_closed()) {
                let fits = |other: &Gathered| other.0 == request.0 && other.1 != request.1;
                match batches.iter_mut().find(|batch| batch.iter().all(fits)) {
                    Some(batch) => batch.push(request),
                    None => batches.push(vec![request]),
                }
            }
            future::join_all(batches.into_iter().map(|batch| connection.send_together(batch))).await;
        }
    }

    /// Sends transactions of one operation as one. A caller whose channel is dropped sends its own by itself.
    async fn send_together(&self, batch: Vec<Gathered>) {
        let compare = batch.iter().flat_map(|(.., txn, _)| txn.compare.clone()).collect();
        let success = batch.iter().flat_map(|(.., txn, _)| txn.success.clone()).collect();
        match self.ask(batch[0].0, TxnRequest { compare, success, failure: Vec::new() }).await {
            Ok(TxnResponse { header, succeeded: true, responses }) => {
                let mut responses = responses.into_iter();
                for (.., txn, caller) in batch {
                    let responses = responses.by_ref().take(txn.success.len()).collect();
                    // The caller may have gone meanwhile.
                    let _ = caller.send(Ok(TxnResponse { header, succeeded: true, responses }));
                }
            }
            Err(error) if batch.len() == 1 || error.outcome() == Outcome::Unknown => {
                batch.into_iter().for_each(|(.., caller)| drop(caller.send(Err(error.again()))));
            }
            // etcd refused one, or one failed its comparison.
            _ => {}
        }
    }

    pub(super) async fn log_in(&self, name: String, password: String) -> Result<()> {
        let answer = self.ask("connect", AuthenticateRequest { name, password }).await?;
        let token = HeaderValue::try_from(answer.token).ok();
        token.and_then(|token| self.token.set(token).ok()).ok_or_else(|| strange("connect"))
    }

    /// Opens the stream of watches, and hands on what is received, until the member ends it. The future does not keep the connection.
    pub(super) fn keep_watching<F: Fn(WatchResponse)>(&self, received: F) -> impl Future<Output = ()> + use<F> {
        let call = self.call(WatchRequest::PATH, true);
        let call = call.map(|(response, to_watch)| (response, self.to_watch.set(Mutex::new(to_watch))));
        let watched = async move {
            let mut answers = Messages(call?.0.await?, BytesMut::new());
            while let Some(answer) = answers.next::<WatchResponse>().await? {
                // A refused watch may have no number, so another connection, with a new login, watches everything anew.
                if answer.created && answer.canceled {
                    return Err(Failure::from(answer.cancel_reason));
                }
                received(answer);
            }
            Ok(())
        };
        watched.map(|ended| tracing::debug!(?ended, "the stream of watches ended"))
    }

    /// Watches `key`, or the keys from there to `range_end`, for the changes after `revision`.
    pub(super) fn create_watch(&self, watch_id: i64, key: Vec<u8>, range_end: Vec<u8>, revision: i64) {
        let create = WatchCreateRequest { key, range_end, start_revision: revision + 1, watch_id };
        self.send(RequestUnion::CreateRequest(create));
    }

    /// Sends a request about a watch. A connection that has ended watches nothing any more.
    fn send(&self, request: RequestUnion) {
        let request = framed(&WatchRequest { request_union: Some(request) });
        let to_watch = self.to_watch.get().map(Mutex::lock);
        let _ = to_watch.map(|mut to_watch| to_watch.send_data(request, false));
    }

    /// Has a waiting place watch a key, or a range of keys, from now on: etcd sends events of the past up to 100 ms late.
    pub(super) fn watch(&self, watched: Watched) {
        let id = watched.place.request.number.cast_signed();
        let is_same = |known: &Watched| known.key == watched.key && known.range_end == watched.range_end;
        // No event is handled before the watch is known, and no other call sends meanwhile.
        let mut all = self.watched.lock();
        let known = all.get(&id);
        if !known.is_some_and(is_same) {
            known.into_iter().for_each(|_| self.send(RequestUnion::CancelRequest(WatchCancelRequest { watch_id: id })));
            self.create_watch(id, watched.key.clone(), watched.range_end.clone(), -1);
        }
        all.insert(id, watched);
    }

    /// Ends the watch of a place.
    pub(super) fn unwatch(&self, place: RequestId) -> Option<Watched> {
        let (id, mut all) = (place.number.cast_signed(), self.watched.lock());
        all.remove(&id).inspect(|_| self.send(RequestUnion::CancelRequest(WatchCancelRequest { watch_id: id })))
    }

    /// The watch that fired, and ended, or that began after changes unseen by its read; `None` for an event of an earlier watch of the place.
    pub(super) fn fired(&self, answer: &WatchResponse) -> Option<Watched> {
        let watched = self.watched.lock().get(&answer.watch_id)?.clone();
        if answer.created && answer.header.unwrap_or_default().revision > watched.revision {
            return Some(Watched { grants: None, ..watched });
        }
        let (key, is_range) = (&watched.key, !watched.range_end.is_empty());
        let is_meant = |event: &KeyEvent| is_range || event.kv.as_ref().is_some_and(|kv| kv.key == *key);
        let is_news = if answer.canceled { answer.compact_revision > 0 } else { answer.events.iter().any(is_meant) };
        if is_news { self.unwatch(watched.place.request) } else { None }
    }
}

pub(super) fn strange(operation: &'static str) -> Error {
    let message = "etcd answered in a form that this release does not know";
    Error::new(ErrorKind::Internal, operation, message).outcome_unknown()
}

/// A message as gRPC sends it: not compressed, its length, itself.
fn framed(message: &impl Message) -> bytes::Bytes {
    let length = u32::try_from(message.encoded_len()).unwrap_or(u32::MAX).to_be_bytes();
    [&[0], &length[..], &message.encode_to_vec()].concat().into()
}

/// The messages that answer a request, and what was received of the next one.
struct Messages(Response<RecvStream>, BytesMut);

impl Messages {
    /// The next message; `None` after the last one, if all went well.
    async fn next<M: Message + Default>(&mut self) -> Result<Option<M>, Failure> {
        loop {
            if let Some([_, length @ ..]) = self.1.first_chunk::<5>() {
                let end = 5 + u32::from_be_bytes(*length) as usize;
                if self.1.len() >= end {
                    return Ok(Some(M::decode(&self.1.split_to(end)[5..])?));
                }
            }
            let Some(data) = self.0.body_mut().data().await.transpose()? else {
                break;
            };
            self.0.body_mut().flow_control().release_capacity(data.len())?;
            self.1.extend_from_slice(&data);
        }
        // An answer without a message may have its status in the head.
        let end = self.0.body_mut().trailers().await?;
        match Status::from_header_map(end.as_ref().unwrap_or(self.0.headers())) {
            Some(status) if status.code() == Code::Ok => Ok(None),
            status => Err(status.map_or_else(|| "no status".into(), Failure::from)),
        }
    }
}

#[cfg(test)]
mod tests;
