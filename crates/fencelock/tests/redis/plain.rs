//! The layout `plain` with other clients, whose commands are given by hand here.

use std::time::{Duration, Instant};

use fencelock::{ErrorKind, Loss, Name};
use fencelock_testbed::redis::{Reply, Server, Settings};
use fencelock_testbed::{Proxy, Way};

use crate::lab::{PATIENCE, acquired, acquiring, client, patient, server, soon, until, until_waits_in_vain};
use crate::refused::until_refused_by;
use crate::theirs::{calls, refused, requests, takes_ours, with_client, with_layout};

/// How another client releases and extends a lock: if the value is its own.
const RELEASE: &str = "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) else return 0 end";
const EXTEND: &str =
    "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('PEXPIRE',KEYS[1],ARGV[2]) else return 0 end";

/// Takes the lock as another client does; says whether it got it.
fn takes(server: &Server, key: &str, value: &str, ttl_ms: u32) -> bool {
    server.ask(&["SET", key, value, "NX", "PX", &ttl_ms.to_string()]).unwrap() == Reply::Status("OK".to_owned())
}

fn value(server: &Server, key: &str) -> String {
    server.ask(&["GET", key]).unwrap().to_string()
}

#[tokio::test]
async fn a_lock_of_another_client_excludes_ours_and_ours_excludes_it() {
    let (server, client) = with_client("plain").await;
    let guard = takes_ours(&client, "job").await;
    assert!(!takes(&server, "job", "theirs", 60_000), "another client took our lock");
    for script in [RELEASE, EXTEND] {
        assert_eq!(server.ask(&["EVAL", script, "1", "job", "theirs", "1"]).unwrap(), Reply::Int(0));
    }
    assert!(guard.token().is_none(), "there is no token");
    guard.release().await.unwrap();
    assert!(takes(&server, "job", "theirs", 60_000), "what was released is not free");
    until_refused_by("theirs", &client, "job").await;
    let waits = acquiring(&client, "job");
    assert_eq!(server.ask(&["EVAL", RELEASE, "1", "job", "theirs"]).unwrap(), Reply::Int(1));
    acquired(waits).await.release().await.unwrap();
    assert_eq!(server.ask(&["EXISTS", "job"]).unwrap(), Reply::Int(0));
}

#[tokio::test]
async fn an_expired_holder_is_followed_in_time_and_one_without_a_ttl_is_waited_for() {
    let (server, client) = with_client("plain").await;
    assert!(takes(&server, "job", "dead", 2_000));
    acquired(acquiring(&client, "job")).await.release().await.unwrap();
    server.ask(&["SET", "for-ever", "no end"]).unwrap();
    until_waits_in_vain(&client, "for-ever").await;
}

#[tokio::test]
async fn a_holder_whose_key_is_deleted_or_overwritten_is_notified_and_releases_nothing_of_others() {
    let (server, client) = with_client("plain").await;
    let kept = takes_ours(&client, "kept").await;
    for overwritten in [false, true] {
        let guard = takes_ours(&client, "job").await;
        if overwritten {
            server.ask(&["SET", "job", "theirs", "PX", "120000"]).unwrap();
        } else {
            server.ask(&["DEL", "job"]).unwrap();
        }
        let start = Instant::now();
        assert_eq!(soon(guard.lost()).await, Loss::Removed);
        assert!(start.elapsed() < PATIENCE);
        drop(guard);
    }
    // The releases of what was lost have run before this one.
    let other = takes_ours(&client, "other").await;
    other.release().await.unwrap();
    assert_eq!(value(&server, "job"), "theirs");
    kept.check().unwrap();
    kept.release().await.unwrap();
}

