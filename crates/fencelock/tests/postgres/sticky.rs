//! Sticky locks on real servers.

use std::time::Duration;

use fencelock_testbed::postgres::Settings;

use crate::lab::{LONG, client, connection, database, server, soon, until};

#[path = "../sticky/mod.rs"]
mod any;

#[tokio::test]
async fn a_sticky_lock_is_released_to_a_waiter_of_another_client() {
    let (url, _) = database();
    any::is_released_to_a_waiter_of_another_client(&client(&url, LONG).await, &client(&url, LONG).await).await;
}

#[tokio::test]
async fn one_look_is_for_all_locks_that_a_client_keeps() {
    let own = server(Settings::default());
    own.sql("postgres", "ALTER ROLE fencelock SET track_functions = 'all'").unwrap();
    let (one, other, user) =
        (client(&own.url(), 60_000).await, client(&own.url(), 60_000).await, connection(&own.url()).await);
    for lock in 0..40 {
        let kept = one.mutex(format!("kept/{lock}")).unwrap().sticky(Duration::from_secs(3600));
        soon(kept.acquire()).await.unwrap().release().await.unwrap();
    }
    let calls = async |function: &str| {
        let asked = "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_user_functions WHERE funcname = $1";
        user.query_one(asked, &[&function]).await.unwrap().get::<_, i64>(0)
    };
    until("the client looked several times", async || calls("waited_for").await >= 10).await;
    assert!(calls("waited_for").await < 200 && calls("contention").await == 0);
    drop(soon(other.mutex("kept/7").unwrap().acquire()).await.unwrap());
    assert_eq!(other.queue("kept/8").await.unwrap().contenders.len(), 1, "only what others want is given up");
}
