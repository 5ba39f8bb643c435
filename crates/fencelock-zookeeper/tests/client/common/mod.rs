//! Helpers of the tests against real servers.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod fake;

use std::time::Duration;

pub(crate) use fencelock_testbed::PATIENCE;
use fencelock_testbed::Proxy;
use fencelock_testbed::zookeeper::shared;
use fencelock_zookeeper::{Acl, Client, Config, CreateMode, ErrorKind, Event, Events};
use futures_util::StreamExt;

/// A session that no slowness of a test ends.
pub(crate) const LASTING: Duration = Duration::from_secs(60);

/// Waits for something that has to come.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it has to come")
}

/// A configuration of the shared server.
pub(crate) fn config() -> Config {
    Config::new(&shared().address().to_string()).unwrap().session_timeout(LASTING).connect_deadline(PATIENCE)
}

/// A session through a proxy.
pub(crate) async fn through(timeout: Duration) -> (Proxy, Client, Events) {
    through_with(|config| config.session_timeout(timeout)).await
}

/// The same with more configuration.
pub(crate) async fn through_with(say: impl FnOnce(Config) -> Config) -> (Proxy, Client, Events) {
    let proxy = Proxy::start(shared().address()).unwrap();
    let config = Config::new(&proxy.address().to_string()).unwrap().session_timeout(LASTING).connect_deadline(PATIENCE);
    let (client, events) = Client::connect(say(config)).await.unwrap();
    (proxy, client, events)
}

pub(crate) fn is_disconnected(event: &Event) -> bool {
    matches!(event, Event::Disconnected { .. })
}

pub(crate) fn is_reconnected(event: &Event) -> bool {
    matches!(event, Event::Reconnected { .. })
}

/// A session with the shared server.
pub(crate) async fn client() -> (Client, Events) {
    Client::connect(config()).await.unwrap()
}

/// A session, and a node of its own, below which no other test works.
pub(crate) async fn client_and_parent() -> (Client, String) {
    let (client, _) = client().await;
    let parent = shared().namespace();
    client.create(&parent, b"", CreateMode::Persistent, &[Acl::open()]).await.unwrap();
    (client, parent)
}

/// Creates a node that is open to all.
pub(crate) async fn put(client: &Client, path: &str, mode: CreateMode) -> String {
    client.create(path, b"", mode, &[Acl::open()]).await.unwrap().path
}

/// Creates a node although connections come and go. An earlier attempt may have made the node already.
pub(crate) async fn put_stubbornly(client: &Client, path: &str, mode: CreateMode) {
    loop {
        match client.create(path, b"", mode, &[Acl::open()]).await.map_err(|error| error.kind()) {
            Ok(_) | Err(ErrorKind::NodeExists) => return,
            Err(ErrorKind::ConnectionLoss | ErrorKind::Unreachable | ErrorKind::Deadline) => {}
            Err(kind) => panic!("{kind:?}"),
        }
    }
}

/// Waits for an event that `is` describes.
pub(crate) async fn event(events: &mut Events, is: impl Fn(&Event) -> bool) -> Event {
    soon(async {
        loop {
            let event = events.next().await.expect("an event before the last");
            if is(&event) {
                return event;
            }
        }
    })
    .await
}
