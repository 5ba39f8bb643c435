//! The layout `plain` with particular other clients, and with strings that fencelock did not write.

use std::time::Duration;

use fencelock::inspect::Expiry;
use fencelock::{Client, ErrorKind, Loss, Name};
use fencelock_testbed::redis::{Reply, Server, Settings};
use fencelock_testbed::{Proxy, Way};

use crate::lab::{acquired, acquiring, client, server, soon, until};

fn number(server: &Server, request: &[&str]) -> i64 {
    server.ask(request).unwrap().number().unwrap_or_else(|| panic!("{request:?} is no number"))
}

async fn shown(client: &Client, name: &str) -> fencelock::inspect::Contender {
    let queue = soon(client.queue(name)).await.unwrap();
    queue.contenders.into_iter().next().expect("a contender holds it")
}

#[tokio::test]
async fn a_release_and_a_break_wake_one_waiter_of_python_redis_lock() {
    let server = server(Settings::default());
    let url = format!("redis://{}?layout=plain&signal=python-redis-lock", server.address());
    let client = client(&url, 60_000).await;
    let signals = || number(&server, &["LLEN", "lock-signal:job"]);
    let guard = acquired(acquiring(&client, "job")).await;
    assert_eq!(number(&server, &["EXISTS", "lock:job"]), 1);
    // A withdrawn waiter signals nothing.
    let limit = Duration::from_millis(300);
    client.mutex("job").unwrap().acquire_within(limit).await.expect_err("it is held");
    assert_eq!(signals(), 0);
    // Waits as python-redis-lock does: until a signal, or for the ttl of its own lock.
    let mut waiter = server.hands().unwrap();
    waiter.send(&["BLPOP", "lock-signal:job", "0"]).unwrap();
    until("it waits", async || number(&server, &["EXISTS", "lock-signal:job"]) == 0 && blocked(&server) == 1).await;
    guard.release().await.unwrap();
    assert_eq!(waiter.answer().unwrap().items().len(), 2, "no release signalled");
    // A break signals as well, and a signal without a waiter expires after a second.
    let guard = acquired(acquiring(&client, "job")).await;
    let holder = shown(&client, "job").await;
    waiter.send(&["BLPOP", "lock-signal:job", "0"]).unwrap();
    until("it waits", async || blocked(&server) == 1).await;
    assert!(client.break_grant("job", &holder, "it is stuck").await.unwrap());
    assert_eq!(waiter.answer().unwrap().items().len(), 2, "no release signalled");
    assert_eq!(soon(guard.lost()).await, Loss::Broken);
    acquired(acquiring(&client, "other")).await.release().await.unwrap();
    assert!(number(&server, &["PTTL", "lock-signal:other"]) <= 1_000);
}

fn blocked(server: &Server) -> i64 {
    server.info("blocked_clients").unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_counter_next_to_the_lock_counts_each_new_acquisition_of_ours_and_of_others() {
    /// How bsm/redislock takes a lock with a FenceKey: the counter is raised where the key was absent.
    const OBTAIN: &str = "if redis.call('MSETNX',KEYS[1],ARGV[1])==1 then redis.call('PEXPIRE',KEYS[1],ARGV[2]) return redis.call('INCR',KEYS[2]) end return 0";
    let server = server(Settings::default());
    let url = format!("redis://{}?layout=plain&fence=:fence", server.address());
    let client = client(&url, 60_000).await;
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let guard = acquired(acquiring(&client, "job")).await;
        assert!(guard.reenter().unwrap().token() == guard.token(), "a re-entry is no acquisition");
        assert_eq!(shown(&client, "job").await.grant.unwrap().token, guard.token());
        tokens.push(guard.token().expect("there is a token").get());
        guard.release().await.unwrap();
        let theirs = number(&server, &["EVAL", OBTAIN, "2", "job", "job:fence", "theirs", "60000"]);
        tokens.push(u64::try_from(theirs).unwrap());
        // A try that is refused counts nothing.
        assert!(client.mutex("job").unwrap().try_acquire().await.is_err());
        server.ask(&["DEL", "job"]).unwrap();
    }
    assert_eq!(tokens, [1, 2, 3, 4]);
    assert_eq!(client.capability().tokens, fencelock::capability::Tokens::Counter);
    server.ask(&["SET", "page:fence", "no number"]).unwrap();
    client.mutex("page").unwrap().try_acquire().await.expect_err("it cannot be counted");
    assert_eq!(number(&server, &["EXISTS", "page"]), 0, "it was taken without a token");
    server.ask(&["SET", "page", "theirs", "PX", "60000"]).unwrap();
    assert!(shown(&client, "page").await.grant.unwrap().token.is_none(), "what counts nothing is no counter");
}

