//! Which servers a client reaches, and which it must not use.

use fencelock::{Client, ErrorKind};
use fencelock_testbed::zookeeper::{Ensemble, Settings};
use fencelock_testbed::{PATIENCE, Port};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use crate::lab::{Lab, refused, soon};

/// A service that sends this to every peer.
async fn service(says: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut peer, _)) = listener.accept().await {
            // The write to a peer that hangs up at once may fail.
            let _ = peer.write_all(says).await;
            tokio::spawn(async move { while peer.read(&mut [0; 64]).await.is_ok_and(|read| read > 0) {} });
        }
    });
    port
}

#[tokio::test]
async fn a_service_that_is_no_zookeeper_is_recognised_by_its_answer() {
    for (says, told) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "HTTP"),
        (b"-ERR unknown\r\n", "-ERR"),
        (b"\0\0\0\x25\0\0", "did not answer"),
    ] {
        let error = refused(&format!("zk://127.0.0.1:{}/locks?tick_ms=500&ttl_ms=4000", service(says).await)).await;
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(error.to_string().contains(told), "{error}");
    }
}

#[tokio::test]
async fn a_server_with_as_many_connections_as_it_takes_is_reported_with_its_option() {
    let servers = Ensemble::start(Settings::default().with("maxClientCnxns", 1)).unwrap();
    let url = format!("{}&ttl_ms=60000&request_deadline_ms=2000", servers.url("/locks"));
    // The last look at whether the server serves may not be off its count yet.
    let inside = Client::builder().connect_timeout(PATIENCE).connect(&url).await.unwrap();
    let error = refused(&url).await;
    assert!(error.is_retryable() && error.to_string().contains("maxClientCnxns"), "{error:?}");
    inside.close().await.unwrap();
}

#[tokio::test]
async fn one_right_server_behind_three_wrong_ones_is_found() {
    let (nobody, lab) = (Port::reserve().unwrap(), Lab::new().await);
    let http = service(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    let servers = format!("nobody.invalid:2181,{},127.0.0.1:{http},{}", nobody.address(), lab.server);
    // In another order each time.
    for _ in 0..4 {
        let url = lab.url("").replacen(&lab.server.to_string(), &servers, 1);
        let client = soon(Client::connect(&url)).await.unwrap();
        client.mutex("job").unwrap().acquire().await.unwrap().release().await.unwrap();
        client.close().await.unwrap();
    }
    lab.until_queued("job", 0).await;
}

#[tokio::test]
async fn a_server_is_reached_by_an_address_of_ipv6_and_by_a_name() {
    let lab = Lab::new().await;
    let (server, six) = (lab.server, TcpListener::bind("[::1]:0").await.unwrap());
    let address = six.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = six.accept().await {
            let mut far = TcpStream::connect(server).await.unwrap();
            tokio::spawn(async move { copy_bidirectional(&mut near, &mut far).await });
        }
    });
    for server in [address.to_string(), format!("localhost:{}", lab.server.port())] {
        let url = lab.url("").replacen(&lab.server.to_string(), &server, 1);
        let client = soon(Client::connect(&url)).await.unwrap();
        client.mutex("job").unwrap().acquire().await.unwrap().release().await.unwrap();
    }
    lab.until_queued("job", 0).await;
}

#[tokio::test]
async fn servers_that_demand_other_credentials_refuse_and_nothing_is_left() {
    let settings = Settings::default().with("enforce.auth.enabled", "true").with("enforce.auth.schemes", "digest");
    let servers = Ensemble::start(settings).unwrap();
    let url = |who: &str| format!("zk://{who}{}/locks?tick_ms=500&ttl_ms=60000", servers.server(0).address());
    let error = match soon(Client::connect(&url(""))).await {
        Ok(client) => soon(client.mutex("job").unwrap().acquire()).await.unwrap_err(),
        Err(error) => error,
    };
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Denied, false), "{error}");
    let client = soon(Client::connect(&url("u:p@"))).await.unwrap();
    assert!(client.names("", None, 10).await.unwrap().is_empty());
    client.mutex("job").unwrap().acquire().await.unwrap().release().await.unwrap();
}
