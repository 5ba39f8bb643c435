//! Many waiters.

use std::sync::Arc;

use fencelock::Client;
use tokio::sync::Mutex as Registry;

use super::{LONG, LOOK_AGAIN, PATIENCE, Stage, mutex, now, pass, release, until_contenders};
use fencelock_lab::Outage;

/// How many contenders wait at once. Each reads the queue at its entry and after the reset, so the cost grows with the
/// square of this number. A law has a thousand undisturbed waiters.
const WAITERS: usize = 300;

pub(super) fn a_crowd_of_waiters_is_served_in_order_through_a_reset_of_all_connections(stage: &Stage) {
    stage.block_on(async {
        let (client, other) = (stage.connect_for(LONG, 0).await, stage.connect_for(LONG, 1).await);
        let first = mutex(&other).acquire().await.unwrap();
        let granted: Arc<Registry<Vec<_>>> = Arc::default();
        let waiters: Vec<_> = (0..WAITERS)
            .map(|number| {
                let (mutex, granted) = (mutex(if number % 2 == 0 { &client } else { &other }), Arc::clone(&granted));
                tokio::spawn(async move {
                    let guard = mutex.acquire().await.expect("a grant");
                    granted.lock().await.push(guard.token());
                    release(guard).await;
                })
            })
            .collect();
        // The scene does not list the queue: a list of a thousand contenders takes long.
        let start = now();
        loop {
            let places = [&client, &other].map(Client::places);
            if places.iter().sum::<usize>() > WAITERS {
                break;
            }
            let health = [&client, &other].map(Client::health);
            assert!(now().since(start) < PATIENCE, "not all of them come to wait: {places:?} do, {health:?}");
            pass(LOOK_AGAIN).await;
        }
        stage.strike(Outage::ConnectionsReset, 0, 0);
        release(first).await;
        for waiter in waiters {
            waiter.await.unwrap();
        }
        let granted = granted.lock().await;
        assert_eq!(granted.len(), WAITERS);
        assert!(granted.is_sorted(), "grants are not in the order of arrival");
        until_contenders(&other, 0).await;
    });
}
