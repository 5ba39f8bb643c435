//! Requests of one session that go together.

use std::time::{Duration, SystemTime};

use fencelock::{Client, Retry};
use fencelock_testbed::postgres::KIND;
use fencelock_testbed::{Proxy, Way};

use crate::lab::{AS_CLIENTS, LONG, PATIENCE, acquire, acquiring, client, connection, database, soon, until, with};

#[path = "../batches/mod.rs"]
mod any;

const BUCKET: &str = "SELECT FROM fencelock.bucket WHERE bucket = fencelock._home($1) FOR UPDATE";

#[tokio::test]
async fn sixty_four_tasks_over_sixty_four_names_and_over_one_never_share_a_lock() {
    let (url, _) = database();
    let one = client(&url, LONG).await;
    for (names, times) in [(64, 20), (1, 5), (7, 10)] {
        any::cycles(&one, names, times, usize::MAX, async || {}).await;
    }
}

/// The URL of a new database, and a proxy to it that delays all bytes by `each_way_ms`. Behind 2 ms each way, a session may have
/// four calls on their way.
fn behind(each_way_ms: u64) -> (String, Proxy, String) {
    let (direct, name) = database();
    let proxy = Proxy::start(KIND.shared().address()).unwrap();
    proxy.delay(Duration::from_millis(each_way_ms));
    let url = format!("postgres://fencelock:secret@{}/{name}", proxy.address());
    (direct, proxy, url)
}

#[tokio::test]
async fn connections_that_are_cut_or_ended_in_the_middle_of_batches_cost_no_lock() {
    for each_way_ms in [0, 2] {
        let (direct, proxy, url) = behind(each_way_ms);
        let one = client(&url, LONG).await;
        for names in [64, 3] {
            any::cycles(&one, names, 10, 100, async || proxy.reset()).await;
        }
        let answer_is_lost = async || proxy.cut_after(100, Way::Down);
        any::cycles(&one, 64, 10, 100, answer_is_lost).await;
        let user = connection(&direct).await;
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'fencelock'";
        any::cycles(&one, 64, 10, 100, async || user.batch_execute(end).await.unwrap()).await;
    }
}

#[tokio::test]
async fn behind_a_long_way_the_server_receives_a_request_before_the_client_has_answers_to_earlier_ones() {
    const NAMES: i64 = 4;
    let (direct, proxy, url) = behind(2);
    let (one, user) = (client(&url, LONG).await, connection(&direct).await);
    acquire(&one, "job").await.release().await.unwrap();
    let places = async |name: &str| {
        let asked = "SELECT count(*) FROM fencelock.place WHERE name LIKE $1";
        user.query_one(asked, &[&name]).await.unwrap().get::<_, i64>(0)
    };
    for answers_are_lost in [false, true] {
        // The client gives up a connection without an answer, so a machine that stands still may need another try.
        until("all requests share a connection", async || {
            let connections = proxy.connections();
            proxy.hold_existing(Way::Down);
            let mut waiting = Vec::new();
            for number in 0..NAMES {
                let name = format!("job/{number}");
                waiting.push(acquiring(&one, &name));
                until("the server has the request", async || places(&name).await == 1).await;
            }
            let is_one = proxy.connections() == connections;
            if answers_are_lost {
                proxy.reset();
            }
            proxy.release();
            for acquired in waiting {
                match soon(acquired).await.unwrap() {
                    Ok(guard) => soon(guard.release()).await.unwrap(),
                    Err(error) => assert!(error.is_retryable(), "{error}"),
                }
            }
            until("every place is given up", async || places("job/%").await == 0).await;
            is_one
        })
        .await;
    }
}

/// A withdrawal raises the epoch of the session, which refuses requests with an older one.
#[tokio::test]
async fn behind_a_long_way_requests_that_are_given_up_leave_nothing_and_refuse_no_other() {
    let (direct, _proxy, url) = behind(2);
    let (one, user) = (client(&url, LONG).await, connection(&direct).await);
    let give_up = async || {
        let abandoned: Vec<_> = (0..16).map(|number| acquiring(&one, &format!("job/{number}"))).collect();
        tokio::task::yield_now().await;
        abandoned.iter().for_each(tokio::task::JoinHandle::abort);
    };
    any::cycles(&one, 64, 10, 20, give_up).await;
    let places = "SELECT count(*) FROM fencelock.place";
    until("no place is left", async || user.query_one(places, &[]).await.unwrap().get::<_, i64>(0) == 0).await;
}

#[tokio::test]
async fn while_a_transaction_keeps_one_bucket_tasks_of_other_names_get_their_locks() {
    for each_way_ms in [0, 2] {
        let (direct, _proxy, url) = behind(each_way_ms);
        let (one, mut user) = (client(&url, 60_000).await, connection(&direct).await);
        let transaction = user.transaction().await.unwrap();
        transaction.execute(BUCKET, &[&"stuck"]).await.unwrap();
        any::others_get_their_locks(&one, "stuck", async || transaction.rollback().await.unwrap()).await;
    }
}

