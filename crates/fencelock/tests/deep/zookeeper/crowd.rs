//! Many waiters of one process.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fencelock::store::Page;
use fencelock::{Client, ErrorKind};
use fencelock_testbed::Proxy;
use fencelock_testbed::zookeeper::{Ensemble, Settings};
use fencelock_zookeeper::{Acl, CreateMode};
use futures_util::future;

use super::lab::{Lab, observed, reading, soon};

/// Crowds run in turn: two would wait for the machine, not for each other.
static ROOM: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Waits until the queue of `name` has `count` nodes, without listing them; says how many requests it took.
async fn until_many_queued(lab: &Lab, name: &str, count: usize) -> u64 {
    let path = lab.path(name);
    let mut looks = 1;
    soon(async {
        while lab.hands.exists(&path).await.unwrap().unwrap().num_children < i32::try_from(count).unwrap() {
            looks += 1;
            super::lab::pause().await;
        }
    })
    .await;
    looks
}

#[tokio::test]
async fn a_crowd_that_gives_up_at_once_asks_little_and_learns_the_holder_if_there_is_one() {
    const CROWD: u64 = 200;
    let _room = ROOM.lock().await;
    let (server, lab) = Lab::alone().await;
    let client = lab.client("").await;
    let guard = client.mutex("job").unwrap().acquire().await.unwrap();
    let count = || server.server(0).monitor("zk_packets_received").unwrap();
    let mutex = client.mutex("job").unwrap();
    let before = count();
    let crowd = (0..CROWD).map(|_| mutex.acquire_within(Duration::from_secs(10)));
    let refused: Vec<_> = soon(future::join_all(crowd)).await.into_iter().map(Result::unwrap_err).collect();
    let asked = count() - before;
    // If each contender read all other contenders, that would be 40,000 requests.
    assert!(asked < CROWD * CROWD / 4, "{asked} requests");
    for refused in &refused {
        assert_eq!(refused.kind(), ErrorKind::TimedOut, "{refused}");
        let contention = refused.contention().expect("the queue, or that no answer came in time");
        if let Some(holder) = &contention.holder {
            assert_eq!(holder.grant.and_then(|grant| grant.token), guard.token(), "{refused}");
            assert!(contention.position.is_some_and(|position| position > 1), "{refused}");
        }
    }
    lab.until_queued("job", 1).await;
}

#[tokio::test]
async fn a_thousand_that_join_at_once_keep_their_places_and_are_granted_in_order() {
    // The limit of the documents for one client: each contender lists the queue for itself.
    const CROWD: usize = 1000;
    let _room = ROOM.lock().await;
    let (server, lab) = Lab::alone().await;
    // The longest ttl that the servers allow: thousands of tasks delay everything on a busy machine.
    let (client, requeued) = observed(&lab.url("").replace("ttl_ms=60000", "ttl_ms=40000")).await;
    let mutex = client.mutex("job").unwrap();
    let holder = mutex.acquire().await.unwrap();
    let count = || server.server(0).monitor("zk_packets_received").unwrap();
    let before = count();
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let crowd: Vec<_> = (0..CROWD)
        .map(|_| {
            let (mutex, tokens) = (mutex.clone(), Arc::clone(&tokens));
            tokio::spawn(async move {
                let guard = mutex.acquire().await?;
                tokens.lock().unwrap().push(guard.token());
                guard.release().await
            })
        })
        .collect();
    // The server counts these requests too.
    let looks = until_many_queued(&lab, "job", CROWD + 1).await;
    holder.release().await.unwrap();
    for waiter in crowd {
        soon(waiter).await.unwrap().unwrap();
    }
    assert_eq!(*requeued.0.lock().unwrap(), []);
    let tokens = tokens.lock().unwrap();
    assert!(tokens.len() == CROWD && tokens.is_sorted(), "{} grants out of order", tokens.len());
    // A create, a list, three watches and a delete each; the rest is renewals, and looks at the number of waiters.
    let asked = count() - before - looks;
    assert!(asked < 7 * CROWD as u64, "{asked} requests");
}

