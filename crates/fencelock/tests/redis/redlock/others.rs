//! Other clients, whose commands are given by hand here; and locks that are shown and broken.

use fencelock::inspect::Queue;
use fencelock::{Client, ErrorKind, Loss, Name};
use fencelock_testbed::redis::Reply;

use crate::lab::{PATIENCE, acquired, acquiring, soon, until};
use crate::masters::{Masters, busy, takes_ours};

/// How another client releases a lock: if the value is its own.
const RELEASE: &str = "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) else return 0 end";

#[tokio::test]
async fn a_holder_with_a_quorum_excludes_the_other_and_a_minority_excludes_no_client() {
    let masters = Masters::new(5);
    let client = masters.client(60_000).await;
    let guard = takes_ours(&client, "job").await;
    assert!(guard.token().is_none(), "there is no token");
    until("all masters have it", async || masters.having("job") == 5).await;
    for server in &masters.servers {
        assert_eq!(server.ask(&["SET", "job", "theirs", "NX", "PX", "60000"]).unwrap(), Reply::Nil);
        assert_eq!(server.ask(&["EVAL", RELEASE, "1", "job", "theirs"]).unwrap(), Reply::Int(0));
        assert!(server.ask(&["PTTL", "job"]).unwrap().number().unwrap() <= 60_000);
    }
    guard.release().await.unwrap();
    masters.until_free("job").await;

    masters.taken_by_another("job", [0, 1]);
    takes_ours(&client, "job").await.release().await.unwrap();
    // A release is done once a quorum has answered.
    until("only the other's are left", async || masters.having("job") == 2).await;
    masters.taken_by_another("job", [4]);
    // A try waits only briefly for replies, so it may not find the holder.
    until("the refusal names the holder", async || busy(&client, "job").await.to_string().contains("theirs")).await;
    let waits = acquiring(&client, "job");
    masters.freed_by_another("job");
    acquired(waits).await.release().await.unwrap();
    masters.until_free("job").await;
}

#[tokio::test]
async fn a_try_that_got_fewer_than_a_quorum_leaves_nothing_behind() {
    let masters = Masters::new(5);
    let client = masters.client(60_000).await;
    masters.taken_by_another("job", [0, 2, 4]);
    for _ in 0..5 {
        busy(&client, "job").await;
        // Before the refusal returns, the masters that granted have deleted the key, unless they are slow.
        until("only the others' are left", async || masters.having("job") == 3).await;
    }
    // A waiter tries again and again. The limit grows until one try is answered on a busy machine.
    let mut limit = std::time::Duration::from_millis(700);
    loop {
        let error = client.mutex("job").unwrap().acquire_within(limit).await.expect_err("it is held");
        if error.is_contention() {
            break;
        }
        assert!(error.is_retryable() && limit.as_secs() < 60, "{error}");
        limit *= 2;
    }
    until("only the others' are left", async || masters.having("job") == 3).await;
}

#[tokio::test]
async fn an_uncontended_cycle_is_two_requests_to_each_master() {
    let masters = Masters::new(3);
    let client = masters.client(60_000).await;
    let asked = || -> Vec<i64> { masters.servers.iter().map(crate::plain::asked).collect() };
    takes_ours(&client, "job").await.release().await.unwrap();
    masters.until_free("job").await;
    let before = asked();
    for _ in 0..20 {
        takes_ours(&client, "job").await.release().await.unwrap();
    }
    // The last one of three may be late with all of it.
    let done = || asked().into_iter().zip(&before).map(|(now, before)| now - before).collect::<Vec<_>>();
    until("each master has done its part", async || done().iter().all(|done| *done >= 40)).await;
    masters.until_free("job").await;
    // Renewals come on top, and what a busy machine makes us send again.
    assert!(done().iter().all(|done| *done < 60), "{:?} requests for 20 cycles", done());
}

#[tokio::test]
async fn holders_are_shown_by_quorum_and_keys_of_a_minority_as_strange() {
    let masters = Masters::new(5);
    let client = masters.client(60_000).await;
    let job = Name::new("job").unwrap();
    masters.taken_by_another("job", [0, 1]);
    // A look waits a moment for the slowest master, and no longer: on a busy machine the test looks again.
    let theirs_is_strange = |queue: &Queue| queue.strangers.len() == 1 && queue.strangers[0].contains("2 of 5");
    let queue = shown(&client, &job, theirs_is_strange).await;
    assert!(queue.contenders.is_empty(), "{queue:?}");
    until("nothing is listed", async || client.names("", None, 10).await.unwrap().is_empty()).await;
    let guard = takes_ours(&client, "job").await;
    let queue = shown(&client, &job, |queue| theirs_is_strange(queue) && queue.contenders.len() == 1).await;
    let holder = &queue.contenders[0];
    assert!(holder.grant.is_some() && holder.foreign.is_none(), "{queue:?}");
    until_listed(&client, &job).await;
    assert!(client.break_grant(&job, holder, "it is stuck").await.unwrap());
    assert_eq!(soon(guard.lost()).await, Loss::Broken);
    drop(guard);
    until("only the other's is left", async || masters.having("job") == 2).await;
    assert_eq!(client.breaks(&job).await.unwrap().len(), 1);
    // A client without a session looks, too.
    let looks =
        fencelock::Client::builder().session_when_needed(true).connect(&masters.url("rejoin_ms=0")).await.unwrap();
    shown(&looks, &job, theirs_is_strange).await;
}

