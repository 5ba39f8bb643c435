//! Clean-up after dead sessions, for which no request waits.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fencelock::store::{Opening, Owner, StoreUrl, open_url};
use fencelock::time::{Clock, SystemClock};
use fencelock_testbed::redis::Settings;
use fencelock_testbed::within;

use super::lab::{PATIENCE, server, soon};

/// The key that is in every request to clear up, and in no other.
const KEY: &[u8] = b"fencelock:2:janitor";

/// Forwards requests up to the first one of a clean-up, and then swallows that and all later ones.
fn carry(mut from: TcpStream, mut to: TcpStream) {
    let mut read = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut chunk) {
        read.extend_from_slice(&chunk[..count]);
        let found = read.windows(KEY.len()).position(|bytes| bytes == KEY);
        let start = found.map(|at| read[..at].windows(8).rposition(|bytes| bytes == b"$7\r\nEVAL").unwrap());
        if let Some(start) = start {
            let start = read[..start].iter().rposition(|byte| *byte == b'*').unwrap();
            to.write_all(&read[..start]).unwrap();
            // Until the client hangs up.
            while let Ok(1..) = from.read(&mut chunk) {}
            return;
        }
        to.write_all(&read).unwrap();
        read.clear();
    }
}

/// A way to the server that swallows clean-up requests.
fn way_without_a_janitor(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let upstream = TcpStream::connect(server).unwrap();
            let (mut answers, mut back) = (upstream.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut answers, &mut back));
            thread::spawn(move || carry(client, upstream));
        }
    });
    address
}

#[tokio::test]
async fn a_renewal_does_not_wait_until_the_dead_are_cleared_away() {
    let server = server(Settings::default());
    let url = StoreUrl::parse(&format!("redis://{}", way_without_a_janitor(server.address()))).unwrap();
    let store = open_url(url).await.unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let owner = Owner::new(1, "", 0);
    let opened = store.open(Opening::here(owner, PATIENCE, clock).unwrap()).await.unwrap();
    let start = Instant::now();
    soon(opened.session.renew(&[])).await.unwrap();
    // The client gives up a connection without replies after ten seconds.
    within(Duration::from_secs(5), start.elapsed(), "a renewal during the clean-up");
}
