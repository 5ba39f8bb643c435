//! A way to a server that makes an older one of it: it has no answer to what came with 3.6.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// The operation that tells a session its own nodes.
const OWN_NODES: [u8; 4] = 103_i32.to_be_bytes();
const UNKNOWN: [u8; 4] = 9999_i32.to_be_bytes();

/// What becomes of a request for the session's own nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// The server is sent a number in its place that it does not know, and says so.
    Refuses,
    /// The connection is closed.
    HangsUp,
    /// The same, the first time; later ones are answered.
    HangsUpOnce,
    /// The request is left out, and whatever comes later is answered.
    Swallows,
}

pub(crate) struct Older {
    pub(crate) address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Older {
    pub(crate) async fn new(server: SocketAddr, manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, asked) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let counted = Arc::clone(&counted);
                tokio::spawn(async move {
                    let server = TcpStream::connect(server).await?;
                    let ((up, mut down), (mut answers, requests)) = (near.into_split(), server.into_split());
                    tokio::select! {
                        ended = relay(up, requests, &counted, manner) => ended,
                        ended = copy(&mut answers, &mut down) => ended.map(drop),
                    }
                });
            }
        });
        Self { address, asked }
    }

    /// How often it was asked for a session's own nodes.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// Hands on one request after the other: the length, a number, the operation.
async fn relay(
    mut up: OwnedReadHalf,
    mut requests: OwnedWriteHalf,
    counted: &AtomicUsize,
    manner: Manner,
) -> std::io::Result<()> {
    for number in 0.. {
        let mut frame = vec![0; 4];
        up.read_exact(&mut frame).await?;
        let length = u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]);
        frame.resize(4 + length as usize, 0);
        up.read_exact(&mut frame[4..]).await?;
        // The first one says hello.
        if number > 0 && frame[8..12] == OWN_NODES {
            let before = counted.fetch_add(1, Ordering::SeqCst);
            match manner {
                Manner::Refuses => frame[8..12].copy_from_slice(&UNKNOWN),
                Manner::HangsUp => return Ok(()),
                Manner::HangsUpOnce if before == 0 => return Ok(()),
                Manner::HangsUpOnce => {}
                Manner::Swallows => continue,
            }
        }
        requests.write_all(&frame).await?;
    }
    Ok(())
}
