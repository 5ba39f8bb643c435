//! The effects of a broken connection, and of its successor, on holders and waiters.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use fencelock::observe::{Event, Observer};
use fencelock::{Client, ErrorKind, Loss};
use fencelock_testbed::zookeeper::shared;
use fencelock_testbed::{PATIENCE, Proxy, Way, wait_until};
use fencelock_zookeeper::CreateMode;
use tokio::sync::mpsc;

use super::lab::{Lab, hands, soon};

/// A parent that clients reach through `way`; the hands connect directly.
async fn through(way: SocketAddr) -> Lab {
    Lab { server: way, parent: shared().namespace(), hands: hands(shared().address()).await }
}

/// Says when a request of an acquire was made again.
struct Retries(mpsc::UnboundedSender<String>);

impl Observer for Retries {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Retried { error, .. } = event {
            let _ = self.0.send(error.to_string());
        }
    }
}

#[tokio::test]
async fn a_holder_is_notified_of_the_end_of_its_node_after_an_outage_longer_than_a_request_may_take() {
    let proxy = Arc::new(Proxy::start(shared().address()).unwrap());
    let lab = through(proxy.address()).await;
    let (told, mut retries) = mpsc::unbounded_channel();
    let client = Client::builder().observer(Arc::new(Retries(told))).connect(&lab.url("")).await.unwrap();
    let guard = client.mutex("job").unwrap().acquire().await.unwrap();
    let node = format!("job/{}", lab.children("job").await[0]);
    // The watch fires for the change, and the request that sets it again ends the connection.
    proxy.refuse();
    proxy.cut_after(0, Way::Up);
    lab.hands.set_data(&lab.path(&node), b"x", None).await.unwrap();
    let way = Arc::clone(&proxy);
    assert!(tokio::task::spawn_blocking(move || wait_until(PATIENCE, || way.cuts() > 0)).await.unwrap());
    // A later request is given up later: after its retry, the watch's request was given up, too.
    let other = client.mutex("other").unwrap();
    let other = tokio::spawn(async move { other.acquire().await });
    while !soon(retries.recv()).await.unwrap().contains("no server can be reached") {}
    proxy.heal();
    soon(other).await.unwrap().unwrap().release().await.unwrap();
    lab.delete(&node).await;
    assert_eq!(soon(guard.lost()).await, Loss::Removed);
}

#[tokio::test]
async fn a_client_that_lost_its_session_in_an_outage_is_closed_like_any_other() {
    let proxy = Proxy::start(shared().address()).unwrap();
    let lab = through(proxy.address()).await;
    let client = Client::connect(&lab.url("").replace("ttl_ms=60000", "ttl_ms=2000")).await.unwrap();
    let guard = client.mutex("job").unwrap().acquire().await.unwrap();
    proxy.refuse();
    proxy.reset();
    soon(guard.lost()).await;
    soon(client.close()).await.unwrap();
    proxy.heal();
    lab.until_queued("job", 0).await;
}

/// A way to `server` on which every connection but the first asks for a session timeout of 4 s, instead of the client's.
/// The first one ends when `cut` is dropped.
fn clamping(server: SocketAddr) -> (SocketAddr, mpsc::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (cut, mut until) = mpsc::channel::<()>(1);
    let count = AtomicUsize::new(0);
    thread::spawn(move || {
        for near in listener.incoming() {
            let (mut near, mut far) = (near.unwrap(), TcpStream::connect(server).unwrap());
            let mut hello = [0; 49];
            if near.read_exact(&mut hello).is_err() {
                continue;
            }
            if count.fetch_add(1, Ordering::Relaxed) > 0 {
                hello[16..20].copy_from_slice(&4000_i32.to_be_bytes());
            }
            far.write_all(&hello).unwrap();
            for (mut from, mut to) in
                [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near.try_clone().unwrap())]
            {
                thread::spawn(move || std::io::copy(&mut from, &mut to));
            }
            if count.load(Ordering::Relaxed) == 1 {
                until.blocking_recv();
                near.shutdown(Shutdown::Both).unwrap();
            }
        }
    });
    (address, cut)
}

#[tokio::test]
async fn a_session_that_resumes_with_a_shorter_timeout_is_lost() {
    let (way, cut) = clamping(shared().address());
    let lab = through(way).await;
    lab.put("job", CreateMode::Persistent).await;
    let client = lab.client("").await;
    let guard = client.mutex("job").unwrap().acquire().await.unwrap();
    drop(cut);
    soon(guard.lost()).await;
    // The client continues with a session of the timeout that it asked for, or with none.
    lab.until_queued("job", 0).await;
}

#[tokio::test]
async fn a_server_that_says_nothing_is_waited_for_as_long_as_a_request_may_take() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("zk://{}/locks", silent.local_addr().unwrap());
    let (ttl, deadline) = (Duration::from_secs(8), Duration::from_secs(4));
    let error = Client::builder().ttl(ttl).request_deadline(deadline).connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.to_string().contains("within 3.6 s"), "{error}");
}
