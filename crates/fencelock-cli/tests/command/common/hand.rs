//! ZooKeeper by hand: nodes as other clients would make them.

use std::time::Duration;

use fencelock_testbed::PATIENCE;
use fencelock_testbed::zookeeper::shared;
use fencelock_zookeeper as wire;
use fencelock_zookeeper::{Acl, CreateMode};

/// Does `work` with a client of the protocol, as other programs use one.
pub(crate) fn by_hand<T>(work: impl AsyncFnOnce(wire::Client) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let config = wire::Config::new(&shared().address().to_string()).unwrap();
        // The session is not renewed while `work` waits for a process.
        let config = config.session_timeout(Duration::from_secs(120)).connect_deadline(PATIENCE);
        let (client, _events) = wire::Client::connect(config).await.unwrap();
        let done = work(client.clone()).await;
        client.close().await.unwrap();
        done
    })
}

/// A node that another client would make: `what` is its path below the lock's parent, up to the number.
pub(crate) async fn plant(client: &wire::Client, path: &str, mode: CreateMode, data: &str) {
    let parents: Vec<_> =
        path.match_indices('/').map(|(at, _)| &path[..at]).filter(|parent| !parent.is_empty()).collect();
    for parent in parents {
        let _ = client.create(parent, b"", CreateMode::Persistent, &[Acl::open()]).await;
    }
    client.create(path, data.as_bytes(), mode, &[Acl::open()]).await.unwrap();
}
