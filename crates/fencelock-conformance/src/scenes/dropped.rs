//! An acquire that is dropped.

use std::time::Duration;

use fencelock::{Client, Guard, Io};
use futures_core::future::BoxFuture;
use tokio::time::timeout;

use super::{PATIENCE, Stage, mutex, release, until_contenders};
use crate::world::poll_times;

pub(super) fn an_acquire_dropped_at_any_await_leaves_nothing(stage: &Stage) {
    stage.block_on(async {
        let (client, other) = (on_this_runtime(stage).await, stage.connect(1).await);
        for polls in 1.. {
            let granted = acquire_with_polls(&client, polls).await;
            let is_granted = granted.is_some();
            if let Some(guard) = granted {
                release(guard).await;
            }
            until_contenders(&other, 0).await;
            if is_granted {
                break;
            }
        }
    });
}

pub(super) fn an_acquire_dropped_at_any_await_while_it_waits_leaves_nothing(stage: &Stage) {
    stage.block_on(async {
        let (client, other) = (on_this_runtime(stage).await, stage.connect(1).await);
        // A waiter is polled for every answer and every event, so drops at later polls hit a waiting place.
        for polls in 1..10 {
            let guard = mutex(&other).acquire().await.unwrap();
            let mut waiting = Box::pin(acquire_with_polls(&client, polls));
            let dropped = timeout(stage.site.ttl() / 8, &mut waiting).await;
            release(guard).await;
            if dropped.is_err() {
                // At some number of polls, the drop hits the middle of the hand-over.
                let _ = timeout(Duration::from_micros(200 * polls as u64), waiting).await;
            }
            until_contenders(&other, 0).await;
        }
    });
}

async fn on_this_runtime(stage: &Stage) -> Client {
    Client::builder()
        .io(Io::CurrentRuntime)
        .connect_timeout(PATIENCE)
        .connect(&stage.site.url(0))
        .await
        .expect("a client")
}

/// Acquires, and drops the attempt when it is not granted after this number of polls.
async fn acquire_with_polls(client: &Client, polls: usize) -> Option<Guard> {
    let mutex = mutex(client);
    let mut acquire: BoxFuture<'_, _> = Box::pin(mutex.acquire());
    poll_times(&mut acquire, polls).await.map(|granted| granted.expect("a grant"))
}
