//! Many waiters of one process.

use std::time::Duration;

use fencelock::ErrorKind;
use fencelock_testbed::zookeeper::{Ensemble, Settings};
use futures_util::future;

use crate::lab::{Lab, soon};

#[tokio::test]
async fn a_crowd_that_gives_up_at_once_learns_who_holds_the_lock_from_few_requests() {
    const CROWD: u64 = 200;
    let server = Ensemble::start(Settings::default()).unwrap();
    let lab = Lab::on(server.server(0).address()).await;
    let client = lab.client("").await;
    let _guard = client.mutex("job").unwrap().acquire().await.unwrap();
    let count = || server.server(0).monitor("zk_packets_received").unwrap();
    let before = count();
    let mutex = client.mutex("job").unwrap();
    let crowd = (0..CROWD).map(|_| mutex.acquire_within(Duration::from_secs(3)));
    for refused in soon(future::join_all(crowd)).await {
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::TimedOut, "{refused}");
        let contention = refused.contention().unwrap();
        assert!(contention.holder.is_some() && contention.position.is_some(), "{refused}");
    }
    let asked = count() - before;
    // Each of them reading what all others say would be 40,000.
    assert!(asked < CROWD * CROWD / 4, "{asked} requests");
    lab.until_queued("job", 1).await;
}