#[tokio::test]
async fn a_key_of_another_type_is_another_kind_of_lock_and_stays() {
    let (server, client) = with_client("plain").await;
    server.ask(&["HSET", "job", "uuid:1", "1"]).unwrap();
    for error in [refused(&client, "job").await, client.mutex("job").unwrap().acquire().await.unwrap_err()] {
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Layout, false), "{error}");
        assert!(error.to_string().contains("another kind of lock") && error.to_string().contains("hash"), "{error}");
    }
    let error = client.queue(&Name::new("job").unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("hash"), "{error}");
    assert_eq!(server.ask(&["HGET", "job", "uuid:1"]).unwrap().to_string(), "1");
    // The key may become another kind of lock during a wait, and is free at no time.
    assert!(takes(&server, "page", "theirs", 60_000));
    let before = asked(&server);
    let waits = acquiring(&client, "page");
    until("it is tried for", async || asked(&server) > before).await;
    let becomes = "redis.call('DEL',KEYS[1]) return redis.call('HSET',KEYS[1],'uuid:1','1')";
    server.ask(&["EVAL", becomes, "1", "page"]).unwrap();
    let error = soon(waits).await.unwrap().expect_err("a hash was taken for a free lock");
    assert_eq!(error.kind(), ErrorKind::Layout, "{error}");
}

#[tokio::test]
async fn readers_writers_and_permits_are_refused_with_the_layout_that_has_them() {
    let (_server, client) = with_client("plain").await;
    let errors = [client.rwlock("page").map(drop).unwrap_err(), client.semaphore("seats", 3).map(drop).unwrap_err()];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("default layout"), "{error}");
    }
}

/// The number of scripts and of `SET` that the server received.
pub(crate) fn asked(server: &Server) -> i64 {
    calls(server, &["evalsha", "set"])
}

#[tokio::test]
async fn a_hundred_that_wait_in_one_client_ask_as_often_as_one_and_are_served_in_the_order_of_their_calls() {
    let (server, client) = with_client("plain").await;
    assert!(takes(&server, "job", "theirs", 600_000));
    let order = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    server.ask(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]).unwrap();
    let (before, start) = (asked(&server), Instant::now());
    let mut waiting = Vec::new();
    for number in 0..100 {
        let (mutex, order) = (client.mutex("job").unwrap(), std::sync::Arc::clone(&order));
        waiting.push(tokio::spawn(async move {
            let guard = mutex.acquire().await.unwrap();
            order.lock().unwrap().push(number);
            guard.release().await.unwrap();
        }));
        // Calls in turn: each is polled before the next call.
        tokio::task::yield_now().await;
    }
    until("it was tried many times", async || asked(&server) >= before + 30).await;
    let (tries, waited) = (asked(&server) - before, start.elapsed());
    // Between two tries is a pause of a tenth of a second at least. The rest are the requests of the first try, renewals, and
    // repeats on a busy machine. A hundred separate waiters would exceed that at once.
    let most = i64::try_from(waited.as_millis() / 100).unwrap() + 20;
    let log = server.ask(&["SLOWLOG", "GET", "40"]).unwrap();
    assert!(tries <= most, "{tries} requests within {waited:?}, the newest first: {log}");
    server.ask(&["DEL", "job"]).unwrap();
    for task in waiting {
        soon(task).await.unwrap();
    }
    let served = order.lock().unwrap().clone();
    assert_eq!(served, (0..100).collect::<Vec<_>>());
    println!("a hundred waited for {waited:?}: {tries} requests; {} to serve them", asked(&server) - before - tries);
}

