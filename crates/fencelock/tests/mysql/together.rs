//! Requests of one session that go together.

use fencelock_testbed::Proxy;
use fencelock_testbed::mysql::KIND;
use mysql_async::prelude::Queryable;

use crate::lab::{client, connection, database};

#[path = "../batches/mod.rs"]
mod any;

/// Far longer than anything here is waited for.
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
    let (one, mut user) = (client(&url, 6_000).await, connection(&url).await);
    user.query_drop("BEGIN").await.unwrap();
    let bucket = "SELECT * FROM fencelock_bucket WHERE b = CONV(LEFT(SHA2('stuck', 256), 3), 16, 10) FOR UPDATE";
    user.query_drop(bucket).await.unwrap();
    any::others_get_their_locks(&one, "stuck", async || user.query_drop("ROLLBACK").await.unwrap()).await;
}