#[tokio::test]
async fn a_name_whose_key_is_a_counter_is_refused_and_no_counter_is_listed() {
    let server = server(Settings::default());
    for prefix in ["", "&prefix=app:"] {
        let url = format!("redis://{}?layout=plain&fence=:fence{prefix}", server.address());
        let client = client(&url, 60_000).await;
        let guard = acquired(acquiring(&client, "job")).await;
        let (counter, job) = (Name::new("job:fence").unwrap(), Name::new("job").unwrap());
        let holder = shown(&client, "job").await;
        for error in [
            client.mutex("job:fence").unwrap().try_acquire().await.expect_err("it is a counter"),
            client.queue(&counter).await.expect_err("it is a counter"),
            client.break_grant(&counter, &holder, "it is stuck").await.expect_err("it is a counter"),
        ] {
            assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::InvalidName, false), "{error}");
            assert!(error.to_string().contains("`fence`") && error.to_string().contains("job:fence"), "{error}");
        }
        assert_eq!(client.names("", None, 10).await.unwrap(), [job]);
        guard.release().await.unwrap();
    }
    // The counter counts two acquisitions, and has not changed otherwise.
    assert_eq!([number(&server, &["INCR", "job:fence"]), number(&server, &["INCR", "app:job:fence"])], [2, 2]);
}

#[tokio::test]
async fn a_counter_that_counts_nothing_is_named_and_no_lock_is_taken() {
    let server = server(Settings::default());
    for (layout, counter) in [("plain&fence=:fence", "job:fence"), ("redisson-fenced", "redisson_lock_token:{job}")] {
        let client = client(&format!("redis://{}?layout={layout}", server.address()), 60_000).await;
        let odd: [(&[&str], &str); 3] = [
            (&["SET", counter, "text"], "not an integer"),
            (&["SET", counter, "9223372036854775807"], "would overflow"),
            (&["HSET", counter, "a", "b"], "a hash"),
        ];
        for (command, why) in odd {
            server.ask(command).unwrap();
            let error = client.mutex("job").unwrap().try_acquire().await.expect_err("there is no token for it");
            assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Exhausted, false), "{layout}: {error}");
            let said = error.to_string();
            assert!(said.contains("the counter of the lock") && said.contains(why), "{layout}: {said}");
            assert_eq!(number(&server, &["EXISTS", "job"]), 0, "{layout}: it was taken without a token");
            server.ask(&["DEL", counter]).unwrap();
        }
    }
}

#[tokio::test]
async fn an_empty_value_is_broken_as_any_other() {
    let server = server(Settings::default());
    let client = client(&format!("redis://{}?layout=plain", server.address()), 60_000).await;
    server.ask(&["SET", "job", ""]).unwrap();
    let (job, holder) = (Name::new("job").unwrap(), shown(&client, "job").await);
    assert!(client.break_grant(&job, &holder, "it is stuck").await.unwrap());
    assert_eq!(number(&server, &["EXISTS", "job"]), 0);
}

#[tokio::test]
async fn where_records_of_breaks_should_be_no_lock_is_taken_and_other_keys_hide_no_holder() {
    let server = server(Settings::default());
    for (layout, held) in [("plain", &["SET", "job", "theirs"][..]), ("redisson", &["HSET", "job", "theirs:1", "1"])] {
        let client = client(&format!("redis://{}?layout={layout}", server.address()), 60_000).await;
        let (job, records) = (Name::new("job").unwrap(), "fencelock:breaks:job");
        let error = client.mutex(records).unwrap().try_acquire().await.expect_err("records are there");
        assert_eq!(error.kind(), ErrorKind::InvalidName, "{error}");
        server.ask(held).unwrap();
        server.ask(&["SET", records, "something else"]).unwrap();
        let holder = shown(&client, "job").await;
        assert_eq!(client.breaks(&job).await.unwrap(), []);
        let error = client.break_grant(&job, &holder, "it is stuck").await.expect_err("it cannot be recorded");
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Layout, false), "{error}");
        assert!(error.to_string().contains("`fencelock:breaks:`"), "{error}");
        assert_eq!(number(&server, &["EXISTS", "job"]), 1, "{layout}: it was broken without a record");
        server.ask(&["DEL", "job", records]).unwrap();
    }
}

