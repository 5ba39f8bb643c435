//! `liveness=connection`, where the network is cut, a process of the server is killed, or requests are counted by the second.

use std::process::Command;
use std::time::{Duration, Instant};

use fencelock::Loss;
use fencelock::postgres::HOLD;
use fencelock_testbed::postgres::{KIND, Settings};
use fencelock_testbed::{Proxy, Way};

use super::lab::{
    LONG, acquire, acquiring, bound, client, connection, database, queued, server, soon, until, until_queued,
};

/// No byte says that the connection is over: only time does.
#[tokio::test]
async fn a_network_that_is_cut_silently_costs_the_lock_no_earlier_than_the_lease_ends() {
    const TTL: Duration = Duration::from_secs(5);
    let (url, _) = database();
    let proxy = Proxy::start(KIND.shared().address()).unwrap();
    let through = url.replace(&KIND.shared().address().to_string(), &proxy.address().to_string());
    let dying = bound(&through, TTL.as_millis() as u64).await;
    let other = bound(&url, LONG).await;
    let guard = acquire(&dying, "job").await;
    let waiting = acquiring(&other, "job");
    until_queued(&other, "job", 2).await;
    // No renewal from before this counts for longer than a ttl from here, and none from after it comes.
    let asked = "SELECT extract(epoch FROM expires - clock_timestamp())::float8 FROM fencelock.session WHERE ttl = interval '5 seconds'";
    proxy.hold(Way::Both);
    let cut = Instant::now();
    let left: f64 = connection(&url).await.query_one(asked, &[]).await.unwrap().get(0);
    let next = soon(waiting).await.unwrap().unwrap();
    let took = cut.elapsed();
    assert!(took.as_secs_f64() >= left, "granted after {took:?}, when the lease had {left} s left");
    assert!(matches!(soon(guard.lost()).await, Loss::Unconfirmed | Loss::Disconnected));
    next.release().await.unwrap();
}

/// The server ends all of its processes when one of them was killed.
#[tokio::test]
async fn one_killed_process_of_the_server_ends_all_such_sessions_and_no_other() {
    let own = server(Settings::default());
    let (one, other, leased) =
        (bound(&own.url(), LONG).await, bound(&own.url(), LONG).await, client(&own.url(), LONG).await);
    let (first, second, kept) =
        (acquire(&one, "one").await, acquire(&other, "other").await, acquire(&leased, "kept").await);
    let asked = "SELECT pid FROM pg_stat_activity WHERE application_name = 'fencelock' ORDER BY pid LIMIT 1";
    let victim = own.sql("postgres", asked).unwrap();
    assert!(Command::new("kill").args(["-9", victim.trim()]).status().unwrap().success());
    assert_eq!(soon(first.lost()).await, Loss::Disconnected);
    assert_eq!(soon(second.lost()).await, Loss::Disconnected);
    own.wait_until_serving().unwrap();
    for name in ["one", "other"] {
        soon(acquire(&leased, name)).await.release().await.unwrap();
    }
    kept.check().unwrap();
    assert_eq!(queued(&leased, "kept").await, 1);
    soon(kept.release()).await.unwrap();
}

/// A renewal, and a release that waits, go by connections of their own when the first one is kept waiting.
#[tokio::test]
async fn other_connections_of_the_holder_serve_its_session_while_the_first_one_lives() {
    let (url, _) = database();
    let one = bound(&url, 4000).await;
    let held = acquire(&one, "held").await;
    let guard = acquire(&one, "job").await;
    let foreign = connection(&url).await;
    foreign.batch_execute("BEGIN; LOCK TABLE fencelock.bucket IN EXCLUSIVE MODE").await.unwrap();
    let waiting: Vec<_> = (0..8).map(|number| acquiring(&one, &format!("job {number}"))).collect();
    let lost = tokio::time::timeout(Duration::from_secs(6), held.lost()).await;
    assert!(lost.is_err(), "the session was lost: {lost:?}");
    foreign.batch_execute("COMMIT").await.unwrap();
    for waiting in waiting {
        soon(waiting).await.unwrap().unwrap().release().await.unwrap();
    }
    let user = connection(&url).await;
    user.batch_execute("BEGIN").await.unwrap();
    user.execute(HOLD, &[&"job", &guard.token().unwrap().to_i64()]).await.unwrap();
    let releasing = tokio::spawn(guard.release());
    acquire(&one, "another").await.release().await.unwrap();
    assert!(!releasing.is_finished());
    user.batch_execute("COMMIT").await.unwrap();
    soon(releasing).await.unwrap().unwrap();
    held.release().await.unwrap();
}

/// Counted by the server, which tells of it with a delay of a second or so.
#[tokio::test]
async fn the_first_who_waits_asks_ten_times_a_second_whatever_it_waits_for_and_nobody_behind_it_does() {
    const NAMES: usize = 40;
    let own = server(Settings::default().with("track_functions = pl"));
    let (holder, next) = (bound(&own.url(), LONG).await, bound(&own.url(), LONG).await);
    let last = bound(&own.url(), LONG).await;
    let (mut guards, mut waiting) = (Vec::new(), Vec::new());
    for number in 0..NAMES {
        let name = format!("job {number}");
        guards.push(acquire(&holder, &name).await);
        waiting.push(acquiring(&next, &name));
        until_queued(&holder, &name, 2).await;
    }
    waiting.push(acquiring(&last, "job 0"));
    until_queued(&holder, "job 0", 3).await;
    let user = connection(&own.url()).await;
    let looks = async || -> i64 {
        let asked = "SELECT coalesce(sum(calls), 0)::int8 FROM pg_stat_user_functions WHERE schemaname = 'fencelock' AND funcname = 'look'";
        user.query_one(asked, &[]).await.unwrap().get(0)
    };
    let (before, start) = (looks().await, Instant::now());
    until("a hundred looks are told", async || looks().await >= before + 100).await;
    let per_second = (looks().await - before) as f64 / start.elapsed().as_secs_f64();
    assert!(per_second < 14.0, "{per_second} requests a second for {NAMES} names");
}
