//! Several locks of a real server taken as one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fencelock::Client;
use fencelock_testbed::redis::Settings;

use crate::lab::{client, server, soon};

#[tokio::test]
async fn two_callers_with_the_names_in_opposite_orders_never_wait_for_each_other() {
    let server = server(Settings::default());
    let taken: Arc<[AtomicBool; 3]> = Arc::default();
    let caller = async |names: [usize; 3], client: Client, taken: Arc<[AtomicBool; 3]>| {
        for _ in 0..50 {
            let all = client.multi_lock(names.map(|name| format!("account/{name}"))).unwrap().acquire().await.unwrap();
            assert!(names.iter().all(|name| !taken[*name].swap(true, Ordering::SeqCst)), "two hold it");
            assert_eq!(all.guards().len(), 3);
            all.check().unwrap();
            names.iter().for_each(|name| taken[*name].store(false, Ordering::SeqCst));
            all.release().await.unwrap();
        }
    };
    let (one, other) = (client(&server.url(), 60_000).await, client(&server.url(), 60_000).await);
    let both = async {
        tokio::join!(
            caller([0, 1, 2], one.clone(), Arc::clone(&taken)),
            caller([2, 1, 0], other.clone(), Arc::clone(&taken))
        )
    };
    soon(both).await;
    assert_eq!(one.names("", None, 10).await.unwrap(), []);
}