#[tokio::test]
async fn an_answer_that_is_lost_is_looked_up_with_the_token_that_it_had() {
    let server = server(Settings::default());
    let proxy = Proxy::start(server.address()).unwrap();
    let client = client(&format!("redis://{}?layout=plain&fence=:fence", proxy.address()), 60_000).await;
    for (bytes, token) in [(0, 1), (1, 2), (3, 3)] {
        let before = proxy.cuts();
        proxy.cut_after(bytes, Way::Down);
        let guard = acquired(acquiring(&client, "job")).await;
        until("an answer is cut", async || proxy.cuts() > before).await;
        assert_eq!(guard.token().unwrap().get(), token, "after {bytes} bytes");
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_shown_string_has_its_ttl_and_without_one_the_note_that_it_may_be_no_lock() {
    let server = server(Settings::default());
    let client = client(&format!("redis://{}?layout=plain", server.address()), 60_000).await;
    server.ask(&["SET", "job", "theirs", "PX", "60000"]).unwrap();
    server.ask(&["SET", "data", "a page of text"]).unwrap();
    let Expiry::In(left) = shown(&client, "job").await.expiry else { panic!("it has a ttl") };
    assert!(left <= Duration::from_secs(60), "{left:?}");
    let data = shown(&client, "data").await;
    assert_eq!(data.expiry, Expiry::Never);
    assert!(data.foreign.unwrap().what.contains("no lock at all"), "{data:?}");
    let guard = acquired(acquiring(&client, "ours")).await;
    assert!(matches!(shown(&client, "ours").await.expiry, Expiry::In(_)));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_user_that_may_not_touch_the_records_of_breaks_gets_that_error() {
    let server = server(Settings::default());
    server.ask(&["ACL", "SETUSER", "app", "on", ">secret", "~job", "&*", "+@all"]).unwrap();
    let client = client(&format!("redis://app:secret@{}?layout=plain", server.address()), 60_000).await;
    let guard = acquired(acquiring(&client, "job")).await;
    let error = soon(client.breaks("job")).await.expect_err("it may not");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("fencelock:breaks:*"), "{error}");
    assert!(!error.to_string().contains("SUBSCRIBE"), "{error}");
    guard.release().await.unwrap();
    // The error names the lock once.
    let error = soon(client.mutex("other").unwrap().acquire()).await.expect_err("it may not");
    assert_eq!(error.to_string().matches("name other").count(), 1, "{error}");
    server.ask(&["HSET", "job", "field", "1"]).unwrap();
    let error = soon(client.mutex("job").unwrap().acquire()).await.expect_err("it is a hash");
    assert_eq!(error.to_string().matches("name job").count(), 1, "{error}");
}

#[tokio::test]
async fn the_reason_of_a_break_is_reported_although_the_first_look_for_it_is_lost() {
    let server = server(Settings::default());
    let proxy = Proxy::start(server.address()).unwrap();
    let client = client(&format!("redis://{}?layout=plain", proxy.address()), 30_000).await;
    let other = crate::lab::client(&format!("redis://{}?layout=plain", server.address()), 60_000).await;
    let guard = acquired(acquiring(&client, "job")).await;
    let job = Name::new("job").unwrap();
    let holder = shown(&other, "job").await;
    // The next renewal's reply, that the key is gone, arrives. The reply after it is cut off.
    let before = proxy.cuts();
    let gone = "*1\r\n:0\r\n";
    proxy.cut_after(gone.len() as u64, Way::Down);
    assert!(other.break_grant(&job, &holder, "it is stuck").await.unwrap());
    assert_eq!(soon(guard.lost()).await, Loss::Broken);
    assert_eq!(guard.break_reason(), Some("it is stuck"));
    assert_eq!(proxy.cuts(), before + 1, "no answer was cut off");
    assert!(matches!(server.ask(&["EXISTS", "job"]).unwrap(), Reply::Int(0)));
}
