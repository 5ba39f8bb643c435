//! Reads write nothing: where no lock can be taken, the holders can still be read.

use fencelock::store::Page;
use fencelock::{Client, ErrorKind};
use fencelock_testbed::redis::{Role, Server, Settings};

use crate::lab::{acquiring, client, server, soon, until, until_queued};

/// A client that looks, and has no session.
async fn looks(url: &str) -> Client {
    Client::builder().session_when_needed(true).connect(url).await.unwrap()
}

/// Names, a page, an outline and the breaks of `job`, which has a holder and a waiter.
async fn sees_the_lock(url: &str, what: &str) {
    let client = looks(url).await;
    let names = client.names("", None, 9).await.unwrap_or_else(|error| panic!("{what}: {error:?}"));
    assert_eq!(names.iter().map(|name| name.as_str()).collect::<Vec<_>>(), ["job"], "{what}");
    let queue = client.queue_page("job", Page { skip: 1, limit: 5 }).await.unwrap();
    assert_eq!((queue.queued, queue.contenders.len()), (2, 1), "{what}");
    assert!(queue.contenders[0].owner.is_some() && queue.contenders[0].grant.is_none(), "{what}");
    let short = client.contention("job").await.unwrap();
    assert_eq!((short.queued, short.holders), (2, 1), "{what}");
    assert!(short.holder.unwrap().grant.is_some(), "{what}");
    assert_eq!(client.breaks("job").await.unwrap(), [], "{what}");
    client.close().await.unwrap();
}

/// All that the server has, as one number.
fn digest(server: &Server) -> String {
    format!("{:?}", server.ask(&["DEBUG", "DIGEST"]).unwrap())
}

#[tokio::test]
async fn a_reader_of_queues_sees_locks_where_none_can_be_taken() {
    let looker = crate::refusals::rules("user watcher on ");
    let server = server(
        Settings::default().with_user("looker", &format!("on >p {looker}")).with("enable-protected-configs yes"),
    );
    let set = |setting: &str, value: &str| drop(server.ask(&["CONFIG", "SET", setting, value]).unwrap());
    let (holder, waiter) = (client(&server.url(), 600_000).await, client(&server.url(), 600_000).await);
    let _held = holder.mutex("job").unwrap().acquire().await.unwrap();
    let waiting = acquiring(&waiter, "job");
    until_queued(&holder, "job", 2).await;
    let replica = crate::lab::server(Settings::role(Role::ReplicaOf(server.address())));
    sees_the_lock(&server.url(), "a server that is well").await;

    sees_the_lock(&format!("redis://looker:p@{}", server.address()), "a user who may only read").await;
    let client = looks(&format!("redis://looker:p@{}", server.address())).await;
    let denied = client.mutex("other").unwrap().try_acquire().await.unwrap_err();
    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied:?}");
    let head = client.contention("job").await.unwrap().holder.unwrap();
    let before = digest(&server);
    let denied = client.break_grant("job", &head, "stuck").await.unwrap_err();
    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied:?}");
    assert_eq!(digest(&server), before, "a break that is refused wrote something");

    set("min-replicas-to-write", "5");
    sees_the_lock(&server.url(), "a server that has too few replicas").await;
    set("min-replicas-to-write", "0");

    set("maxmemory", "1");
    sees_the_lock(&server.url(), "a server without memory").await;
    set("maxmemory", "0");

    // A directory blocks the path of the server's snapshot.
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("blocked.rdb")).unwrap();
    set("dir", directory.path().to_str().unwrap());
    set("dbfilename", "blocked.rdb");
    set("save", "3600 1");
    until("a save failed", async || {
        // The server refuses while it sends its data to the replica.
        let _ = server.ask(&["BGSAVE"]);
        server.info("rdb_last_bgsave_status").unwrap() == "err"
    })
    .await;
    let refused = server.ask(&["SET", "x", "y"]);
    assert!(format!("{refused:?}").contains("MISCONF"), "{refused:?}");
    sees_the_lock(&server.url(), "a server that cannot save its data").await;

    until("the replica has it", async || {
        let client = looks(&replica.url()).await;
        matches!(client.contention("job").await, Ok(short) if short.queued == 2)
    })
    .await;
    sees_the_lock(&replica.url(), "a replica").await;
    waiting.abort();
}

/// The commands of a stranger against the lock of that number, which has a holder and a waiter. `{0}` is its bucket, `{1}` its
/// order, `{2}` its name and `{3}` the id of its holder.
const BREAKAGES: &[&[&str]] = &[
    &["HSET", "{0}", "{2}", "what no client wrote"],
    &["HSET", "{0}", "{2}", ""],
    &["HSET", "{0}", "{2}", "99999999999999999999999 1 1 1 a 0 0"],
    &["HSET", "{0}", "{2}", "2 1 1 99999999999999999999999 a 99999999999999999999999 1"],
    &["HSET", "{0}", "{2}", "9999999999 9999999999 1 1 a 0 0"],
    &["HSET", "{0}", "{2}", "0-0 g 1 1:0 1 1 0 zz "],
    &["HSET", "{0}", "{2}\n{3}", "what no client wrote"],
    &["HSET", "{0}", "{2}\n{3}", "g 99999999999999999999999 1:0 1 1 0 {4} "],
    &["HSET", "{0}", "{2}\n{3}", "g 7 99999999999999999999999:0 1 1 0 {4} "],
    &["HSET", "{0}", "{2}\n{3}", "g 7 1:0 0 99999999999999999999999 0 {4} "],
    &["HDEL", "{0}", "{2}\n{3}"],
    &["ZADD", "{1}", "-1", "no request"],
    &["ZADD", "{1}", "-inf", "\u{1b}[31m"],
    &["ZREM", "{1}", "{3}"],
    &["DEL", "{1}"],
    &["SET", "{1}", "what no client wrote"],
];

