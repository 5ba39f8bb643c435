//! An HTTP/2 connection to a member: its requests, and its stream of watches.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock, Weak};

use futures_util::FutureExt;
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

/// A transaction about a lock, and the channel of its answer.
type Gathered = (Name, TxnRequest, oneshot::Sender<Result<TxnResponse>>);
type Gathering = mpsc::UnboundedReceiver<Gathered>;

pub(super) struct Connection {
    pub(super) number: u64,
    sender: SendRequest<bytes::Bytes>,
    origin: String,
    token: OnceLock<HeaderValue>,
    bounds: Bounds,
    /// The connection's task ends with this channel.
    pub(super) close: mpsc::Sender<()>,
    /// Transactions that gather, those that join queues and those that leave them: a full etcd refuses the first ones alone.
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
        Ok(Arc::new_cyclic(|connection| {
            let lanes = ["enter", "leave"].map(|operation| {
                let (lane, gathered) = mpsc::unbounded_channel();
                tasks.spawn(Self::send_gathered(connection.clone(), operation, gathered));
                lane
            });
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

    /// Sends a transaction about the lock `name`, with those of the same operation that arrive while others are on their way.
    pub(super) async fn gather(&self, operation: &'static str, name: &Name, txn: TxnRequest) -> Result<TxnResponse> {
        let (caller, answer) = oneshot::channel();
        let _ = self.lanes[usize::from(operation == "leave")].send((name.clone(), txn.clone(), caller));
        // Without an answer it was left out, or changed nothing together with others.
        let Ok(answer) = answer.await else { return self.ask(operation, txn).await };
        answer
    }

    /// Sends gathered transactions as one. A caller whose channel is dropped sends its own by itself.
    async fn send_gathered(connection: Weak<Self>, operation: &'static str, mut lane: Gathering) {
        let mut gathered = Vec::new();
        while lane.recv_many(&mut gathered, MOST).await > 0 {
            let Some(connection) = connection.upgrade() else { return };
            let mut names = HashSet::new();
            // All keys that a transaction makes have one revision, their number: two places of one name would have the same. A request whose
            // caller is gone is not sent.
            gathered.retain(|(name, _, caller)| !caller.is_closed() && names.insert(name.clone()));
            let compare = gathered.iter().flat_map(|(_, txn, _)| txn.compare.clone()).collect();
            let success = gathered.iter().flat_map(|(_, txn, _)| txn.success.clone()).collect();
            match connection.ask(operation, TxnRequest { compare, success, failure: Vec::new() }).await {
                Ok(TxnResponse { header, succeeded: true, responses }) => {
                    let mut responses = responses.into_iter();
                    for (_, txn, caller) in gathered.drain(..) {
                        let responses = responses.by_ref().take(txn.success.len()).collect();
                        // The caller may have gone meanwhile.
                        let _ = caller.send(Ok(TxnResponse { header, succeeded: true, responses }));
                    }
                }
                Err(error) if gathered.len() == 1 || error.outcome() == Outcome::Unknown => {
                    gathered.drain(..).for_each(|(.., caller)| drop(caller.send(Err(error.again()))));
                }
                // etcd refused one, or one failed its comparison.
                _ => gathered.clear(),
            }
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
        if !self.watched.lock().get(&id).is_some_and(is_same) {
            self.unwatch(watched.place.request);
            self.create_watch(id, watched.key.clone(), watched.range_end.clone(), -1);
        }
        self.watched.lock().insert(id, watched);
    }

    /// Ends the watch of a place.
    pub(super) fn unwatch(&self, place: RequestId) -> Option<Watched> {
        let watch_id = place.number.cast_signed();
        let watched = self.watched.lock().remove(&watch_id)?;
        self.send(RequestUnion::CancelRequest(WatchCancelRequest { watch_id }));
        Some(watched)
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
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use futures_util::future;
    use http::HeaderMap;
    use tokio::io::DuplexStream;
    use tokio::sync::oneshot;

    use super::super::keys::{Keys, value};
    use super::super::ops::{all, has_version, made_in, read};
    use super::super::proto::request_op::Request as OpRequest;
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

    /// A connection to a member that gives these answers. `ended` runs at its end.
    async fn connected(
        answers: Vec<(Vec<u8>, Option<Status>)>,
        ended: impl FnOnce() + Send + 'static,
    ) -> Arc<Connection> {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        tokio::spawn(answer(theirs, answers));
        let (tasks, origin) = (Tasks::here().unwrap(), "http://member/".to_owned());
        Connection::open(Box::new(ours), origin, (1, Bounds::of(None), &tasks), ended).await.unwrap()
    }

    /// A connection to a member that answers with this message alone, and what its stream of watches hands on: `None` once it has ended.
    async fn watched(message: WatchResponse) -> (Arc<Connection>, Option<WatchResponse>) {
        let connection = connected(vec![(message.encode_to_vec(), None)], || {}).await;
        let (to_test, mut received) = mpsc::unbounded_channel();
        let watching = connection.keep_watching(move |answer| drop(to_test.send(answer)));
        connection.create_watch(7, b"key".to_vec(), Vec::new(), 1);
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
        let shared = Arc::new(OnceLock::<Arc<Connection>>::new());
        let (connection, (reported, is_alive)) = (Arc::clone(&shared), oneshot::channel());
        let ended = move || reported.send(!connection.get().unwrap().close.is_closed()).unwrap();
        assert!(shared.set(connected(Vec::new(), ended).await).is_ok());
        assert!(!shared.get().unwrap().close.is_closed());
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
    fn listed(keys: impl IntoIterator<Item = (Vec<u8>, i64)>) -> (Vec<u8>, Option<Status>) {
        let kv = |(key, create_revision)| KeyValue { key, create_revision, ..KeyValue::default() };
        let queue = RangeResponse { kvs: keys.into_iter().map(kv).collect(), ..RangeResponse::default() };
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
            let connection = connected(vec![listed([front])], || {}).await;
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
        let connection = connected(vec![found, listed([])], || {}).await;
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
            let connection = connected(vec![listed([ahead, (mine.clone(), 10)])], || {}).await;
            let entered = session.enter(&connection, &entry(2, true), false).await.unwrap();
            assert!(matches!(entered, Enter::Waiting { seq: 10, .. }), "{entered:?}");
            assert_eq!(connection.unwatch(place(2).request).is_some(), is_watched);
        }
        // The deletion of a key grants the place if no other key is ahead.
        let others = [(b"job/7e".to_vec(), 1), (b"job/7f".to_vec(), 2)];
        for (ahead, grants) in [(&others[1..], Some(10)), (&others, None)] {
            let keys = ahead.iter().cloned().chain([(mine.clone(), 10)]);
            let connection = connected(vec![listed(keys)], || {}).await;
            session.enter(&connection, &entry(2, true), false).await.unwrap();
            assert_eq!(connection.unwatch(place(2).request).unwrap().grants, grants);
        }
    }

    #[tokio::test]
    async fn a_try_whose_key_could_not_be_deleted_may_have_left_it_there() {
        let session = session();
        let joined = listed([(b"job/7f".to_vec(), 1), (session.keys.place(0, &place(1)), 2)]);
        let busy = Status::resource_exhausted("etcdserver: too many requests");
        let connection = connected(vec![joined, (Vec::new(), Some(busy))], || {}).await;
        let error = session.enter(&connection, &entry(1, false), false).await.unwrap_err();
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Exhausted, Outcome::Unknown), "{error}");
    }

    /// A leader that was stopped renews leases until it notices its successor.
    #[tokio::test]
    async fn a_renewal_does_not_count_if_the_term_is_another_one_afterwards() {
        for (terms, counts) in [([1, 1], true), ([1, 2], false)] {
            let term = |raft_term| {
                let header = Some(ResponseHeader { raft_term, ..ResponseHeader::default() });
                (RangeResponse { header, ..RangeResponse::default() }.encode_to_vec(), Some(Status::ok("")))
            };
            let alive = LeaseKeepAliveResponse { ttl: 9, ..LeaseKeepAliveResponse::default() };
            let [before, after] = terms.map(term);
            let answers = vec![before, (alive.encode_to_vec(), Some(Status::ok(""))), after];
            let connection = connected(answers, || {}).await;
            let renewed = session().renew(&connection, &[]).await;
            assert_eq!(renewed.map_err(|error| error.is_retryable()), if counts { Ok(true) } else { Err(true) });
        }
    }

    /// A request of an older connection, or one that was withdrawn, may arrive late: etcd compares the epoch that it carries.
    #[tokio::test]
    async fn a_request_joins_only_if_its_session_still_has_its_epoch() {
        let session = session();
        session.places.raise(3);
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (tasks, origin) = (Tasks::here().unwrap(), "http://member/".to_owned());
        let opened = Connection::open(Box::new(ours), origin, (1, Bounds::of(None), &tasks), || {});
        let (opened, member) = future::join(opened, h2::server::handshake(theirs)).await;
        let (connection, mut member) = (opened.unwrap(), member.unwrap());
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

    /// The messages of the transactions that a member receives, and their answers: the member has no keys but those that a transaction puts,
    /// which have the revision 7.
    async fn recorded() -> (Arc<Connection>, mpsc::UnboundedReceiver<TxnRequest>) {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (to_test, received) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut member = h2::server::handshake(theirs).await.unwrap();
            while let Some(Ok((request, mut answer))) = member.accept().await {
                let to_test = to_test.clone();
                tokio::spawn(async move {
                    let (mut body, mut text) = (request.into_body(), Vec::new());
                    while let Some(data) = body.data().await {
                        text.extend_from_slice(&data.unwrap());
                    }
                    let txn = TxnRequest::decode(&text[5..]).unwrap();
                    let message = framed(&made(&txn));
                    let _ = to_test.send(txn);
                    let mut answer = answer.send_response(Response::new(()), false).unwrap();
                    answer.send_data(message, false).unwrap();
                    let mut trailers = HeaderMap::new();
                    Status::ok("").add_header(&mut trailers).unwrap();
                    answer.send_trailers(trailers).unwrap();
                });
            }
        });
        let (tasks, origin) = (Tasks::here().unwrap(), "http://member/".to_owned());
        let connection = Connection::open(Box::new(ours), origin, (1, Bounds::of(None), &tasks), || {}).await.unwrap();
        (connection, received)
    }

    /// The keys that a transaction puts.
    fn put_by(txn: &TxnRequest) -> Vec<Vec<u8>> {
        let puts = txn.success.iter().filter_map(|op| match op.request.as_ref().unwrap() {
            OpRequest::RequestPut(put) => Some(put.key.clone()),
            _ => None,
        });
        puts.collect()
    }

    fn made(txn: &TxnRequest) -> TxnResponse {
        let puts = put_by(txn);
        let answer = |op: &RequestOp| match op.request.as_ref().unwrap() {
            OpRequest::RequestPut(_) => OpResponse::ResponsePut(PutResponse::default()),
            OpRequest::RequestDeleteRange(_) => {
                OpResponse::ResponseDeleteRange(DeleteRangeResponse { deleted: 1, header: None })
            }
            OpRequest::RequestRange(range) => {
                let keys = puts.iter().filter(|key| (&range.key..&range.range_end).contains(key));
                let kv = |key: &Vec<u8>| KeyValue { key: key.clone(), create_revision: 7, ..KeyValue::default() };
                OpResponse::ResponseRange(RangeResponse { kvs: keys.map(kv).collect(), ..RangeResponse::default() })
            }
        };
        let responses = txn.success.iter().map(|op| ResponseOp { response: Some(answer(op)) }).collect();
        TxnResponse { succeeded: true, responses, ..TxnResponse::default() }
    }

    /// A request for a lock of this name.
    fn request(name: &str, number: u64) -> Entry {
        Entry { name: Name::new(name).unwrap(), ..entry(number, true) }
    }

    #[tokio::test]
    async fn requests_of_several_names_go_together_and_two_of_one_name_never_do() {
        let (session, (connection, mut received)) = (session(), recorded().await);
        let entries: Vec<_> = (0..).zip(["a", "b", "b", "c"]).map(|(number, name)| request(name, number)).collect();
        let entered = entries.iter().map(|entry| session.enter(&connection, entry, false));
        for entered in future::join_all(entered).await {
            assert!(matches!(entered.unwrap(), Enter::Granted(7)));
        }
        let mut keys: Vec<_> = [received.recv().await, received.recv().await].map(|txn| put_by(&txn.unwrap())).into();
        keys.sort_by_key(Vec::len);
        let keys_of = |numbers: &[usize]| -> Vec<_> {
            let place = |number: &usize| PlaceId { name: entries[*number].name.clone(), request: entries[*number].id };
            numbers.iter().map(|number| session.keys.place(0, &place(number))).collect()
        };
        assert_eq!(keys, [keys_of(&[2]), keys_of(&[0, 1, 3])]);
        let left = (0..2).map(|number| PlaceId { name: entries[number].name.clone(), request: entries[number].id });
        let left = left.collect::<Vec<_>>();
        let leaving = left.iter().map(|place| session.leave(&connection, place, Some(7)));
        assert!(future::join_all(leaving).await.into_iter().all(Result::unwrap));
        let together = received.recv().await.unwrap();
        assert_eq!(together.success.len(), 2);
        // A late release deletes no later place of its request.
        let made = left.iter().map(|place| made_in(session.keys.place(0, place), 7)).collect::<Vec<_>>();
        assert_eq!(together.compare, made);
        assert!(received.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_request_whose_caller_is_gone_before_it_goes_is_not_sent() {
        let (session, (connection, mut received)) = (session(), recorded().await);
        let [gone, kept] = [request("a", 1), request("b", 2)];
        assert!(session.enter(&connection, &gone, false).now_or_never().is_none());
        session.enter(&connection, &kept, false).await.unwrap();
        assert_eq!(put_by(&received.recv().await.unwrap()).len(), 1);
    }

    /// Two requests go together, and these are the answers of the member.
    async fn entered(answers: Vec<(Vec<u8>, Option<Status>)>) -> Vec<Result<Enter>> {
        let (session, connection) = (session(), connected(answers, || {}).await);
        let entries = [request("a", 1), request("b", 2)];
        future::join_all(entries.iter().map(|entry| session.enter(&connection, entry, false))).await
    }

    #[tokio::test]
    async fn requests_that_changed_nothing_together_go_by_themselves_and_an_unknown_outcome_is_unknown_for_each() {
        let session = session();
        let keys = [("a", 1), ("b", 2)].map(|(name, number)| {
            let Entry { name, id: request, .. } = request(name, number);
            (session.keys.place(0, &PlaceId { name, request }), 7)
        });
        let alone = || listed(keys.clone());
        let refused = (Vec::new(), Some(Status::invalid_argument("etcdserver: too many operations in txn request")));
        let header = Some(ResponseHeader { revision: 8, ..ResponseHeader::default() });
        let failed = (TxnResponse { header, ..TxnResponse::default() }.encode_to_vec(), Some(Status::ok("")));
        for together in [refused, failed] {
            let entered = entered(vec![together, alone(), alone()]).await;
            assert!(entered.iter().all(|entered| matches!(entered, Ok(Enter::Granted(7)))), "{entered:?}");
        }
        let lost = (Vec::new(), Some(Status::unavailable("etcdserver: leader changed")));
        // The second member hangs up instead.
        for answers in [vec![lost], Vec::new()] {
            for entered in entered(answers).await {
                assert_eq!(entered.unwrap_err().outcome(), Outcome::Unknown);
            }
        }
    }

    /// etcd applies a transaction that its quota admitted, and reports that it is full if the quota is used up meanwhile.
    #[tokio::test]
    async fn a_request_that_a_full_etcd_refused_leaves_no_place() {
        let full = || (Vec::new(), Some(Status::resource_exhausted("etcdserver: mvcc: database space exceeded")));
        for (deletion, outcome) in [(listed([]), Outcome::NotApplied), (full(), Outcome::Unknown)] {
            let (session, connection) = (session(), connected(vec![full(), deletion], || {}).await);
            let error = session.enter(&connection, &entry(1, true), false).await.unwrap_err();
            assert_eq!((error.kind(), error.outcome()), (ErrorKind::Exhausted, outcome), "{error}");
        }
    }
}
