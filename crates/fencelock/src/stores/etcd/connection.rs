//! An HTTP/2 connection to a member: its requests, and its stream of watches.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_core::future::BoxFuture;
use futures_util::stream;
use http::uri::PathAndQuery;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;
use tonic::Status;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic_prost::ProstCodec;
use tower_service::Service;

use super::fault::{closes, fault};
use super::proto::watch_request::RequestUnion;
use super::proto::*;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::bounds::Bounds;
use crate::kit::dial::Bytes;
use crate::store::{RequestId, Tasks};

/// The number of the watch of the session's own keys. The watch of a waiting place has the number of its request.
pub(super) const SESSION_WATCH: i64 = i64::MAX;

/// A request with one answer.
pub(super) trait Unary: prost::Message + Sized + 'static {
    type Answer: prost::Message + Default + 'static;
    const PATH: &'static str;
}

macro_rules! unary {
    ($($request:ty => $answer:ty, $path:literal;)*) => {
        $(impl Unary for $request {
            type Answer = $answer;
            const PATH: &'static str = concat!("/etcdserverpb.", $path);
        })*
    };
}

unary! {
    AuthenticateRequest => AuthenticateResponse, "Auth/Authenticate";
    RangeRequest => RangeResponse, "KV/Range";
    TxnRequest => TxnResponse, "KV/Txn";
    LeaseGrantRequest => LeaseGrantResponse, "Lease/LeaseGrant";
    LeaseRevokeRequest => LeaseRevokeResponse, "Lease/LeaseRevoke";
    LeaseTimeToLiveRequest => LeaseTimeToLiveResponse, "Lease/LeaseTimeToLive";
    // A stream of one request has a stream of one answer.
    LeaseKeepAliveRequest => LeaseKeepAliveResponse, "Lease/LeaseKeepAlive";
}

/// The key, or the range of keys, that a waiting place watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Watched {
    pub(super) place: RequestId,
    pub(super) key: Vec<u8>,
    /// Empty for a single key.
    pub(super) range_end: Vec<u8>,
    /// The number that the place is granted with once the key is deleted; `None` if that takes a look.
    pub(super) grants: Option<u64>,
}

pub(super) struct Connection {
    pub(super) number: u64,
    grpc: Grpc<Http>,
    token: Option<MetadataValue<Ascii>>,
    bounds: Bounds,
    closed: Arc<Notify>,
    /// The first is the connection itself.
    tasks: Mutex<Vec<AbortHandle>>,
    to_watch: mpsc::UnboundedSender<WatchRequest>,
    watched: Mutex<HashMap<i64, Watched>>,
}

impl Connection {
    /// Speaks HTTP/2 over `stream`. `ended` runs when the connection has ended. Returns what is to be sent to the stream of watches, too.
    pub(super) async fn open(
        stream: Box<dyn Bytes>,
        origin: Uri,
        (number, bounds, tasks): (u64, Bounds, &Tasks),
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<(Self, mpsc::UnboundedReceiver<WatchRequest>)> {
        // Without pings: etcd closes connections that ping more often than every 5 s. Renewals and looks notice a silent member.
        let settings = Builder::new(On(tasks.clone()));
        let (sender, driver) = settings.handshake(TokioIo::new(stream)).await.map_err(|error| {
            let message = "the member does not speak gRPC, or closed the connection";
            Error::new(ErrorKind::Unreachable, "connect", message).with("cause", error).retryable()
        })?;
        let closed = Arc::new(Notify::new());
        let close = Arc::clone(&closed);
        let task = tasks.spawn(async move {
            tokio::select! {
                ended = driver => tracing::debug!(?ended, "the connection to a member of etcd ended"),
                () = close.notified() => {}
            }
            ended();
        });
        let grpc = Grpc::with_origin(Http(sender), origin).max_decoding_message_size(usize::MAX);
        let (to_watch, requests) = mpsc::unbounded_channel();
        let (tasks, watched) = (Mutex::new(vec![task]), Mutex::default());
        Ok((Self { number, grpc, token: None, bounds, closed, tasks, to_watch, watched }, requests))
    }

    pub(super) fn is_alive(&self) -> bool {
        self.tasks().first().is_some_and(|task| !task.is_finished())
    }

    /// Ends the connection. Requests that wait for an answer fail.
    pub(super) fn close(&self) {
        self.closed.notify_one();
    }

    fn tasks(&self) -> MutexGuard<'_, Vec<AbortHandle>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<i64, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn keep_doing(&self, chores: impl Future<Output = ()> + Send + 'static, tasks: &Tasks) {
        self.tasks().push(tasks.spawn(chores));
    }

    fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }

    /// Sends one request. A member without an answer in time, or without a leader, is left for another one.
    pub(super) async fn ask<Q: Unary>(&self, operation: &'static str, message: Q) -> Result<Q::Answer> {
        let (mut grpc, request) = (self.grpc.clone(), self.request(message));
        let asked = async {
            ready(&mut grpc).await?;
            grpc.unary(request, PathAndQuery::from_static(Q::PATH), ProstCodec::<Q, Q::Answer>::default()).await
        };
        let answer = tokio::select! {
            biased;
            answer = asked => answer,
            () = self.bounds.clock.sleep_until(self.bounds.clock.now().after(self.bounds.silence)) => {
                Err(Status::deadline_exceeded("no answer in time"))
            }
        };
        answer.map(tonic::Response::into_inner).map_err(|status| {
            if closes(&status) {
                self.close();
            }
            fault(operation, &status)
        })
    }

    pub(super) async fn log_in(&mut self, name: String, password: String) -> Result<()> {
        let answer = self.ask("connect", AuthenticateRequest { name, password }).await?;
        self.token = Some(MetadataValue::try_from(answer.token).map_err(|_| strange("connect"))?);
        Ok(())
    }

    /// Sends `first` and then `requests`, and hands on what is received. The future does not keep the connection.
    pub(super) fn keep_watching<F: Fn(WatchResponse)>(
        &self,
        first: WatchRequest,
        mut requests: mpsc::UnboundedReceiver<WatchRequest>,
        received: F,
    ) -> impl Future<Output = ()> + use<F> {
        let mut first = Some(first);
        let sent = stream::poll_fn(move |cx| match first.take() {
            Some(first) => Poll::Ready(Some(first)),
            None => requests.poll_recv(cx),
        });
        let mut request = self.request(sent);
        // A member that has no leader ends the stream.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        let (mut grpc, closed) = (self.grpc.clone(), Arc::clone(&self.closed));
        async move {
            let watched = async {
                ready(&mut grpc).await?;
                let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
                let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
                let mut answers = grpc.streaming(request, path, codec).await?.into_inner();
                while let Some(answer) = answers.message().await? {
                    // A refused watch may have no number, so another connection, with a new login, watches everything anew.
                    if answer.created && answer.canceled {
                        return Err(Status::aborted(answer.cancel_reason));
                    }
                    received(answer);
                }
                Ok::<_, Status>(())
            };
            let ended = watched.await;
            tracing::debug!(?ended, "the stream of watches ended");
            // No event may be missed: the session continues on another connection.
            closed.notify_one();
        }
    }

    /// Has a waiting place watch a key, or a range of keys, after `revision`.
    pub(super) fn watch(&self, watched: Watched, revision: i64) {
        let id = watched.place.number.cast_signed();
        if self.watched().get(&id) == Some(&watched) {
            return;
        }
        self.unwatch(watched.place);
        let create = created(id, watched.key.clone(), watched.range_end.clone(), revision);
        self.watched().insert(id, watched);
        let _ = self.to_watch.send(create);
    }

    /// Ends the watch of a place.
    pub(super) fn unwatch(&self, place: RequestId) -> Option<Watched> {
        let watch_id = place.number.cast_signed();
        let watched = self.watched().remove(&watch_id)?;
        let cancel = RequestUnion::CancelRequest(WatchCancelRequest { watch_id });
        let _ = self.to_watch.send(WatchRequest { request_union: Some(cancel) });
        Some(watched)
    }

    /// The watch that fired, which has ended; `None` for an event of an earlier watch of that place.
    pub(super) fn fired(&self, answer: &WatchResponse) -> Option<Watched> {
        let Watched { key, range_end, place, .. } = self.watched().get(&answer.watch_id)?.clone();
        let is_meant = |event: &KeyEvent| !range_end.is_empty() || event.kv.as_ref().is_some_and(|kv| kv.key == key);
        let is_news = if answer.canceled { answer.compact_revision > 0 } else { answer.events.iter().any(is_meant) };
        if is_news { self.unwatch(place) } else { None }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.tasks().iter().for_each(AbortHandle::abort);
    }
}

