//! Sticky locks on any store: a waiter elsewhere gets a kept lock, and a lock that its client takes over and over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fencelock::{Client, Guard, Mutex};

/// Longer than any wait of these tests.
const KEEP: Duration = Duration::from_secs(3600);
const PATIENCE: Duration = Duration::from_secs(180);

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it has to come")
}

async fn held(lock: &Mutex) -> Guard {
    soon(lock.acquire()).await.unwrap()
}

async fn over_and_over(lock: Mutex, is_over: Arc<AtomicBool>) {
    while !is_over.load(Ordering::Relaxed) {
        held(&lock).await.release().await.unwrap();
        tokio::task::yield_now().await;
    }
}

/// `one` and `other` are clients of the same store.
pub(crate) async fn is_released_to_a_waiter_of_another_client(one: &Client, other: &Client) {
    let sticky = one.mutex("sticky").unwrap().sticky(KEEP);
    let plain = other.mutex("sticky").unwrap();
    let first = held(&sticky).await;
    let token = first.token();
    first.release().await.unwrap();
    let again = held(&sticky).await;
    assert_eq!(again.token(), token, "it was kept");
    again.release().await.unwrap();
    let seen = other.queue("sticky").await.unwrap();
    assert_eq!(seen.contenders[0].purpose.as_deref(), Some("(sticky, kept for 3600s)"));
    for round in 0..3 {
        let guard = held(&plain).await;
        assert!(guard.token() > token, "round {round}");
        guard.release().await.unwrap();
        held(&sticky).await.release().await.unwrap();
    }
    // Waiters from before the grant of the sticky lock, and waiters that arrive later.
    let is_over = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = (0..3).map(|_| tokio::spawn(over_and_over(sticky.clone(), Arc::clone(&is_over)))).collect();
    for _ in 0..5 {
        held(&plain).await.release().await.unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    for task in busy {
        soon(task).await.unwrap();
    }
    soon(one.close()).await.unwrap();
    held(&plain).await.release().await.unwrap();
}
