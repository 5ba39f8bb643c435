//! Locks over TLS, with certificates from files.

use fencelock::{Client, ErrorKind};
use fencelock_testbed::zookeeper::{Ensemble, Settings, Tls};

use crate::authority::certificates;
use crate::lab::until;

#[tokio::test]
async fn locks_are_taken_over_tls_and_only_from_servers_that_are_trusted() {
    let directory = certificates();
    let directory = directory.path();
    let (identity, trusted) = (directory.join("127.0.0.1.pem"), directory.join("ours.pem"));
    let tls = Some(Tls { identity, trusted, asks_clients: true });
    let server = Ensemble::start(Settings { tls, ..Settings::default() }).unwrap();
    let address = server.server(0).secure_address().unwrap();
    // A client is connected within three tenths of its ttl: the clients that are to be have time on a busy machine too.
    let url_for = |ttl_ms: u64, ca: &str, own: &str| {
        let directory = directory.display();
        format!("zks://u:p@{address}/locks?tick_ms=500&ttl_ms={ttl_ms}&tls_ca={directory}/{ca}.pem{own}")
    };
    let url = |ca: &str, own: &str| url_for(9_000, ca, own);
    let own = format!("&tls_cert={0}/client.crt&tls_key={0}/client.key", directory.display());
    let client = Client::connect(&url_for(60_000, "ours", &own)).await.unwrap();
    client.mutex("job").unwrap().acquire().await.unwrap().release().await.unwrap();
    for (ca, own) in [("other", &*own), ("ours", "")] {
        // On a busy machine, a client may give up before a server has answered.
        until("the error names the server that was not trusted, or did not trust us", async || {
            let error = Client::connect(&url(ca, own)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
            error.to_string().contains(&address.to_string())
        })
        .await;
    }
    // The system does not trust our authority; some systems trust none.
    let error = Client::connect(&format!("zks://{address}/locks?tick_ms=500&ttl_ms=9000")).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Config), "{error}");
    let error = Client::connect(&url("127.0.0.1.key", "").replace(".key.pem", ".key")).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Config && error.to_string().contains("certificate"), "{error}");
}