/// Looks until `is_so` returns true.
async fn shown(client: &Client, name: &Name, is_so: impl Fn(&Queue) -> bool) -> Queue {
    let start = std::time::Instant::now();
    loop {
        let queue = client.queue(name).await;
        match &queue {
            Ok(shown) if is_so(shown) => return queue.unwrap(),
            _ => assert!(start.elapsed() < PATIENCE, "{queue:?}"),
        }
    }
}

/// Looks until the name, and no other one, is listed.
async fn until_listed(client: &Client, name: &Name) {
    let names = async || client.names("", None, 10).await.unwrap();
    until(&format!("{name} is listed"), async || names().await == std::slice::from_ref(name)).await;
}

/// Two clients without a ttl, each at one of three masters: no client can ever have a quorum.
#[tokio::test]
async fn keys_that_never_run_out_and_bar_every_client_are_shown_and_can_be_broken() {
    let masters = Masters::new(3);
    let client = crate::lab::client(&masters.url("rejoin_ms=0&prefix=shop:"), 60_000).await;
    let job = Name::new("job").unwrap();
    masters.servers[0].ask(&["SET", "shop:job", "one"]).unwrap();
    let counts = |queue: &Queue| (queue.contenders.len(), queue.strangers.len());
    // A key at one master of three bars no client.
    shown(&client, &job, |queue| counts(queue) == (0, 1)).await;
    masters.servers[1].ask(&["SET", "shop:job", "another"]).unwrap();
    busy(&client, "job").await;
    until("only those are there", async || masters.having("shop:job") == 2).await;
    let queue = shown(&client, &job, |queue| counts(queue) == (1, 1)).await;
    until_listed(&client, &job).await;
    assert!(client.break_grant(&job, &queue.contenders[0], "it is nobody's").await.unwrap());
    takes_ours(&client, "job").await.release().await.unwrap();
    until("the value that blocks no client is left", async || masters.having("shop:job") == 1).await;
}

#[tokio::test]
async fn of_keys_that_bar_every_client_one_is_shown_also_if_a_master_is_gone_or_a_key_has_another_type() {
    let masters = Masters::new(3);
    let client = masters.client(60_000).await;
    let (job, mixed) = (Name::new("job").unwrap(), Name::new("mixed").unwrap());
    masters.servers[0].ask(&["SET", "mixed", "one"]).unwrap();
    masters.servers[1].ask(&["HSET", "mixed", "uuid:1", "1"]).unwrap();
    let one_of_two = |queue: &Queue| (queue.contenders.len(), queue.strangers.len()) == (1, 1);
    let queue = shown(&client, &mixed, one_of_two).await;
    assert!(client.break_grant(&mixed, &queue.contenders[0], "it is nobody's").await.unwrap());
    takes_ours(&client, "mixed").await.release().await.unwrap();
    masters.servers[0].ask(&["SET", "job", "one"]).unwrap();
    masters.servers[1].ask(&["SET", "job", "another"]).unwrap();
    masters.servers[2].kill();
    shown(&client, &job, one_of_two).await;
}

#[tokio::test]
async fn a_key_of_another_type_at_a_quorum_is_another_kind_of_lock_and_at_a_minority_a_refusal() {
    let masters = Masters::new(3);
    let client = masters.client(60_000).await;
    masters.servers[0].ask(&["HSET", "job", "uuid:1", "1"]).unwrap();
    takes_ours(&client, "job").await.release().await.unwrap();
    until("ours is gone", async || masters.having("job") == 1).await;
    masters.servers[1].ask(&["HSET", "job", "uuid:1", "1"]).unwrap();
    // A try waits for a slow master for a moment only. Without the answer of that master, the lock is busy.
    until("a quorum says that it is another kind of lock", async || {
        let error = crate::masters::refused(&client, "job").await;
        assert!(matches!(error.kind(), ErrorKind::Busy | ErrorKind::Layout), "{error}");
        error.kind() == ErrorKind::Layout && error.to_string().contains("another kind of lock")
    })
    .await;
    until("ours is gone", async || masters.having("job") == 2).await;
}
