//! A server on a host of its own, which takes root.

use std::sync::Arc;

use fencelock::ErrorKind;
use fencelock_testbed::Network;
use fencelock_testbed::redis::Settings;

use super::lab::server;

#[tokio::test]
async fn a_server_in_protected_mode_is_named_as_such() {
    let network = Arc::new(Network::start(1).unwrap());
    let server = server(Settings { host: Some((Arc::clone(&network), 0)), ..Settings::default() });
    let url = server.url();
    let refused = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let builder = fencelock::Client::builder().io(fencelock::Io::CurrentRuntime);
            builder.connect(&url).await.map(drop).unwrap_err()
        })
    };
    let error = network.inside(refused).unwrap();
    // The server says so unasked and hangs up: a client that greets it at that moment may receive nothing else.
    assert!(matches!(error.kind(), ErrorKind::Denied | ErrorKind::Unreachable), "{error}");
    assert!(error.to_string().contains("protected"), "{error}");
}
