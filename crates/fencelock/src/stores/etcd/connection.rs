//! An HTTP/2 connection to a member: its requests, and its stream of watches.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_core::future::BoxFuture;
use futures_util::{future, stream};
use http::uri::PathAndQuery;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::AbortHandle;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;
use tower_service::Service;

use super::fault::fault;
use super::proto::watch_request::RequestUnion;
use super::proto::*;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::bounds::Bounds;
use crate::kit::dial::Bytes;
use crate::store::{PlaceId, RequestId, Tasks};

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
    // A stream of one request has a stream of one answer.
    LeaseKeepAliveRequest => LeaseKeepAliveResponse, "Lease/LeaseKeepAlive";
}

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

/// The requests for the stream of watches, until there is one.
pub(super) type WatchRequests = mpsc::UnboundedReceiver<WatchRequest>;

pub(super) struct Connection {
    pub(super) number: u64,
    grpc: Grpc<Http>,
    sender: SendRequest<Body>,
    token: Option<MetadataValue<Ascii>>,
    bounds: Bounds,
    closed: Arc<Notify>,
    task: AbortHandle,
    to_watch: mpsc::UnboundedSender<WatchRequest>,
    watched: Mutex<HashMap<i64, Watched>>,
}

impl Connection {
    /// Speaks HTTP/2 over `stream`. The returned sender starts the chores that it receives, with which the connection ends. `ended` runs when
    /// the connection has ended.
    pub(super) async fn open(
        stream: Box<dyn Bytes>,
        origin: Uri,
        (number, bounds, tasks): (u64, Bounds, &Tasks),
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<(Self, WatchRequests, oneshot::Sender<BoxFuture<'static, ()>>)> {
        // Without pings: etcd closes connections that ping more often than every 5 s. Renewals and looks notice a silent member.
        let settings = Builder::new(On(tasks.clone()));
        let (sender, driver) = settings.handshake(TokioIo::new(stream)).await.map_err(|error| {
            let message = "the member does not speak gRPC, or closed the connection";
            Error::new(ErrorKind::Unreachable, "connect", message).with("cause", error).retryable()
        })?;
        let (chores, started) = oneshot::channel::<BoxFuture<'static, ()>>();
        let closed = Arc::new(Notify::new());
        let close = Arc::clone(&closed);
        let task = tasks.spawn(async move {
            let chores = async {
                match started.await {
                    Ok(chores) => chores.await,
                    Err(_) => future::pending().await,
                }
            };
            // Drops the driver, so that the connection is closed before its end is reported.
            tokio::select! {
                biased;
                ended = driver => tracing::debug!(?ended, "the connection to a member of etcd ended"),
                () = chores => {}
                () = close.notified() => {}
            }
            ended();
        });
        let grpc = Grpc::with_origin(Http(sender.clone()), origin).max_decoding_message_size(usize::MAX);
        let (to_watch, requests) = mpsc::unbounded_channel();
        let (token, watched) = (None, Mutex::default());
        Ok((Self { number, grpc, sender, token, bounds, closed, task, to_watch, watched }, requests, chores))
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Ends the connection. Requests that wait for an answer fail.
    pub(super) fn close(&self) {
        self.closed.notify_one();
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<i64, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
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
        let (mut grpc, path) = (self.grpc.clone(), PathAndQuery::from_static(Q::PATH));
        let answer = tokio::select! {
            biased;
            answer = grpc.unary(self.request(message), path, ProstCodec::default()) => answer,
            () = self.bounds.clock.sleep_until(self.bounds.clock.now().after(self.bounds.silence)) => {
                Err(Status::deadline_exceeded("no answer in time"))
            }
        };
        answer.map(tonic::Response::into_inner).map_err(|status| {
            let error = fault(operation, &status);
            if error.kind() == ErrorKind::Unreachable {
                self.close();
            }
            error
        })
    }

    pub(super) async fn log_in(&mut self, name: String, password: String) -> Result<()> {
        let answer = self.ask("connect", AuthenticateRequest { name, password }).await?;
        self.token = Some(MetadataValue::try_from(answer.token).map_err(|_| strange("connect"))?);
        Ok(())
    }

    /// Sends `requests`, and hands on what is received, until the member ends the stream. The future does not keep the connection.
    pub(super) fn keep_watching<F: Fn(WatchResponse)>(
        &self,
        mut requests: WatchRequests,
        received: F,
    ) -> impl Future<Output = ()> + use<F> {
        let mut request = self.request(stream::poll_fn(move |cx| requests.poll_recv(cx)));
        // A member that has no leader ends the stream.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        let mut grpc = self.grpc.clone();
        async move {
            let watched = async {
                let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
                let answers = grpc.streaming(request, path, ProstCodec::default()).await?;
                let mut answers: Streaming<WatchResponse> = answers.into_inner();
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
        }
    }

    /// Watches `key`, or the keys from there to `range_end`, for the changes after `revision`.
    pub(super) fn create_watch(&self, watch_id: i64, key: Vec<u8>, range_end: Vec<u8>, revision: i64) {
        let create = WatchCreateRequest { key, range_end, start_revision: revision + 1, watch_id };
        self.send(RequestUnion::CreateRequest(create));
    }

    /// Sends a request about a watch. A connection that has ended watches nothing any more.
    fn send(&self, request: RequestUnion) {
        let _ = self.to_watch.send(WatchRequest { request_union: Some(request) });
    }

    /// Has a waiting place watch a key, or a range of keys, from now on: etcd sends events of the past up to 100 ms late.
    pub(super) fn watch(&self, watched: Watched) {
        let id = watched.place.request.number.cast_signed();
        let is_same = |known: &Watched| known.key == watched.key && known.range_end == watched.range_end;
        if !self.watched().get(&id).is_some_and(is_same) {
            self.unwatch(watched.place.request);
            self.create_watch(id, watched.key.clone(), watched.range_end.clone(), -1);
        }
        self.watched().insert(id, watched);
    }

    /// Ends the watch of a place.
    pub(super) fn unwatch(&self, place: RequestId) -> Option<Watched> {
        let watch_id = place.number.cast_signed();
        let watched = self.watched().remove(&watch_id)?;
        self.send(RequestUnion::CancelRequest(WatchCancelRequest { watch_id }));
        Some(watched)
    }

    /// The watch that fired, and ended, or that began after changes unseen by its read; `None` for an event of an earlier watch of the place.
    pub(super) fn fired(&self, answer: &WatchResponse) -> Option<Watched> {
        let watched = self.watched().get(&answer.watch_id)?.clone();
        if answer.created && answer.header.unwrap_or_default().revision > watched.revision {
            return Some(Watched { grants: None, ..watched });
        }
        let (key, is_range) = (&watched.key, !watched.range_end.is_empty());
        let is_meant = |event: &KeyEvent| is_range || event.kv.as_ref().is_some_and(|kv| kv.key == *key);
        let is_news = if answer.canceled { answer.compact_revision > 0 } else { answer.events.iter().any(is_meant) };
        if is_news { self.unwatch(watched.place.request) } else { None }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(super) fn strange(operation: &'static str) -> Error {
    let message = "etcd answered in a form that this release does not know";
    Error::new(ErrorKind::Internal, operation, message).outcome_unknown()
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
    use std::sync::OnceLock;
    use std::time::{Duration, SystemTime};

    use http::HeaderMap;
    use prost::Message as _;
    use tokio::io::DuplexStream;

    use super::super::keys::{Keys, value};
    use super::super::ops::{all, has_version, read};
    use super::super::proto::response_op::Response as OpResponse;
    use super::super::session::EtcdSession;
    use super::*;
    use crate::error::Outcome;
    use crate::kit::served::{Enter, Places, Served as _};
    use crate::name::Name;
    use crate::queue::Claim;
    use crate::store::{Entry, Opening, Owner, Standing};
    use crate::time::{Moment, SystemClock};

    /// A member that answers each request with the next message, if it has one, and with the status that ends the answer.
    async fn answer(stream: DuplexStream, answers: Vec<(Vec<u8>, Option<Status>)>) {
        let mut member = h2::server::handshake(stream).await.unwrap();
        let mut open = Vec::new();
        for (message, status) in answers {
            let (_request, mut answer) = member.accept().await.unwrap().unwrap();
            let head = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
            let mut answer = answer.send_response(head, false).unwrap();
            if !message.is_empty() {
                // Not compressed; the length; the message.
                let length = u32::try_from(message.len()).unwrap().to_be_bytes();
                answer.send_data([&[0], &length[..], &message].concat().into(), false).unwrap();
            }
            if let Some(status) = status {
                let mut trailers = HeaderMap::new();
                status.add_header(&mut trailers).unwrap();
                answer.send_trailers(trailers).unwrap();
            }
            open.push(answer);
        }
        // Until the client hangs up.
        let _ = member.accept().await;
    }

    /// A connection to a member that gives these answers, and the requests for its watches. `ended` runs at its end.
    async fn connected(
        answers: Vec<(Vec<u8>, Option<Status>)>,
        ended: impl FnOnce() + Send + 'static,
    ) -> (Connection, WatchRequests) {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        tokio::spawn(answer(theirs, answers));
        let (tasks, origin) = (Tasks::here().unwrap(), Uri::from_static("http://member/"));
        let terms = (1, Bounds::of(None), &tasks);
        let (connection, requests, _) = Connection::open(Box::new(ours), origin, terms, ended).await.unwrap();
        (connection, requests)
    }

    /// A connection to a member that answers with this message alone, and what its stream of watches hands on: `None` once it has ended.
    async fn watched(message: WatchResponse) -> (Connection, Option<WatchResponse>) {
        let (connection, requests) = connected(vec![(message.encode_to_vec(), None)], || {}).await;
        let (to_test, mut received) = mpsc::unbounded_channel();
        connection.create_watch(7, b"key".to_vec(), Vec::new(), 1);
        let watching = connection.keep_watching(requests, move |answer| drop(to_test.send(answer)));
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
            assert_eq!(watched(refused).await.1, None);
        }
    }

    #[tokio::test]
    async fn a_watch_that_a_compaction_canceled_fires_once_and_one_that_its_place_gave_up_does_not() {
        let canceled = WatchResponse { watch_id: 7, canceled: true, ..WatchResponse::default() };
        let (connection, compacted) = watched(WatchResponse { compact_revision: 9, ..canceled.clone() }).await;
        let (place, compacted) = (place(7), compacted.unwrap());
        let (key, range_end, grants) = (b"key".to_vec(), Vec::new(), Some(5));
        let watched = Watched { place, key, range_end, grants, revision: 8 };
        connection.watch(watched.clone());
        let begun = |revision| {
            let header = Some(ResponseHeader { revision, ..ResponseHeader::default() });
            connection.fired(&WatchResponse { watch_id: 7, created: true, header, ..WatchResponse::default() })
        };
        // A change before the watch may be the one that lets the place in: the watch continues, and the place looks.
        assert_eq!([begun(8), begun(9)], [None, Some(Watched { grants: None, ..watched.clone() })]);
        assert_eq!(connection.fired(&canceled), None);
        assert_eq!(connection.fired(&compacted), Some(watched));
        assert_eq!(connection.fired(&compacted), None);
    }

    #[tokio::test]
    async fn a_connection_is_closed_before_its_end_is_reported() {
        let shared = Arc::new(OnceLock::<Connection>::new());
        let (connection, (reported, is_alive)) = (Arc::clone(&shared), oneshot::channel());
        let ended = move || reported.send(connection.get().unwrap().is_alive()).unwrap();
        assert!(shared.set(connected(Vec::new(), ended).await.0).is_ok());
        assert!(shared.get().unwrap().is_alive());
        shared.get().unwrap().close();
        assert!(!is_alive.await.unwrap());
    }

    /// A session without places.
    fn session() -> EtcdSession {
        let keys = Arc::new(Keys { prefix: String::new() });
        let opening = Opening::here(Owner::new(1, "", 0), Duration::from_secs(9), Arc::new(SystemClock)).unwrap();
        EtcdSession::new(&keys, opening, Places::new(mpsc::unbounded_channel().0))
    }

    fn place(number: u64) -> PlaceId {
        PlaceId { name: Name::new("job").unwrap(), request: RequestId { client: 1, number } }
    }

    fn entry(number: u64, wait: bool) -> Entry {
        let PlaceId { name, request: id } = place(number);
        Entry { name, claim: Claim::MUTEX, id, wait, purpose: None }
    }

    /// The answer to a transaction whose second operation reads these keys of the queue, each with the revision that made it.
    fn listed<const N: usize>(keys: [(Vec<u8>, i64); N]) -> (Vec<u8>, Option<Status>) {
        let kv = |(key, create_revision)| KeyValue { key, create_revision, ..KeyValue::default() };
        let queue = RangeResponse { kvs: keys.map(kv).into(), ..RangeResponse::default() };
        let deleted = OpResponse::ResponseDeleteRange(DeleteRangeResponse { deleted: 1, header: None });
        let responses = [deleted, OpResponse::ResponseRange(queue)];
        let responses = responses.map(|response| ResponseOp { response: Some(response) }).into();
        let answer = TxnResponse { succeeded: true, responses, ..TxnResponse::default() };
        (answer.encode_to_vec(), Some(Status::ok("")))
    }

    #[tokio::test]
    async fn the_answer_to_a_release_grants_the_next_place_of_the_session_and_otherwise_the_session_looks() {
        let session = session();
        let (places, own) = (&session.places, session.keys.place(0, &place(2)));
        for (front, is_granted) in [((own.clone(), 2), true), ((own, 3), false), ((b"job/7f".to_vec(), 2), false)] {
            let [held, waiting] = [1, 2].map(|number| places.begin(&place(number).name, place(number).request, 0).0);
            places.granted(&held, 1);
            places.waits(&waiting, 2, None, Moment::NEVER);
            let (connection, _watches) = connected(vec![listed([front])], || {}).await;
            assert!(session.leave(&connection, &place(1), Some(1)).await.unwrap());
            assert_eq!(matches!(waiting.standing(), Standing::Granted(_)), is_granted);
            assert_eq!(places.due(Moment::ORIGIN, false).is_err(), is_granted);
            places.left(&held);
            places.left(&waiting);
        }
    }

    #[tokio::test]
    async fn a_session_looks_once_a_place_of_it_has_a_lighter_claim() {
        let (session, writer) = (session(), Entry { claim: Claim::WRITER, ..entry(1, true) });
        let [held, waiting] =
            [1, 2].map(|number| session.places.begin(&place(number).name, place(number).request, 0).0);
        session.places.granted(&held, 1);
        session.places.waits(&waiting, 2, None, Moment::NEVER);
        let value = value(&writer, &Owner::new(1, "", 0), SystemTime::UNIX_EPOCH).unwrap();
        let key = session.keys.place(0, &place(1));
        let found = RangeResponse {
            kvs: vec![KeyValue { key, create_revision: 1, value, ..KeyValue::default() }],
            ..RangeResponse::default()
        };
        let found = (found.encode_to_vec(), Some(Status::ok("")));
        let (connection, _watches) = connected(vec![found, listed([])], || {}).await;
        assert!(session.lighten(&connection, &place(1), 1, Claim::READER).await.unwrap());
        assert!(session.places.due(Moment::ORIGIN, false).is_ok());
    }

    #[tokio::test]
    async fn a_place_behind_one_of_its_session_watches_nothing_and_one_behind_another_session_watches_its_key() {
        let session = session();
        let [own, mine] = [1, 2].map(|number| session.keys.place(0, &place(number)));
        let held = session.places.begin(&place(1).name, place(1).request, 0).0;
        session.places.granted(&held, 1);
        for (ahead, is_watched) in [((own.clone(), 1), false), ((own, 9), true), ((b"job/7f".to_vec(), 1), true)] {
            let (connection, _watches) = connected(vec![listed([ahead, (mine.clone(), 10)])], || {}).await;
            let entered = session.enter(&connection, &entry(2, true), false).await.unwrap();
            assert!(matches!(entered, Enter::Waiting { seq: 10, .. }), "{entered:?}");
            assert_eq!(connection.unwatch(place(2).request).is_some(), is_watched);
        }
    }

    #[tokio::test]
    async fn a_try_whose_key_could_not_be_deleted_may_have_left_it_there() {
        let session = session();
        let joined = listed([(b"job/7f".to_vec(), 1), (session.keys.place(0, &place(1)), 2)]);
        let busy = Status::resource_exhausted("etcdserver: too many requests");
        let (connection, _watches) = connected(vec![joined, (Vec::new(), Some(busy))], || {}).await;
        let error = session.enter(&connection, &entry(1, false), false).await.unwrap_err();
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Exhausted, Outcome::Unknown), "{error}");
    }

    /// A request of an older connection, or one that was withdrawn, may arrive late: etcd compares the epoch that it carries.
    #[tokio::test]
    async fn a_request_joins_only_if_its_session_still_has_its_epoch() {
        let session = session();
        session.places.raise(3);
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (tasks, origin) = (Tasks::here().unwrap(), Uri::from_static("http://member/"));
        let terms = (1, Bounds::of(None), &tasks);
        let opened = Connection::open(Box::new(ours), origin, terms, || {});
        let (opened, member) = future::join(opened, h2::server::handshake(theirs)).await;
        let ((connection, _watches, _chores), mut member) = (opened.unwrap(), member.unwrap());
        let received = async {
            let (mut body, mut text) = (member.accept().await.unwrap().unwrap().0.into_body(), Vec::new());
            let whole = async {
                while let Some(data) = body.data().await {
                    text.extend_from_slice(&data.unwrap());
                }
            };
            // The member reads while it waits for another request.
            tokio::select! {
                () = whole => {}
                _ = member.accept() => {}
            }
            // Before the message stand a byte and its length.
            TxnRequest::decode(&text[5..]).unwrap()
        };
        let txn = tokio::select! {
            entered = async { session.enter(&connection, &entry(1, true), false).await } => panic!("{entered:?}"),
            txn = received => txn,
        };
        assert!(txn.compare.contains(&has_version(session.keys.session(0), 3)), "{:?}", txn.compare);
        assert!(txn.success.contains(&read(all(session.keys.queue("job")))));
    }
}
