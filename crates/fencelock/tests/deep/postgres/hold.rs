//! `fencelock.hold` for longer than a short ttl.

use std::time::Duration;

use fencelock::postgres::HOLD;

use super::lab::{acquire, client, connection, database};

/// Renewals of a session never wait for a transaction that holds one of its locks.
#[tokio::test]
async fn a_lock_that_a_transaction_holds_for_longer_than_the_ttl_is_not_lost() {
    let (url, _) = database();
    let one = client(&url, 4000).await;
    let guard = acquire(&one, "job").await;
    let user = connection(&url).await;
    user.batch_execute("BEGIN").await.unwrap();
    user.execute(HOLD, &[&"job", &guard.token().unwrap().to_i64()]).await.unwrap();
    let lost = tokio::time::timeout(Duration::from_secs(6), guard.lost()).await;
    assert!(lost.is_err(), "the lock was lost: {lost:?}");
    user.batch_execute("COMMIT").await.unwrap();
    guard.release().await.unwrap();
}
