//! A scripted server, for behaviour that no real server can be made to show.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::net::SocketAddr;
use std::time::Duration;

use fencelock_zookeeper::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct Fake {
    pub(crate) listener: TcpListener,
    pub(crate) address: SocketAddr,
}

/// A connection to a fake server.
pub(crate) struct Peer(pub(crate) TcpStream);

impl Fake {
    pub(crate) async fn new() -> Self {
        Self::on("127.0.0.1:0").await
    }

    pub(crate) async fn on(address: &str) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        Self { listener, address }
    }

    /// A configuration of this server alone, with a session timeout short enough to wait for.
    pub(crate) fn config(&self) -> Config {
        Config::new(&self.address.to_string()).unwrap().session_timeout(Duration::from_millis(1500))
    }

    /// A configuration of this server alone, with a session that survives a slow test.
    pub(crate) fn lasting(&self) -> Config {
        self.config().session_timeout(super::LASTING)
    }

    pub(crate) async fn accept(&self) -> Peer {
        Peer(self.listener.accept().await.unwrap().0)
    }

    /// Accepts a connection and gives it a session.
    pub(crate) async fn welcome(&self, id: i64, timeout_ms: i32) -> Peer {
        let mut peer = self.accept().await;
        peer.read().await;
        peer.write(&welcome(id, timeout_ms, false)).await;
        peer
    }

    /// Writes `bytes` to every client, for ever.
    pub(crate) async fn say(self, bytes: &'static [u8]) {
        let mut open = Vec::new();
        loop {
            let mut peer = self.accept().await;
            peer.0.write_all(bytes).await.unwrap();
            open.push(peer);
        }
    }
}

impl Peer {
    /// Reads a frame, without its length.
    pub(crate) async fn read(&mut self) -> Vec<u8> {
        self.try_read().await.expect("a frame")
    }

    /// Reads a frame, unless the client has hung up.
    pub(crate) async fn try_read(&mut self) -> Option<Vec<u8>> {
        let length = self.0.read_u32().await.ok()?;
        let mut frame = vec![0; length as usize];
        self.0.read_exact(&mut frame).await.ok()?;
        Some(frame)
    }

    /// Writes a frame after its length.
    pub(crate) async fn write(&mut self, frame: &[u8]) {
        self.try_write(frame).await.unwrap();
    }

    /// The same, where the client may have hung up.
    pub(crate) async fn try_write(&mut self, frame: &[u8]) -> std::io::Result<()> {
        let mut bytes = u32::try_from(frame.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend_from_slice(frame);
        self.0.write_all(&bytes).await
    }

    /// Reads a request and answers it without an error, with this record.
    pub(crate) async fn answer(&mut self, record: &[u8]) {
        let request = self.read().await;
        self.write(&[&request[..4], &header(7, 0), record].concat()).await;
    }

    /// Waits until the client has hung up.
    pub(crate) async fn hung_up(mut self) {
        let mut rest = [0; 1024];
        while !matches!(self.0.read(&mut rest).await, Ok(0) | Err(_)) {}
    }
}

/// The header of an answer, behind its xid.
pub(crate) fn header(zxid: i64, code: i32) -> Vec<u8> {
    [zxid.to_be_bytes().as_slice(), &code.to_be_bytes()].concat()
}

pub(crate) fn welcome(id: i64, timeout_ms: i32, read_only: bool) -> Vec<u8> {
    let mut frame = vec![0; 4];
    frame.extend(timeout_ms.to_be_bytes());
    frame.extend(id.to_be_bytes());
    frame.extend(16_i32.to_be_bytes());
    frame.extend([9; 16]);
    frame.push(u8::from(read_only));
    frame
}
