//! Many waiters of one process.

use std::time::Duration;

use fencelock::{Error, ErrorKind};
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
    let mutex = client.mutex("job").unwrap();
    // The look at the queue ends a second after the wait: on a machine that is busy with other things, another crowd may be
    // needed to see it succeed. None may ask for too much.
    for _crowd in 0..5 {
        let before = count();
        let crowd = (0..CROWD).map(|_| mutex.acquire_within(Duration::from_secs(3)));
        let refused: Vec<_> = soon(future::join_all(crowd)).await.into_iter().map(Result::unwrap_err).collect();
        assert!(refused.iter().all(|refused| refused.kind() == ErrorKind::TimedOut), "{refused:?}");
        let asked = count() - before;
        // Each of them reading what all others say would be 40,000.
        assert!(asked < CROWD * CROWD / 4, "{asked} requests");
        lab.until_queued("job", 1).await;
        let learned = |refused: &Error| {
            refused.contention().is_some_and(|contention| contention.holder.is_some() && contention.position.is_some())
        };
        if refused.iter().all(learned) {
            return;
        }
    }
    panic!("not once did all of them learn who holds the lock");
}
