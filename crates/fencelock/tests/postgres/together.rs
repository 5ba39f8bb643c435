//! Requests of one session that go together.

use fencelock_testbed::Proxy;
use fencelock_testbed::postgres::KIND;

use crate::lab::{LONG, acquire, acquiring, client, connection, database, soon, until, with};

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

#[tokio::test]
async fn connections_that_are_cut_or_ended_in_the_middle_of_batches_cost_no_lock() {
    let (direct, name) = database();
    let proxy = Proxy::start(KIND.shared().address()).unwrap();
    let one = client(&format!("postgres://fencelock:secret@{}/{name}", proxy.address()), LONG).await;
    for names in [64, 3] {
        any::cycles(&one, names, 10, 100, async || proxy.reset()).await;
    }
    let user = connection(&direct).await;
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'fencelock'";
    any::cycles(&one, 64, 10, 100, async || user.batch_execute(end).await.unwrap()).await;
}

#[tokio::test]
async fn while_a_transaction_keeps_one_bucket_tasks_of_other_names_get_their_locks() {
    let (url, _) = database();
    let (one, mut user) = (client(&url, 6_000).await, connection(&url).await);
    let transaction = user.transaction().await.unwrap();
    transaction.execute(BUCKET, &[&"stuck"]).await.unwrap();
    any::others_get_their_locks(&one, "stuck", async || transaction.rollback().await.unwrap()).await;
}

#[tokio::test]
async fn requests_that_arrive_while_a_call_is_on_its_way_go_in_one_call_that_no_limit_of_statements_ends() {
    let (url, name) = database();
    let limit = format!("ALTER DATABASE {name} SET statement_timeout = '100ms'");
    connection(&url).await.batch_execute(&limit).await.unwrap();
    let one = any::client_on_this_runtime(&with(&url, &format!("ttl_ms={LONG}"))).await;
    let (mut user, mut other) = (connection(&url).await, connection(&url).await);
    acquire(&one, "job").await.release().await.unwrap();
    let waits = async |call: &str| {
        let asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'fencelock' AND wait_event_type = 'Lock' \
            AND query LIKE $1 AND query_start < clock_timestamp() - interval '300 ms'";
        let admin = connection(&with(&url, "options=-c%20statement_timeout%3D0")).await;
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