async fn ready(grpc: &mut Grpc<Http>) -> Result<(), Status> {
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))
}

/// The request for the changes after `revision`.
pub(super) fn created(watch_id: i64, key: Vec<u8>, range_end: Vec<u8>, revision: i64) -> WatchRequest {
    let create = WatchCreateRequest { key, range_end, start_revision: revision + 1, watch_id };
    WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) }
}

pub(super) fn strange(operation: &'static str) -> Error {
    Error::new(ErrorKind::Internal, operation, "etcd answered in a form that this release does not know")
}

/// The connection as `tonic` uses it.
#[derive(Clone)]
struct Http(SendRequest<Body>);

impl Service<Request<Body>> for Http {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

/// Runs the tasks of HTTP/2 where the store's tasks run.
#[derive(Clone)]
struct On(Tasks);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for On {
    fn execute(&self, task: F) {
        self.0.spawn(task);
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    /// A member that answers the first request with this message, and then nothing.
    async fn answer(stream: tokio::io::DuplexStream, message: WatchResponse) {
        let mut member = h2::server::handshake(stream).await.unwrap();
        let (_request, mut answer) = member.accept().await.unwrap().unwrap();
        let head = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
        let message = message.encode_to_vec();
        // Not compressed; the length; the message.
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        let frame = [&[0], &length[..], &message].concat();
        answer.send_response(head, false).unwrap().send_data(frame.into(), false).unwrap();
        // Until the client hangs up.
        let _ = member.accept().await;
    }

    /// A connection to a member that answers with this message alone, and what its stream of watches hands on: `None` once it has ended.
    async fn connected(message: WatchResponse) -> (Connection, Option<WatchResponse>) {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        tokio::spawn(answer(theirs, message));
        let (tasks, origin) = (Tasks::here().unwrap(), Uri::from_static("http://member/"));
        let terms = (1, Bounds::of(None), &tasks);
        let (connection, requests) = Connection::open(Box::new(ours), origin, terms, || {}).await.unwrap();
        let (to_test, mut received) = mpsc::unbounded_channel();
        let watch = created(7, b"key".to_vec(), Vec::new(), 1);
        let watching = connection.keep_watching(watch, requests, move |answer| drop(to_test.send(answer)));
        let received = tokio::select! {
            biased;
            () = watching => None,
            answer = received.recv() => answer,
        };
        (connection, received)
    }

    #[tokio::test]
    async fn a_refused_watch_ends_the_stream_whichever_number_it_has() {
        for watch_id in [-1, 7] {
            let refused = WatchResponse { watch_id, created: true, canceled: true, ..WatchResponse::default() };
            assert_eq!(connected(refused).await.1, None);
        }
    }

    #[tokio::test]
    async fn a_watch_that_a_compaction_canceled_fires_once_and_one_that_its_place_gave_up_does_not() {
        let canceled = WatchResponse { watch_id: 7, canceled: true, ..WatchResponse::default() };
        let (connection, compacted) = connected(WatchResponse { compact_revision: 9, ..canceled.clone() }).await;
        let (place, compacted) = (RequestId { client: 1, number: 7 }, compacted.unwrap());
        let watched = Watched { place, key: b"key".to_vec(), range_end: Vec::new(), grants: Some(5) };
        connection.watch(watched.clone(), 1);
        assert_eq!(connection.fired(&canceled), None);
        assert_eq!(connection.fired(&compacted), Some(watched));
        assert_eq!(connection.fired(&compacted), None);
    }
}
