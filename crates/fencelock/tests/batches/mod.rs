//! Sixty-four tasks of one client on any store over a database: their requests go together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fencelock::{Client, Io};
use tokio::task::JoinSet;

const TASKS: usize = 64;
const PATIENCE: Duration = Duration::from_secs(180);

#[derive(Default)]
struct Lock {
    inside: AtomicUsize,
    token: AtomicU64,
}

/// Each task takes its lock `times` times, over `names` names, while `trouble` follows each `every` grants. No lock has two holders, tokens
/// rise, and another try helps with every error.
pub(crate) async fn cycles(client: &Client, names: usize, times: usize, every: usize, trouble: impl AsyncFn()) {
    let (locks, granted) = (Arc::new([(); TASKS].map(|()| Lock::default())), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (locks, granted, number) = (Arc::clone(&locks), Arc::clone(&granted), task % names);
        let mutex = client.mutex(format!("job/{number}")).unwrap();
        tasks.spawn(async move {
            let mut left = times;
            while left > 0 {
                let guard = match mutex.acquire().await {
                    Err(error) if error.is_retryable() => continue,
                    acquired => acquired.unwrap(),
                };
                assert_eq!(locks[number].inside.fetch_add(1, Ordering::SeqCst), 0, "two holders of {number}");
                let token = guard.token().unwrap().get();
                assert!(locks[number].token.fetch_max(token, Ordering::SeqCst) < token, "a token that does not rise");
                tokio::task::yield_now().await;
                locks[number].inside.fetch_sub(1, Ordering::SeqCst);
                // A release that failed is done in the background.
                if let Err(error) = guard.release().await {
                    assert!(error.is_retryable(), "{error}");
                }
                granted.fetch_add(1, Ordering::SeqCst);
                left -= 1;
            }
        });
    }
    let (mut newest, mut seen, mut due) = (Instant::now(), 0, every);
    while granted.load(Ordering::SeqCst) < TASKS * times {
        // A busy machine is slow, so the patience is for the next grant.
        let so_far = granted.load(Ordering::SeqCst);
        if so_far > seen {
            (newest, seen) = (Instant::now(), so_far);
        }
        assert!(newest.elapsed() < PATIENCE, "no grant after {so_far}");
        if granted.load(Ordering::SeqCst) >= due {
            trouble().await;
            due = granted.load(Ordering::SeqCst) + every;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
        // A task that failed says why.
        while let Some(ended) = tasks.try_join_next() {
            ended.unwrap();
        }
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
}

/// While something keeps the bucket of `stuck`, tasks that want it and tasks of other names share the client: the other requests get their locks.
pub(crate) async fn others_get_their_locks(client: &Client, stuck: &str, free: impl AsyncFnOnce()) {
    let mut waiting = JoinSet::new();
    for _ in 0..4 {
        let mutex = client.mutex(stuck).unwrap();
        waiting.spawn(async move {
            loop {
                match mutex.acquire().await {
                    Err(error) if error.is_retryable() => {}
                    acquired => return drop(acquired.unwrap()),
                }
            }
        });
    }
    cycles(client, TASKS, 2, usize::MAX, async || {}).await;
    assert!(waiting.try_join_next().is_none(), "a lock was granted whose bucket is locked");
    free().await;
    tokio::time::timeout(PATIENCE, waiting.join_all()).await.expect("the others are granted, too");
}

/// A client that does its I/O on the runtime of the test, where [`all_are_sent`] can wait for it.
pub(crate) async fn client_on_this_runtime(url: &str) -> Client {
    let start = Instant::now();
    loop {
        match Client::builder().io(Io::CurrentRuntime).connect(url).await {
            Err(error) if error.is_retryable() && start.elapsed() < PATIENCE => {
                tokio::time::sleep(Duration::from_millis(2)).await
            }
            connected => return connected.unwrap(),
        }
    }
}

/// Polls all tasks of this runtime until each waits for a server. Their requests are then at the task that sends.
pub(crate) async fn all_are_sent() {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}
