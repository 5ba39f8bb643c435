//! Connections with a limit of silence: each has to read or write something from time to time.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// The most connections at once; more wait to be accepted.
const MOST: usize = 256;

/// How long a connection may be idle. Streams of events say something every [`ALIVE`].
const PATIENCE: Duration = Duration::from_secs(30);

/// How often a stream of events says something when nothing happens.
pub(super) const ALIVE: Duration = Duration::from_secs(10);

pub(super) struct Connections {
    listener: TcpListener,
    free: Arc<Semaphore>,
}

impl Connections {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self { listener, free: Arc::new(Semaphore::new(MOST)) }
    }
}

impl Listener for Connections {
    type Io = Connection<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        // The semaphore is never closed, so that a permit comes sooner or later.
        let permit = Arc::clone(&self.free).acquire_owned().await.ok();
        let (stream, address) = Listener::accept(&mut self.listener).await;
        (Connection::new(stream, PATIENCE, permit), address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// A connection that fails when nothing was read or written for some time: its other side went away, or never reads.
pub(super) struct Connection<S> {
    stream: S,
    patience: Duration,
    limit: Pin<Box<Sleep>>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl<S: Unpin> Connection<S> {
    fn new(stream: S, patience: Duration, permit: Option<OwnedSemaphorePermit>) -> Self {
        Self { stream, patience, limit: Box::pin(sleep(patience)), _permit: permit }
    }

    /// Does `work`. A call that cannot finish now fails once the stream has made no progress for `patience`.
    fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        work: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match work(Pin::new(&mut self.stream), cx) {
            Poll::Pending if self.limit.as_mut().poll(cx).is_ready() => {
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            Poll::Pending => Poll::Pending,
            done => {
                self.limit.as_mut().reset(Instant::now() + self.patience);
                done
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll(cx, |stream, cx| stream.poll_read(cx, to))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        self.poll(cx, |stream, cx| stream.poll_write(cx, from))
    }

    // A flush of a socket does nothing, and is no sign of life.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn a_connection_whose_other_side_never_reads_fails() {
        let (near, _far) = tokio::io::duplex(8);
        let mut connection = Connection::new(near, Duration::from_millis(20), None);
        let failure = connection.write_all(&[0; 100]).await.unwrap_err();
        assert_eq!(failure.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_connection_whose_other_side_never_writes_fails() {
        let (near, _far) = tokio::io::duplex(8);
        let mut connection = Connection::new(near, Duration::from_millis(20), None);
        assert_eq!(connection.read_u8().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
