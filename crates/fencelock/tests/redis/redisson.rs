//! The layouts `redisson` and `redisson-fenced` with Redisson, whose steps are taken by hand here. `cargo xtask interop` has the
//! real one.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use fencelock::{Client, ErrorKind, Guard, Loss, Name};
use fencelock_testbed::redis::Reply;
use fencelock_testbed::{Proxy, Way};

use crate::lab::{acquired, acquiring, client, patient, soon, until, until_waits_in_vain};
use crate::refused::until_refused_by;
use crate::theirs::*;

#[tokio::test]
async fn a_lock_of_redisson_excludes_ours_and_ours_excludes_it() {
    let (server, client) = with_client("redisson").await;
    let guard = takes_ours(&client, "job").await;
    let left = locks(&server, "job", THREAD, 60_000);
    assert!((1..=60_000).contains(&left), "Redisson reads {left}");
    assert_eq!(unlocks(&server, "job", THREAD, CHANNEL), TAKEN, "a stranger unlocks it");
    assert!(guard.token().is_none());
    guard.release().await.unwrap();
    assert_eq!(asked(&server, "EXISTS", "job"), "0");
    assert_eq!(locks(&server, "job", THREAD, 60_000), TAKEN, "what was released is not free");
    until_refused_by(THREAD, &client, "job").await;
    // A re-entry is Redisson's own, and we leave its count alone.
    assert_eq!(locks(&server, "job", THREAD, 60_000), TAKEN);
    let waits = acquiring(&client, "job");
    until("it waits", async || is_subscribed(&server)).await;
    assert_eq!(server.ask(&["HGETALL", "job"]).unwrap().items().len(), 2);
    assert_eq!(unlocks(&server, "job", THREAD, CHANNEL), 0);
    assert_eq!(server.ask(&["HGET", "job", THREAD]).unwrap().to_string(), "1");
    assert_eq!(unlocks(&server, "job", THREAD, CHANNEL), 1);
    acquired(waits).await.release().await.unwrap();
    assert_eq!(asked(&server, "EXISTS", "job"), "0");
}

