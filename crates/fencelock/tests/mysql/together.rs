//! Requests of one session that go together.

use fencelock_testbed::Proxy;
use fencelock_testbed::mysql::{KIND, Server, Settings};
use mysql_async::prelude::Queryable;

use crate::lab::{STATEMENTS, acquire, acquiring, client, connection, database, soon, transactions, until, with};

#[path = "../batches/mod.rs"]
mod any;

/// Far longer than any wait here.
const LONG: u64 = 3_600_000;

#[tokio::test]
async fn sixty_four_tasks_over_sixty_four_names_and_over_one_never_share_a_lock() {
    let one = client(&database(), LONG).await;
    for (names, times) in [(64, 20), (1, 5), (7, 10)] {
        any::cycles(&one, names, times, usize::MAX, async || {}).await;
    }
}

#[tokio::test]
async fn connections_that_are_cut_or_ended_in_the_middle_of_batches_cost_no_lock() {
    let direct = database();
    let proxy = Proxy::start(KIND.shared().address()).unwrap();
    let url = direct.replace(&KIND.shared().address().to_string(), &proxy.address().to_string());
    let one = client(&url, LONG).await;
    for names in [64, 3] {
        any::cycles(&one, names, 10, 100, async || proxy.reset()).await;
    }
    let ended = "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()";
    let end = async || {
        let mut user = connection(&direct).await;
        for id in user.query::<u64, _>(ended).await.unwrap() {
            // The connection may have ended meanwhile.
            let _ = user.query_drop(format!("KILL {id}")).await;
        }
    };
    any::cycles(&one, 64, 10, 100, end).await;
}

#[tokio::test]
async fn while_a_transaction_keeps_one_bucket_tasks_of_other_names_get_their_locks() {
    let url = database();
    let (one, mut user) = (client(&url, 60_000).await, connection(&url).await);
    user.query_drop("BEGIN").await.unwrap();
    let bucket = "SELECT * FROM fencelock_bucket WHERE b = CONV(LEFT(SHA2('stuck', 256), 3), 16, 10) FOR UPDATE";
    user.query_drop(bucket).await.unwrap();
    any::others_get_their_locks(&one, "stuck", async || user.query_drop("ROLLBACK").await.unwrap()).await;
}

#[tokio::test]
async fn requests_that_arrive_while_a_call_is_on_its_way_go_in_one_call_that_no_limit_of_statements_ends() {
    let server = Server::start(Settings::default().with(STATEMENTS[0]).with(STATEMENTS[1])).unwrap();
    let url = server.url();
    let one = any::client_on_this_runtime(&with(&url, &format!("ttl_ms={LONG}"))).await;
    let (mut first, mut second, mut admin) = (connection(&url).await, connection(&url).await, connection(&url).await);
    acquire(&one, "job").await.release().await.unwrap();
    let mut root = connection(&format!("mysql://root@{}/fencelock", server.address())).await;
    let bucket = "SELECT * FROM fencelock_bucket WHERE b = CONV(LEFT(SHA2(?, 256), 3), 16, 10) FOR UPDATE";
    for (user, name) in [(&mut first, "job"), (&mut second, "job/9")] {
        user.query_drop("BEGIN").await.unwrap();
        user.exec_drop(bucket, (name,)).await.unwrap();
    }
    let alone = acquiring(&one, "job");
    until("one waits", async || transactions(&mut root, "trx_state = 'LOCK WAIT'").await == 1).await;
    let together: Vec<_> = (0..20).map(|number| acquiring(&one, &format!("job/{number}"))).collect();
    any::all_are_sent().await;
    first.query_drop("ROLLBACK").await.unwrap();
    drop(soon(alone).await.unwrap().unwrap());
    let long = "trx_state = 'LOCK WAIT' AND trx_wait_started < NOW() - INTERVAL 2 SECOND";
    until("the batch waits for longer", async || transactions(&mut root, long).await == 1).await;
    let places = "SELECT COUNT(*) FROM fencelock_place WHERE name LIKE 'job/%'";
    assert_eq!(admin.query_first::<u64, _>(places).await.unwrap(), Some(0), "a request did not go with the others");
    second.query_drop("ROLLBACK").await.unwrap();
    for acquired in together {
        soon(acquired).await.unwrap().unwrap().release().await.unwrap();
    }
}

/// That connection may be the first one to a server that took over meanwhile, and that lacks grants.
#[tokio::test]
async fn a_request_on_a_connection_of_its_own_is_granted_nothing_by_a_server_with_another_memory() {
    let url = database();
    let (_long, one) = (client(&url, LONG).await, client(&url, 8_000).await);
    let (mut user, mut admin) = (connection(&url).await, connection(&url).await);
    user.query_drop("BEGIN").await.unwrap();
    let bucket = "SELECT * FROM fencelock_bucket WHERE b = CONV(LEFT(SHA2('job', 256), 3), 16, 10) FOR UPDATE";
    user.query_drop(bucket).await.unwrap();
    let waiting = acquiring(&one, "job");
    // As after a failover, which the connection of the session did not notice.
    admin.query_drop("UPDATE fencelock_layout SET mark = 'another server'").await.unwrap();
    let newest = "SELECT MAX(id) FROM information_schema.processlist WHERE db = DATABASE()";
    let newest: u64 = admin.query_first(newest).await.unwrap().unwrap();
    let waits = format!(
        "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND id > {newest} AND info LIKE 'CALL fencelock_enter%'"
    );
    until("a request waits on a connection of its own", async || {
        admin.query_first::<u64, _>(&waits).await.unwrap() != Some(0)
    })
    .await;
    user.query_drop("ROLLBACK").await.unwrap();
    let mut is_granted = None;
    until("the request has a place", async || {
        is_granted = admin.query_first::<bool, _>("SELECT granted FROM fencelock_place").await.unwrap();
        is_granted.is_some()
    })
    .await;
    assert_eq!((is_granted, waiting.is_finished()), (Some(false), false));
}

/// The server ends a connection on which it receives more.
#[tokio::test]
async fn requests_that_are_too_large_for_one_call_go_one_by_one() {
    let server = Server::start(Settings::default()).unwrap();
    acquire(&client(&server.url(), LONG).await, "job").await.release().await.unwrap();
    server.sql("SET GLOBAL max_allowed_packet = 3072").unwrap();
    let one = client(&server.url(), LONG).await;
    let mut admin = connection(&server.url()).await;
    let connections = "SELECT MAX(id) FROM information_schema.processlist WHERE id <> CONNECTION_ID()";
    let before: Option<u64> = admin.query_first(connections).await.unwrap();
    any::cycles(&one, 64, 5, usize::MAX, async || {}).await;
    assert_eq!(admin.query_first::<u64, _>(connections).await.unwrap(), before, "the connection was lost");
}