#[tokio::test]
async fn a_waiter_whose_connection_ends_continues_at_once() {
    let (server, url) = with_layout("plain");
    // The session would renew, and so connect again, after minutes only.
    let client = client(&url, 3_600_000).await;
    assert!(takes(&server, "job", "theirs", 600_000));
    let waiting = acquiring(&client, "job");
    let before = asked(&server);
    until("it is tried for", async || asked(&server) > before + 2).await;
    server.ask(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
    server.ask(&["DEL", "job"]).unwrap();
    acquired(waiting).await.release().await.unwrap();
}

#[tokio::test]
async fn an_uncontended_cycle_is_two_requests_and_leaves_nothing() {
    // A script of Redisson's layout sets keys, too.
    for (layout, asks) in [("plain", asked as fn(&Server) -> i64), ("redisson", requests)] {
        let (server, client) = with_client(layout).await;
        takes_ours(&client, "job").await.release().await.unwrap();
        let before = asks(&server);
        for _ in 0..50 {
            takes_ours(&client, "job").await.release().await.unwrap();
        }
        let asked = asks(&server) - before;
        // Renewals, and repeats on a busy machine, are extra.
        assert!((100..125).contains(&asked), "{layout}: {asked} requests for 50 cycles");
        assert_eq!(server.ask(&["DBSIZE"]).unwrap(), Reply::Int(0));
    }
}

#[tokio::test]
async fn a_delayed_request_lives_for_one_ttl_at_most() {
    const TTL_MS: u32 = 30_000;
    let (server, url) = with_layout("plain");
    let proxy = Proxy::start(server.address()).unwrap();
    let client = client(&format!("redis://{}?layout=plain", proxy.address()), TTL_MS.into()).await;
    let other = crate::lab::client(&url, 60_000).await;
    proxy.hold_existing(Way::Up);
    // The client's request is given up with the connection, sent again on another one, granted there and released.
    let guard = acquired(acquiring(&client, "job")).await;
    assert!(proxy.connections() > 1);
    guard.release().await.unwrap();
    let is_there = || server.ask(&["EXISTS", "job"]).unwrap() == Reply::Int(1);
    assert!(!is_there());
    // The delayed request arrives now.
    proxy.release();
    until("it takes effect", async || is_there()).await;
    let left = server.ask(&["PTTL", "job"]).unwrap().number().unwrap();
    assert!(left <= TTL_MS.into(), "it has {left} ms left");
    takes_ours(&other, "job").await.release().await.unwrap();
}

/// A waiter behind a proxy leaves while a try is on its way. The lock becomes free before the deletion is answered.
async fn leaves_slowly(layout: &str, holds: &[&str], releases: &[&[&str]]) {
    let server = server(Settings::default());
    let proxy = Proxy::start(server.address()).unwrap();
    // No key of ours expires within this test.
    let client = client(&format!("redis://{}?layout={layout}", proxy.address()), 3_600_000).await;
    server.ask(holds).unwrap();
    server.ask(&["PEXPIRE", "job", "3600000"]).unwrap();
    let waits = acquiring(&client, "job");
    let tried = async |times| {
        let before = asked(&server);
        until("it is tried for", async || asked(&server) >= before + times).await;
    };
    tried(3).await;
    proxy.delay(Duration::from_secs(1));
    // The tries that were sent undelayed, and one whose reply arrives during the deletion.
    tried(2).await;
    waits.abort();
    for release in releases {
        server.ask(release).unwrap();
    }
    // The next waiter is granted once the one that leaves is gone for good.
    acquired(acquiring(&client, "job")).await.release().await.unwrap();
    assert_eq!(server.ask(&["EXISTS", "job"]).unwrap(), Reply::Int(0), "{layout}");
}

#[tokio::test]
async fn a_waiter_that_leaves_is_not_tried_for_while_its_deletion_is_slow() {
    leaves_slowly("plain", &["SET", "job", "theirs"], &[&["DEL", "job"]]).await;
}

#[tokio::test]
async fn a_waiter_that_leaves_is_not_tried_for_while_its_deletion_is_slow_though_a_release_is_published() {
    let told = ["PUBLISH", "redisson_lock__channel:{job}", "0"];
    leaves_slowly("redisson", &["HSET", "job", "theirs:1", "1"], &[&["DEL", "job"], &told]).await;
}

#[tokio::test]
async fn an_answer_that_is_lost_is_looked_up() {
    let (server, _url) = with_layout("plain");
    let proxy = Proxy::start(server.address()).unwrap();
    let client = client(&format!("redis://{}?layout=plain", proxy.address()), 60_000).await;
    for bytes in [0, 1, 3] {
        let before = proxy.cuts();
        proxy.cut_after(bytes, Way::Down);
        let guard = takes_ours(&client, "job").await;
        until("an answer is cut", async || proxy.cuts() > before).await;
        assert!(!takes(&server, "job", "theirs", 1_000));
        guard.check().unwrap();
        guard.release().await.unwrap();
        assert_eq!(server.ask(&["EXISTS", "job"]).unwrap(), Reply::Int(0), "after {bytes} bytes");
    }
}

#[tokio::test]
async fn locks_of_others_are_shown_listed_under_a_prefix_and_broken_by_their_value() {
    let (server, url) = with_layout("plain");
    let client = client(&format!("{url}&prefix=mutex:"), 60_000).await;
    let job = Name::new("job").unwrap();
    assert!(takes(&server, "mutex:job", "theirs", 60_000));
    assert!(takes(&server, "elsewhere", "theirs", 60_000));
    let guard = takes_ours(&client, "*[a]?").await;
    assert!(value(&server, "mutex:*[a]?").starts_with("fl1:"));
    let names = client.names("", None, 10).await.unwrap();
    assert_eq!(names.iter().map(Name::as_str).collect::<Vec<_>>(), ["*[a]?", "job"]);
    let queue = client.queue(&job).await.unwrap();
    let [holder] = &queue.contenders[..] else { panic!("{queue:?}") };
    assert!(holder.foreign.is_some() && holder.owner.as_ref().is_some_and(|owner| owner.host.contains("theirs")));
    server.ask(&["SET", "mutex:job", "another", "PX", "60000"]).unwrap();
    assert!(!client.break_grant(&job, holder, "it is stuck").await.unwrap(), "another value was deleted");
    let queue = client.queue(&job).await.unwrap();
    assert!(client.break_grant(&job, &queue.contenders[0], "it is stuck").await.unwrap());
    assert_eq!(server.ask(&["EXISTS", "mutex:job"]).unwrap(), Reply::Int(0));
    assert_eq!(client.breaks(&job).await.unwrap().len(), 1);
    guard.release().await.unwrap();
}

/// The next renewal is minutes away: the lost connection notifies the holder.
#[tokio::test]
async fn a_server_that_forgot_everything_ends_all_locks_long_before_the_next_renewal() {
    for layout in ["plain", "redisson"] {
        let server = server(Settings::default());
        let client = client(&format!("redis://{}?layout={layout}", server.address()), 1_200_000).await;
        let guard = takes_ours(&client, "job").await;
        server.restart_empty().unwrap();
        let loss = soon(guard.lost()).await;
        assert!(matches!(loss, Loss::Restarted | Loss::Replaced), "{layout}: {loss}");
    }
}

#[tokio::test]
async fn a_user_that_may_not_run_scripts_is_denied_before_a_lock_is_taken() {
    let (server, _) = with_layout("plain");
    let user = ["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-eval", "-evalsha"];
    server.ask(&user).unwrap();
    let url = format!("redis://app:secret@{}?layout=plain", server.address());
    let error = match soon(patient(&url)).await {
        Ok(client) => soon(client.mutex("job").unwrap().try_acquire()).await.expect_err("it is denied"),
        Err(error) => error,
    };
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert_eq!(server.ask(&["EXISTS", "job"]).unwrap(), Reply::Int(0), "a lock was taken that cannot be given back");
}

#[tokio::test]
async fn short_waits_behind_each_other_for_a_server_that_is_silent_end_as_an_outage() {
    let (server, url) = with_layout("plain");
    let client = client(&format!("{url}&request_deadline_ms=1000"), 60_000).await;
    let held = takes_ours(&client, "held").await;
    server.pause();
    let waits = async |name| {
        let wait = client.mutex(name).unwrap().acquire_within(Duration::from_millis(50)).await;
        wait.map(drop).expect_err("a silent server granted a lock").is_outage()
    };
    for name in ["job", "held"] {
        until("a wait for a silent server is an outage", async || waits(name).await).await;
        for number in 0..20 {
            assert!(waits(name).await, "{name}: the outage is forgotten at wait {number}");
        }
    }
    server.resume();
    drop(held);
}