#[tokio::test]
async fn the_hash_is_as_redisson_writes_it_and_names_the_holder() {
    let (server, client) = with_client("redisson").await;
    for name in ["job", "a{b}c", "odd{"] {
        let guard = takes_ours(&client, name).await;
        let hash = server.ask(&["HGETALL", name]).unwrap();
        let [field, count, mode, said] = hash.items() else { panic!("{hash}") };
        let (uuid, number) = field.to_string().split_once(':').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        assert!(uuid.len() == 36 && number.parse::<i64>().is_ok(), "{hash}");
        assert_eq!((count.to_string(), mode.to_string()), ("1".to_owned(), "mode".to_owned()));
        assert!(said.to_string().contains(r#""by""#), "{hash}");
        assert!((1..=60_000).contains(&server.ask(&["PTTL", name]).unwrap().number().unwrap()));
        let braced = if name.contains('{') { name.to_owned() } else { format!("{{{name}}}") };
        let mut waits = subscribe(&server, &[&format!("redisson_lock__channel:{braced}")]);
        guard.release().await.unwrap();
        assert_eq!(message(&mut waits).1, "0");
    }
}

#[tokio::test]
async fn waiters_of_redisson_are_woken_and_the_first_of_its_fair_queue_too() {
    let (server, client) = with_client("redisson").await;
    let first = format!("{CHANNEL}:{THREAD}");
    let mut waits = subscribe(&server, &[CHANNEL, &first]);
    server.ask(&["RPUSH", "redisson_lock_queue:{job}", THREAD, "another:2"]).unwrap();
    takes_ours(&client, "job").await.release().await.unwrap();
    assert_eq!([message(&mut waits), message(&mut waits)], [CHANNEL, &first].map(|c| (c.to_owned(), "0".to_owned())));
    // A broken lock is free, and its waiters are notified, too.
    let guard = takes_ours(&client, "job").await;
    let queue = client.queue(&Name::new("job").unwrap()).await.unwrap();
    assert!(client.break_grant(&queue.name, &queue.contenders[0], "it is stuck").await.unwrap());
    assert_eq!(message(&mut waits).0, CHANNEL);
    assert_eq!(soon(guard.lost()).await, Loss::Broken);
}

#[tokio::test]
async fn a_hundred_that_wait_in_one_client_have_one_subscription_and_are_served_by_one_request_each_in_call_order() {
    let (server, client) = with_client("redisson").await;
    assert_eq!(locks(&server, "job", THREAD, 600_000), TAKEN);
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for number in 0..100 {
        let (mutex, order) = (client.mutex("job").unwrap(), Arc::clone(&order));
        waiting.push(tokio::spawn(async move {
            let guard = mutex.acquire().await.unwrap();
            order.lock().unwrap().push(number);
            guard.release().await.unwrap();
        }));
        tokio::task::yield_now().await;
    }
    until("it waits", async || is_subscribed(&server)).await;
    assert_eq!(hear(&server), 1);
    let (before, start) = (requests(&server), Instant::now());
    until("it was tried now and then", async || requests(&server) >= before + 3).await;
    let (tries, waited) = (requests(&server) - before, start.elapsed());
    // Two tries are half a second apart at least. Renewals, and repeats on a busy machine, are extra.
    let most = i64::try_from(waited.as_millis() / 500).unwrap() + 8;
    assert!(tries <= most, "{tries} requests within {waited:?}");
    let before = requests(&server);
    assert_eq!(unlocks(&server, "job", THREAD, CHANNEL), 1);
    for task in waiting {
        soon(task).await.unwrap();
    }
    let served = requests(&server) - before;
    assert_eq!(*order.lock().unwrap(), (0..100).collect::<Vec<_>>());
    println!("{tries} requests while a hundred waited for {waited:?}; {served} to serve them");
    assert!((100..150).contains(&served), "{served} requests for 100 hand-overs");
}

#[tokio::test]
async fn a_client_passes_the_lock_to_its_own_waiters_only_if_none_waits_elsewhere() {
    let (server, client) = with_client("redisson-fenced").await;
    let guard = takes_ours(&client, "job").await;
    let mut others = subscribe(&server, &[CHANNEL]);
    let waits = waiting_behind(&client).await;
    server.ask(&["CONFIG", "RESETSTAT"]).unwrap();
    guard.release().await.unwrap();
    assert_eq!(message(&mut others).1, "0");
    let next = acquired(waits).await;
    assert_eq!(next.token().unwrap().get(), 2);
    // Released by one request, and taken by another: a waiter elsewhere could acquire it in between.
    assert!(requests(&server) >= 2, "{}", requests(&server));
    // A waiter of Redisson's fair lock listens on a channel of its own.
    drop(others);
    server.ask(&["RPUSH", "redisson_lock_queue:{job}", THREAD]).unwrap();
    let waits = waiting_behind(&client).await;
    server.ask(&["CONFIG", "RESETSTAT"]).unwrap();
    next.release().await.unwrap();
    let next = acquired(waits).await;
    assert!(requests(&server) >= 2, "{}", requests(&server));
    // Without other waiters a single request does both, and draws a token for each grant.
    server.ask(&["DEL", "redisson_lock_queue:{job}"]).unwrap();
    let waits = waiting_behind(&client).await;
    next.release().await.unwrap();
    let last = acquired(waits).await;
    assert_eq!(last.token().unwrap().get(), 4);
    assert_eq!(asked(&server, "HLEN", "job"), "2");
    last.release().await.unwrap();
    assert_eq!(asked(&server, "EXISTS", "job"), "0");
}

/// Waits behind another contender of the same client. The server has no trace of this waiter; its task has run once.
async fn waiting_behind(client: &Client) -> tokio::task::JoinHandle<Result<Guard, fencelock::Error>> {
    let waits = acquiring(client, "job");
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    waits
}

#[tokio::test]
async fn after_a_lost_answer_to_a_hand_over_the_client_looks_and_leaves_no_grant_behind() {
    let (server, _url) = with_layout("redisson-fenced");
    let proxy = Proxy::start(server.address()).unwrap();
    let client = client(&format!("redis://{}?layout=redisson-fenced", proxy.address()), 60_000).await;
    for bytes in [0, 1, 3, 9] {
        let mut guard = takes_ours(&client, "job").await;
        let waits = waiting_behind(&client).await;
        let before = proxy.cuts();
        proxy.cut_after(bytes, Way::Down);
        while let Err(failed) = guard.release_or_keep().await {
            assert!(failed.error().is_retryable(), "after {bytes} bytes: {failed}");
            guard = failed.into_guard();
        }
        until("an answer is cut", async || proxy.cuts() > before).await;
        let next = acquired(waits).await;
        next.check().unwrap();
        assert_eq!(next.token().unwrap().get().to_string(), asked(&server, "GET", "redisson_lock_token:{job}"));
        next.release().await.unwrap();
        assert_eq!(asked(&server, "EXISTS", "job"), "0", "after {bytes} bytes");
        proxy.heal();
    }
}

#[tokio::test]
async fn a_waiter_without_a_message_is_served_by_trying() {
    let (server, client) = with_client("redisson").await;
    for told in [true, false] {
        assert_eq!(locks(&server, "job", THREAD, 600_000), TAKEN);
        let waits = acquiring(&client, "job");
        until("it waits", async || is_subscribed(&server)).await;
        // A spin lock, or a release by hand, publishes nothing.
        unlocks(&server, "job", THREAD, if told { CHANNEL } else { "elsewhere" });
        acquired(waits).await.release().await.unwrap();
    }
}

#[tokio::test]
async fn an_expired_holder_is_followed_and_a_hash_without_an_end_is_waited_for() {
    let (server, client) = with_client("redisson").await;
    assert_eq!(locks(&server, "job", THREAD, 2_000), TAKEN);
    acquired(acquiring(&client, "job")).await.release().await.unwrap();
    server.ask(&["HSET", "for-ever", THREAD, "1"]).unwrap();
    until_waits_in_vain(&client, "for-ever").await;
}

#[tokio::test]
async fn a_holder_whose_hash_is_deleted_or_taken_by_redisson_is_notified_and_touches_nothing_of_it() {
    let (server, client) = with_client("redisson").await;
    let kept = takes_ours(&client, "kept").await;
    for taken in [false, true] {
        let guard = takes_ours(&client, "job").await;
        server.ask(&["DEL", "job"]).unwrap();
        if taken {
            assert_eq!(locks(&server, "job", THREAD, 600_000), TAKEN);
        }
        assert_eq!(soon(guard.lost()).await, Loss::Removed);
        drop(guard);
    }
    // The releases of what was lost have run before this one.
    takes_ours(&client, "other").await.release().await.unwrap();
    let hash = server.ask(&["HGETALL", "job"]).unwrap();
    assert_eq!(hash.items(), [Reply::Bytes(THREAD.into()), Reply::Bytes("1".into())]);
    assert!(server.ask(&["PTTL", "job"]).unwrap().number().unwrap() > 60_000, "its lease was changed");
    kept.check().unwrap();
    kept.release().await.unwrap();
}

#[tokio::test]
async fn another_kind_of_lock_under_the_name_is_refused_by_its_kind_and_stays() {
    let (server, client) = with_client("redisson").await;
    server.ask(&["SET", "text", "theirs"]).unwrap();
    server.ask(&["HSET", "data", "a", "1", "b", "2"]).unwrap();
    server.ask(&["EVAL", WRITE_LOCK, "1", "page", THREAD, "600000"]).unwrap();
    server.ask(&["HSET", "large", THREAD, "1", "mode", &"x".repeat(20_000)]).unwrap();
    for (name, kind) in [("text", "string"), ("data", "2 fields"), ("page", "read-write"), ("large", "large")] {
        let before = asked(&server, "DUMP", name);
        for error in [refused(&client, name).await, client.mutex(name).unwrap().acquire().await.unwrap_err()] {
            assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Layout, false), "{error}");
            assert!(error.to_string().contains("another kind of lock") && error.to_string().contains(kind), "{error}");
            assert_eq!(error.context().filter(|(key, _)| *key == "name").count(), 1, "{error}");
        }
        if name != "page" {
            let error = client.queue(&Name::new(name).unwrap()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Layout);
            assert_eq!(error.context().filter(|(key, _)| *key == "name").count(), 1, "{error}");
        }
        assert_eq!(asked(&server, "DUMP", name), before);
    }
    assert_eq!(client.names("", None, 10).await.unwrap(), [Name::new("page").unwrap()]);
    // Redisson's read-write lock waits behind ours, for it looks at `mode` alone, which ours sets, too.
    let guard = takes_ours(&client, "job").await;
    let left = server.ask(&["EVAL", WRITE_LOCK, "1", "job", THREAD, "600000"]).unwrap().number().unwrap();
    assert!(left > 0, "Redisson's writer reads {left}");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_fenced_lock_has_tokens_that_rise_with_those_of_redisson_and_count_each_acquisition_once() {
    let (server, _url) = with_layout("redisson-fenced");
    let proxy = Proxy::start(server.address()).unwrap();
    let client = client(&format!("redis://{}?layout=redisson-fenced", proxy.address()), 60_000).await;
    let token = |guard: &Guard| guard.token().unwrap().get();
    let guard = takes_ours(&client, "job").await;
    assert_eq!((token(&guard), asked(&server, "GET", "redisson_lock_token:{job}")), (1, "1".to_owned()));
    guard.release().await.unwrap();
    // Redisson's fenced lock counts on the same key.
    server.ask(&["INCRBY", "redisson_lock_token:{job}", "41"]).unwrap();
    for (bytes, counted) in [(0, 43), (1, 44), (3, 45)] {
        let before = proxy.cuts();
        proxy.cut_after(bytes, Way::Down);
        let guard = takes_ours(&client, "job").await;
        until("an answer is cut", async || proxy.cuts() > before).await;
        // The try whose reply was lost is repeated, and finds its grant.
        assert_eq!(token(&guard), counted);
        let queue = client.queue(&Name::new("job").unwrap()).await.unwrap();
        assert_eq!(queue.contenders[0].grant.unwrap().token, guard.token());
        guard.release().await.unwrap();
        proxy.heal();
    }
    // A counter that is no number is an error before anything is acquired.
    server.ask(&["SET", "redisson_lock_token:{odd}", "no number"]).unwrap();
    let error = refused(&client, "odd").await;
    assert!(!error.is_contention() && error.to_string().contains("integer"), "{error}");
    assert_eq!(asked(&server, "EXISTS", "odd"), "0");
    assert_eq!(locks(&server, "odd", THREAD, 60_000), TAKEN);
    assert_eq!(client.queue(&Name::new("odd").unwrap()).await.unwrap().queued, 1);
}

#[tokio::test]
async fn locks_of_redisson_are_shown_listed_and_broken() {
    for layout in ["redisson", "redisson-fenced"] {
        let (server, client) = with_client(layout).await;
        let job = Name::new("job").unwrap();
        assert_eq!(locks(&server, "job", THREAD, 600_000), TAKEN);
        server.ask(&["HSET", "data", "field", "1"]).unwrap();
        let guard = takes_ours(&client, "*[a]?").await;
        let mut names = client.names("", None, 10).await.unwrap();
        names.sort();
        assert_eq!(names.iter().map(Name::as_str).collect::<Vec<_>>(), ["*[a]?", "job"]);
        let queue = client.queue(&job).await.unwrap();
        let [holder] = &queue.contenders[..] else { panic!("{queue:?}") };
        assert!(holder.foreign.is_some_and(|foreign| foreign.what.contains("Redisson")), "{holder:?}");
        assert_eq!(holder.owner.as_ref().unwrap().host, THREAD);
        server.ask(&["DEL", "job"]).unwrap();
        assert_eq!(locks(&server, "job", "another:2", 600_000), TAKEN);
        assert!(!client.break_grant(&job, holder, "it is stuck").await.unwrap(), "another one's lock was broken");
        let queue = client.queue(&job).await.unwrap();
        assert!(client.break_grant(&job, &queue.contenders[0], "it is stuck").await.unwrap());
        assert_eq!(asked(&server, "EXISTS", "job"), "0");
        assert_eq!(client.breaks(&job).await.unwrap().len(), 1);
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_user_without_the_rights_for_a_lock_is_denied_before_one_is_taken() {
    let (server, _) = redisson();
    let users = [
        ("deaf", "&nothing"),
        ("dumb", "&* -publish"),
        ("mute", "&* -evalsha"),
        // A hash that is made and cannot get a ttl would stay for ever, without a holder.
        ("endless", "&* -pexpire"),
        ("dry", "&* -hset"),
    ];
    for (name, rules) in users {
        server.ask(&["ACL", "SETUSER", name, "on", ">secret", "~*", "+@all", "resetchannels"]).unwrap();
        let words: Vec<&str> = ["ACL", "SETUSER", name].into_iter().chain(rules.split(' ')).collect();
        server.ask(&words).unwrap();
        let url = format!("redis://{name}:secret@{}?layout=redisson", server.address());
        let error = match soon(patient(&url)).await {
            Ok(client) => soon(client.mutex("job").unwrap().try_acquire()).await.expect_err("it is denied"),
            Err(error) => error,
        };
        assert_eq!(error.kind(), ErrorKind::Denied, "{name}: {error}");
        assert_eq!(asked(&server, "EXISTS", "job"), "0", "a lock was taken that cannot be given back");
    }
}

#[tokio::test]
async fn a_channel_is_unsubscribed_once_its_name_had_no_waiter_for_a_while() {
    let (server, client) = with_client("redisson").await;
    assert_eq!(locks(&server, "job", THREAD, 600_000), TAKEN);
    let waits = acquiring(&client, "job");
    until("it waits", async || is_subscribed(&server)).await;
    waits.abort();
    until("no client subscribes", async || !is_subscribed(&server)).await;
}

#[tokio::test]
async fn waiters_are_served_by_messages_again_after_their_connection_was_cut() {
    let (server, _url) = redisson();
    let proxy = Proxy::start(server.address()).unwrap();
    let client = client(&format!("redis://{}?layout=redisson", proxy.address()), 60_000).await;
    assert_eq!(locks(&server, "job", THREAD, 600_000), TAKEN);
    let waits = acquiring(&client, "job");
    until("it waits", async || is_subscribed(&server)).await;
    let before = proxy.connections();
    proxy.reset();
    until("it connects again", async || proxy.connections() > before).await;
    until("it waits again", async || is_subscribed(&server)).await;
    assert_eq!(unlocks(&server, "job", THREAD, CHANNEL), 1);
    acquired(waits).await.release().await.unwrap();
}