/// Runs the commands of that number, and returns the name of their lock.
async fn broken(server: &Server, clients: &[Client; 2], number: usize) -> String {
    let name = format!("bad/{number:02}");
    let guard = soon(clients[0].mutex(&name).unwrap().acquire()).await.unwrap();
    acquiring(&clients[1], &name);
    until_queued(&clients[0], &name, 2).await;
    let order = server.ask(&["KEYS", &format!("*:queue:{name}")]).unwrap().items()[0].to_string();
    let bucket = format!("{}:bucket", order.split_once(":queue:").unwrap().0);
    let holder = server.ask(&["ZRANGE", &order, "0", "0"]).unwrap().items()[0].to_string();
    let session = server.ask(&["HGET", &bucket, &format!("{name}\n{holder}")]).unwrap().to_string();
    let session = session.split(' ').nth(6).unwrap();
    let is = |part: &&str| {
        let known = [("{0}", &*bucket), ("{1}", &order), ("{2}", &name), ("{3}", &holder), ("{4}", session)];
        known.iter().fold((*part).to_owned(), |part, (mark, value)| part.replace(mark, value))
    };
    server.ask(&BREAKAGES[number].iter().map(is).collect::<Vec<_>>()).unwrap();
    std::mem::forget(guard);
    name
}

#[tokio::test]
async fn all_names_are_listed_and_only_queues_that_a_stranger_wrote_into_cannot_be_read() {
    let server = server(Settings::default());
    let clients = [client(&server.url(), 600_000).await, client(&server.url(), 600_000).await];
    let mut expected = vec!["good".to_owned()];
    let _good = clients[0].mutex("good").unwrap().acquire().await.unwrap();
    for number in 0..BREAKAGES.len() {
        expected.push(broken(&server, &clients, number).await);
    }
    // Fields that are no names, among fields that are.
    let mut hands = server.hands().unwrap();
    for bucket in server.ask(&["KEYS", "*:bucket"]).unwrap().items() {
        let bucket = bucket.to_string();
        for field in [&b"\x01"[..], b"a//b", b"a\x07", &[b'x'; 600], b"\xff\xfe"] {
            hands.ask(&[b"HSET", bucket.as_bytes(), field, b"what no client wrote"]).unwrap();
        }
    }
    let looker = looks(&server.url()).await;
    let listed = soon(looker.names("", None, usize::MAX)).await.unwrap();
    expected.sort_unstable();
    assert_eq!(listed.iter().map(|name| name.as_str()).collect::<Vec<_>>(), expected);
    for name in &expected {
        let page = soon(looker.queue_page(name, Page { skip: 0, limit: 100 })).await;
        let short = soon(looker.contention(name)).await;
        assert!(page.is_ok() || name != "good", "{page:?}");
        for error in [page.err(), short.err()].into_iter().flatten() {
            assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Layout, false), "{name}: {error:?}");
        }
    }
    // Keys of another type: the sessions of holders, and last a bucket, in which no lock can be held then.
    for session in server.ask(&["KEYS", "*:session:*"]).unwrap().items() {
        hands.ask(&["SET", &session.to_string(), "what no client wrote"]).unwrap();
    }
    assert_eq!(soon(looker.names("", None, usize::MAX)).await.unwrap(), listed);
    assert_eq!(soon(looker.queue("good")).await.unwrap_err().kind(), ErrorKind::Layout);
    let order = server.ask(&["KEYS", "*:queue:bad/00"]).unwrap().items()[0].to_string();
    hands.ask(&["SET", &order.replace("queue:bad/00", "bucket"), "what no client wrote"]).unwrap();
    let left = soon(looker.names("", None, usize::MAX)).await.unwrap();
    assert!(listed.iter().filter(|name| name.as_str() != "bad/00").eq(&left), "{left:?}");
}

/// Each page begins behind the last number of the one before it.
#[tokio::test]
async fn a_queue_whose_places_all_have_one_number_is_an_error_and_no_endless_read() {
    let server = server(Settings::default());
    let clients = [client(&server.url(), 600_000).await, client(&server.url(), 600_000).await];
    let _guard = clients[0].mutex("job").unwrap().acquire().await.unwrap();
    let waiting = acquiring(&clients[1], "job");
    until_queued(&clients[0], "job", 2).await;
    let order = server.ask(&["KEYS", "*:queue:job"]).unwrap().items()[0].to_string();
    let session = server.ask(&["KEYS", "*:session:*"]).unwrap().items()[0].to_string();
    let (bucket, session) = (order.replace("queue:job", "bucket"), session.rsplit(':').next().unwrap().to_owned());
    let mut hands = server.hands().unwrap();
    let mut ask = |words: &[&str]| drop(hands.ask(words).unwrap());
    ask(&["DEL", &order]);
    ask(&["HSET", &bucket, "job", "300 300 300 1000 a 0 0"]);
    for number in 0..300 {
        ask(&["ZADD", &order, &number.to_string(), &format!("a-{number:03x}")]);
        ask(&["HSET", &bucket, &format!("job\na-{number:03x}"), &format!("g 5 1:0 1 1000 0 {session} ")]);
    }
    let error = soon(looks(&server.url()).await.queue("job")).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Layout && error.to_string().contains("order"), "{error:?}");
    waiting.abort();
}
