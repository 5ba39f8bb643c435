//! Servers that lost their quorum.

use fencelock::{Client, ErrorKind};
use fencelock_testbed::wait_until;
use fencelock_testbed::zookeeper::{Ensemble, Mode, Settings};

use super::lab::{PATIENCE, refused, soon};

#[tokio::test]
async fn servers_without_a_quorum_that_serve_reads_are_refused_and_their_session_loses_its_lock() {
    let mut settings = Settings { servers: 3, ..Settings::default() }.with("forceSync", "no");
    settings.java.push("-Dreadonlymode.enabled=true".to_owned());
    let servers = Ensemble::start(settings).unwrap();
    let url = |ttl: u64| format!("{}&ttl_ms={ttl}", servers.url("/locks"));
    let holder = soon(Client::connect(&url(4000))).await.unwrap();
    let guard = holder.mutex("job").unwrap().acquire().await.unwrap();
    let alone = servers.leader();
    servers.others(alone).for_each(|other| servers.server(other).kill());
    soon(guard.lost()).await;
    assert!(guard.check().is_err());
    // The clients live on a thread of their own.
    assert!(wait_until(PATIENCE, || servers.server(alone).mode() == Some(Mode::Other)));
    // The isolated server would answer reads with data from before its isolation.
    let error = refused(&url(4000)).await;
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unreachable, true), "{error}");
    assert!(error.to_string().contains("the server serves reads only"), "{error}");
    servers.heal().unwrap();
    let client = soon(async {
        loop {
            if let Ok(client) = Client::connect(&url(20_000)).await {
                return client;
            }
        }
    })
    .await;
    soon(client.mutex("job").unwrap().acquire()).await.unwrap().release().await.unwrap();
}