#[tokio::test]
async fn the_cost_of_a_failed_acquire_and_a_page_of_the_queue_does_not_depend_on_the_number_of_waiters() {
    const WAITERS: usize = 2000;
    const TIMES: u64 = 10;
    let _room = ROOM.lock().await;
    let (server, lab) = Lab::alone().await;
    let client = lab.client("").await;
    let mutex = client.mutex("job").unwrap();
    let guard = mutex.acquire().await.unwrap();
    let count = || server.server(0).monitor("zk_packets_received").unwrap();
    let (path, acl) = (lab.path("job/lock-"), [Acl::open()]);
    let waiters = (0..WAITERS).map(|_| lab.hands.create(&path, b"", CreateMode::EphemeralSequential, &acl));
    for made in soon(future::join_all(waiters)).await {
        made.unwrap();
    }
    let before = count();
    for _ in 0..TIMES {
        assert_eq!(soon(mutex.try_acquire()).await.unwrap_err().kind(), ErrorKind::Busy);
        let short = soon(client.contention(guard.name())).await.unwrap();
        assert_eq!(short.holder.and_then(|holder| holder.grant).and_then(|grant| grant.token), guard.token());
        assert_eq!((short.holders, short.queued), (1, WAITERS + 1));
    }
    // A try creates, lists and deletes; the contenders of the queue are read by a sync, a list and a read. The rest is
    // renewals.
    let asked = count() - before;
    assert!(asked <= TIMES * 9 + 50, "{asked} requests");
    let before = count();
    let page = Page { skip: WAITERS - 100, limit: 10 };
    let queue = soon(client.queue_page(guard.name(), page)).await.unwrap();
    assert!(queue.contenders.len() == 10 && queue.contenders.iter().all(|shown| shown.since.is_some()), "{queue:?}");
    let asked = count() - before;
    assert!(asked <= 10 + 2 + 50, "{asked} requests");
}

/// The traffic between the server and the clients of 800 readers behind a writer, from its release to their last grant:
/// bytes, and requests. All readers listen once the server keeps `watches` watches.
async fn letting_readers_in(clients: usize, watches: u64) -> (u64, u64) {
    let server = Ensemble::start(Settings::default()).unwrap();
    let mut lab = Lab::on(server.server(0).address()).await;
    let writer = lab.client("").await.rwlock("page").unwrap().write().await.unwrap();
    let proxy = Proxy::start(lab.server).unwrap();
    lab.server = proxy.address();
    let url = lab.url("").replace("ttl_ms=60000", "ttl_ms=40000");
    let connect = || async { Client::connect(&url).await.unwrap() };
    let clients = future::join_all((0..clients).map(|_| connect())).await;
    let readers: Vec<_> = (0..READERS).map(|number| reading(&clients[number % clients.len()], "page")).collect();
    let count = |key: &str| server.server(0).monitor(key).unwrap();
    until_many_queued(&lab, "page", READERS + 1).await;
    soon(async {
        while count("zk_watch_count") < watches {
            // An answered request of each client proves that its earlier requests are answered.
            future::join_all(clients.iter().map(|client| client.names("~", None, 1))).await;
        }
    })
    .await;
    let said = || proxy.bytes().0 + proxy.bytes().1;
    let (said_before, asked_before) = (said(), count("zk_packets_received"));
    writer.release().await.unwrap();
    let held = soon(future::join_all(readers)).await;
    let (bytes, requests) = (said() - said_before, count("zk_packets_received") - asked_before);
    held.into_iter().for_each(|reader| drop(reader.unwrap().unwrap()));
    (bytes, requests)
}

const READERS: usize = 800;

#[tokio::test]
async fn a_crowd_of_readers_behind_a_writer_is_let_in_and_asks_for_nothing_however_many_clients_they_are_of() {
    let _room = ROOM.lock().await;
    for clients in [1, 8] {
        // Each reader watches its own node, each client the writer's, and the writer its own.
        let (bytes, requests) = letting_readers_in(clients, (READERS + clients + 1) as u64).await;
        // The release, and renewals. If each reader listed all readers, that would be 40 million bytes.
        assert!(bytes <= 20_000 && requests <= 50, "{bytes} bytes and {requests} requests with {clients} clients");
    }
}