/// The request may still be on its way, and reach the server after the lock was released.
#[tokio::test]
async fn a_request_that_was_given_up_on_a_connection_of_its_own_takes_no_effect_later() {
    let (direct, proxy, url) = behind(0);
    let (mut user, admin) = (connection(&direct).await, connection(&direct).await);
    let patient = Client::builder().retry(Retry::default().give_up_after(PATIENCE));
    let one = soon(patient.connect(with(&url, &format!("ttl_ms={LONG}&request_deadline_ms=3000")))).await.unwrap();
    let clients = "FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'fencelock'";
    let known = admin.query_one(&format!("SELECT array_agg(pid) {clients}"), &[]).await.unwrap();
    let known: Vec<i32> = known.get(0);
    let transaction = user.transaction().await.unwrap();
    transaction.execute(BUCKET, &[&"job"]).await.unwrap();
    let guard = acquiring(&one, "job");
    let waits =
        format!("SELECT pid {clients} AND pid <> ALL ($1) AND wait_event_type = 'Lock' AND query LIKE '%.enter(%'");
    let mut apart = 0;
    until("a request waits on a connection of its own", async || {
        let found = admin.query_opt(&waits, &[&known]).await.unwrap();
        found.inspect(|row| apart = row.get(0)).is_some()
    })
    .await;
    proxy.hold_existing(Way::Down);
    let epoch: i64 = admin.query_one("SELECT epoch FROM fencelock.session", &[]).await.unwrap().get(0);
    let ended = "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $1";
    until("it is given up", async || admin.query_one(ended, &[&apart]).await.unwrap().get(0)).await;
    proxy.release();
    transaction.rollback().await.unwrap();
    let guard = soon(guard).await.unwrap().unwrap();
    let place = "SELECT session, client, number FROM fencelock.place";
    let [session, client, number] =
        admin.query_one(place, &[]).await.map(|row| [0, 1, 2].map(|at| row.get::<_, i64>(at))).unwrap();
    soon(guard.release()).await.unwrap();
    admin.batch_execute(AS_CLIENTS).await.unwrap();
    let late =
        format!("SELECT fencelock.enter({session}, {epoch}, 'job', {client}, {number}, 1, 1, true, false, NULL)");
    let answer: Vec<i64> = admin.query_one(&late, &[]).await.unwrap().get(0);
    assert_eq!(answer[0], 4, "it is refused for its epoch: {answer:?}");
    let places = "SELECT count(*) FROM fencelock.place";
    assert_eq!(admin.query_one(places, &[]).await.unwrap().get::<_, i64>(0), 0);
}

/// That connection may be the first one to a server that was promoted meanwhile, and that lacks grants.
#[tokio::test]
async fn a_request_on_a_connection_of_its_own_is_granted_nothing_by_a_server_with_another_memory() {
    let (url, _) = database();
    let (_long, one) = (client(&url, LONG).await, client(&url, 8_000).await);
    let (mut user, admin) = (connection(&url).await, connection(&url).await);
    let transaction = user.transaction().await.unwrap();
    transaction.execute(BUCKET, &[&"job"]).await.unwrap();
    let waiting = acquiring(&one, "job");
    // As after a promotion, which the connection of the session did not notice.
    let promoted = "UPDATE fencelock.layout SET mark = 'another' RETURNING clock_timestamp()";
    let promoted: SystemTime = admin.query_one(promoted, &[]).await.unwrap().get(0);
    let waits = "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'fencelock' \
        AND wait_event_type = 'Lock' AND query LIKE '%.enter(%' AND backend_start > $1";
    until("a request waits on a connection of its own", async || {
        admin.query_one(waits, &[&promoted]).await.unwrap().get(0)
    })
    .await;
    transaction.rollback().await.unwrap();
    let mut is_granted = None;
    until("the request has a place", async || {
        let place = admin.query_opt("SELECT granted FROM fencelock.place", &[]).await.unwrap();
        is_granted = place.map(|row| row.get::<_, bool>(0));
        is_granted.is_some()
    })
    .await;
    assert_eq!((is_granted, waiting.is_finished()), (Some(false), false));
}

#[tokio::test]
async fn requests_that_arrive_while_a_call_is_on_its_way_go_in_one_call_that_no_limit_of_statements_ends() {
    let (url, name) = database();
    let limit = format!("ALTER DATABASE {name} SET statement_timeout = '100ms'");
    connection(&url).await.batch_execute(&limit).await.unwrap();
    let one = any::client_on_this_runtime(&with(&url, &format!("ttl_ms={LONG}"))).await;
    let unlimited = with(&url, "options=-c%20statement_timeout%3D0");
    let (mut user, mut other) = (connection(&unlimited).await, connection(&unlimited).await);
    acquire(&one, "job").await.release().await.unwrap();
    let waits = async |call: &str| {
        let asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'fencelock' AND wait_event_type = 'Lock' \
            AND query LIKE $1 AND query_start < clock_timestamp() - interval '300 ms'";
        let admin = connection(&unlimited).await;
        until(call, async || admin.query_one(asked, &[&call]).await.unwrap().get::<_, i64>(0) == 1).await;
    };
    let (first, second) = (user.transaction().await.unwrap(), other.transaction().await.unwrap());
    first.execute(BUCKET, &[&"job"]).await.unwrap();
    second.execute(BUCKET, &[&"job/9"]).await.unwrap();
    let alone = acquiring(&one, "job");
    waits("%.enter(%").await;
    let together: Vec<_> = (0..20).map(|number| acquiring(&one, &format!("job/{number}"))).collect();
    any::all_are_sent().await;
    first.rollback().await.unwrap();
    drop(soon(alone).await.unwrap().unwrap());
    waits("%.batch(%").await;
    second.rollback().await.unwrap();
    for acquired in together {
        soon(acquired).await.unwrap().unwrap().release().await.unwrap();
    }
}
