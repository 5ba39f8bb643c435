//! More contenders of one client than a server can close a session with.

use std::time::Duration;

use fencelock::ErrorKind;
use fencelock_testbed::zookeeper::{Ensemble, Settings, shared};
use fencelock_testbed::{Proxy, wait_until};

use super::lab::{Lab, PATIENCE, soon};

/// A parent with a path so long that the paths of a few hundred nodes below it fill a mebibyte.
fn long_parent(lab: &Lab) -> String {
    format!("{}/{}", lab.parent, vec!["x".repeat(250); 16].join("/"))
}

#[tokio::test]
async fn a_server_starts_again_however_much_one_client_held_when_its_session_was_closed() {
    // Two mebibytes and a half: more than `jute.maxbuffer` and its extra size.
    const MANY: usize = 620;
    let server = Ensemble::start(Settings::default()).unwrap();
    let mut lab = Lab::on(server.server(0).address()).await;
    lab.parent = long_parent(&lab);
    let client = lab.client("").await;
    let lock = client.rwlock("job").unwrap();
    let (mut held, mut refused) = (Vec::new(), None);
    while held.len() < MANY && refused.is_none() {
        match soon(lock.read()).await {
            Ok(guard) => held.push(guard),
            Err(error) => refused = Some(error),
        }
    }
    client.close().await.unwrap();
    drop(held);
    lab.until_queued("job", 0).await;
    server.server(0).restart().unwrap();
    server.wait_until_serving().unwrap();
    let refused = refused.expect("the limit was reached");
    assert_eq!((refused.kind(), refused.is_retryable()), (ErrorKind::Exhausted, false), "{refused}");
}

#[tokio::test]
async fn a_client_with_as_many_contenders_as_fit_gets_an_error_before_anything_is_sent_and_continues_when_some_have_left()
 {
    let proxy = Proxy::start(shared().address()).unwrap();
    let lab = Lab { server: proxy.address(), ..Lab::new().await };
    let client = lab.client("&max_frame_bytes=4096").await;
    let lock = client.rwlock("job").unwrap();
    let mut held = Vec::new();
    let refused = loop {
        match soon(lock.read()).await {
            Ok(guard) => held.push(guard),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::Exhausted, "{refused}");
    for said in [format!("contenders {}", held.len()), "max_frame_bytes 4096".to_owned(), "several clients".to_owned()]
    {
        assert!(refused.to_string().contains(&said), "{said}: {refused}");
    }
    // In the form that servers write: each path with four bytes before it.
    let path = lab.path("job").len() + "/_c_00000000-0000-0000-0000-000000000000-__READ__0000000000".len();
    assert!((held.len() + 1) * (4 + path) + 64 > 4096, "{} held", held.len());
    // A waiter would need a node as well, and is refused at once although no server can be reached.
    proxy.refuse();
    proxy.reset();
    for _ in 0..3 {
        let refused = soon(client.rwlock("map").unwrap().write_within(Duration::from_secs(1))).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Exhausted, "{refused}");
    }
    proxy.heal();
    soon(held.pop().unwrap().release()).await.unwrap();
    // The second node of a downgrade, which exists for a moment, fits into the extra size.
    let writer = soon(client.rwlock("log").unwrap().write()).await.unwrap();
    let reader = soon(writer.downgrade()).await.unwrap();
    assert_eq!(soon(lock.read()).await.unwrap_err().kind(), ErrorKind::Exhausted);
    soon(reader.release()).await.unwrap();
    for _ in 0..100 {
        soon(soon(lock.read()).await.unwrap().release()).await.unwrap();
    }
    drop(held);
    assert!(tokio::task::spawn_blocking(move || wait_until(PATIENCE, || client.places() == 0)).await.unwrap());
}
