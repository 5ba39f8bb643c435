//! Requests that go together, watches, and a session's requests to a member that answers by a script.

use std::sync::Arc;
use std::task::Poll;
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
use crate::store::{Entry, Loss, Opening, Owner, Standing};
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
async fn connected(answers: Vec<(Vec<u8>, Option<Status>)>, ended: impl FnOnce() + Send + 'static) -> Arc<Connection> {
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
    let [held, waiting] = [1, 2].map(|number| session.places.begin(&place(number).name, place(number).request, 0).0);
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
        assert!(matches!(entered, Enter::Waiting { seq: 10, look_in: None, .. }), "{entered:?}");
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

/// Another thread handles the answer to the release between the two steps of an acquire.
#[tokio::test]
async fn a_release_grants_a_place_that_was_judged_and_does_not_wait_yet_or_makes_it_look() {
    let [own, mine] = [1, 2].map(|number| session().keys.place(0, &place(number)));
    for (front, is_granted) in [((mine.clone(), 10), true), ((b"job/7f".to_vec(), 5), false)] {
        let session = session();
        let begin = |number| session.places.begin(&place(number).name, place(number).request, 0).0;
        let [held, waiting] = [1, 2].map(begin);
        session.places.granted(&held, 1);
        let answers = vec![listed([(own.clone(), 1), (mine.clone(), 10)]), listed([front])];
        let connection = connected(answers, || {}).await;
        session.enter(&connection, &entry(2, true), false).await.unwrap();
        assert!(session.leave(&connection, &place(1), Some(1)).await.unwrap());
        session.places.waits(&waiting, 10, None, Moment::from_nanos(9));
        assert_eq!(matches!(waiting.standing(), Standing::Granted(_)), is_granted);
        assert_eq!(session.places.due(Moment::ORIGIN, false).is_err(), is_granted);
    }
}

#[tokio::test]
async fn a_place_behind_one_whose_release_was_answered_watches_its_key() {
    let session = session();
    let [own, mine] = [1, 2].map(|number| session.keys.place(0, &place(number)));
    let held = session.places.begin(&place(1).name, place(1).request, 0).0;
    session.places.granted(&held, 1);
    let connection = connected(vec![listed([]), listed([(own, 1), (mine, 10)])], || {}).await;
    assert!(session.leave(&connection, &place(1), Some(1)).await.unwrap());
    session.enter(&connection, &entry(2, true), false).await.unwrap();
    assert!(connection.unwatch(place(2).request).is_some());
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

/// etcd may apply the deletion after the answer to a repeated request, which finds the key, or makes it anew.
#[tokio::test]
async fn a_place_whose_deletion_has_no_answer_neither_waits_nor_holds_by_a_later_answer() {
    let foreign = (b"job/7f".to_vec(), 1);
    for (seq, waits) in [(2, false), (20, false), (2, true)] {
        let (session, mine) = (session(), session().keys.place(0, &place(1)));
        let slot = session.places.begin(&place(1).name, place(1).request, 0).0;
        let joined = listed([foreign.clone(), (mine.clone(), 2)]);
        let lost = (Vec::new(), Some(Status::unavailable("etcdserver: leader changed")));
        let connection = connected(vec![joined, lost], || {}).await;
        let error = session.enter(&connection, &entry(1, false), false).await.unwrap_err();
        assert!(error.outcome() == Outcome::Unknown && error.is_retryable());
        assert!(!session.places.is_waiting() && slot.seq().is_none());
        let ahead = waits.then(|| foreign.clone());
        let connection = connected(vec![listed(ahead.into_iter().chain([(mine, seq)]))], || {}).await;
        match session.enter(&connection, &entry(1, waits), true).await.unwrap() {
            Enter::Granted(seq) => session.places.granted(&slot, seq),
            Enter::Waiting { seq, .. } => session.places.waits(&slot, seq, None, Moment::NEVER),
            other => panic!("{other:?}"),
        }
        assert_eq!(slot.standing(), Standing::Lost(Loss::Removed));
        assert!(!session.places.is_waiting());
    }
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
/// which have the revision 7. The member does not answer acquires of `silent`.
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
                let is_silent = put_by(&txn).iter().any(|key| key.starts_with(b"silent/"));
                let _ = to_test.send(txn);
                if is_silent {
                    return future::pending().await;
                }
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
    let names = ["a", "b", "b", "c", "c"];
    let entries: Vec<_> = (0..).zip(names).map(|(number, name)| request(name, number)).collect();
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
    assert_eq!(keys, [keys_of(&[2, 4]), keys_of(&[0, 1, 3])]);
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
async fn a_transaction_has_the_requests_of_all_tasks_that_are_ready() {
    let (session, (connection, mut received)) = (Arc::new(session()), recorded().await);
    let enter = |name: &str, number| {
        let (session, connection, entry) = (Arc::clone(&session), Arc::clone(&connection), request(name, number));
        async move { session.enter(&connection, &entry, false).await.unwrap() }
    };
    // This task is behind the one that sends.
    let (mut is_behind, second) = (false, enter("b", 2));
    let is_next = future::poll_fn(move |cx| {
        cx.waker().wake_by_ref();
        if std::mem::replace(&mut is_behind, true) { Poll::Ready(()) } else { Poll::Pending }
    });
    let tasks = [tokio::spawn(enter("a", 1).boxed()), tokio::spawn(is_next.then(|()| second).boxed())];
    future::try_join_all(tasks).await.unwrap();
    assert_eq!(put_by(&received.recv().await.unwrap()).len(), 2);
}

#[tokio::test]
async fn a_request_waits_for_no_answer_while_a_single_transaction_is_on_its_way() {
    let (session, (connection, mut received)) = (session(), recorded().await);
    let silent = request("silent", 1);
    let next = async {
        received.recv().await.unwrap();
        session.enter(&connection, &request("a", 2), false).await.unwrap()
    };
    tokio::select! {
        entered = session.enter(&connection, &silent, false) => panic!("{entered:?}"),
        entered = next => assert_eq!(entered, Enter::Granted(7)),
    }
}

#[tokio::test]
async fn a_release_goes_before_acquires_that_wait() {
    let (session, (connection, mut received)) = (session(), recorded().await);
    let entries: Vec<_> = (1..).take(MOST + 1).map(|number| request(&format!("n{number}"), number)).collect();
    let entered = entries.iter().map(|entry| session.enter(&connection, entry, false));
    let (entered, left) =
        future::join(future::join_all(entered), session.leave(&connection, &place(999), Some(7))).await;
    assert!(entered.iter().all(Result::is_ok) && left.unwrap());
    let first = [received.recv().await, received.recv().await].map(Option::unwrap);
    assert!(first.iter().any(|txn| txn.compare.contains(&made_in(session.keys.place(0, &place(999)), 7))));
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
