//! The way to a server: TCP, TLS or a socket file.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_postgres::tls::{NoTls, TlsConnect, TlsStream};

use super::url::{Address, Config};
use crate::error::{Error, ErrorKind, Result};
use crate::kit::dial::unreachable;
use crate::time::Clock;

/// Whatever bytes go through.
pub(super) trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

/// A stream to the server.
pub(super) struct Stream {
    bytes: Box<dyn Bytes>,
    /// What the server says first, until that is over.
    greeting: Option<Vec<u8>>,
    process: Arc<AtomicI32>,
}

impl Stream {
    fn new(bytes: Box<dyn Bytes>) -> Self {
        Self { bytes, greeting: Some(Vec::new()), process: Arc::default() }
    }

    /// Where it is noted which process of the server the connection is said to be with; 0 until then. The driver knows and does not tell.
    pub(super) fn process(&self) -> Arc<AtomicI32> {
        Arc::clone(&self.process)
    }

    fn overhears(&mut self, read: &[u8]) {
        let Some(greeting) = &mut self.greeting else { return };
        greeting.extend_from_slice(read);
        let (process, is_over) = heard(greeting);
        process.into_iter().for_each(|process| self.process.store(process, Ordering::Release));
        if is_over || greeting.len() > GREETING_MOST {
            self.greeting = None;
        }
    }
}

/// No server says more before it is ready.
const GREETING_MOST: usize = 65_536;

/// The process that a greeting names (its message `K`), and whether the greeting is over (`Z`). Each message is a letter, its length with
/// these four bytes, and the rest.
fn heard(greeting: &[u8]) -> (Option<i32>, bool) {
    let (mut rest, mut process) = (greeting, None);
    while let [kind, a, b, c, d, after @ ..] = rest {
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        let Some(body) = length.checked_sub(4).and_then(|length| after.get(..length)) else { break };
        match (kind, body) {
            (b'K', [a, b, c, d, ..]) => process = Some(i32::from_be_bytes([*a, *b, *c, *d])),
            (b'Z', _) => return (process, true),
            _ => {}
        }
        rest = &after[body.len()..];
    }
    (process, false)
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut *self.bytes).poll_read(cx, into);
        self.overhears(&into.filled()[before..]);
        read
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.bytes).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.bytes).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.bytes).poll_shutdown(cx)
    }
}

/// What the driver is told of TLS: nothing. The stream that it gets is encrypted already where it is to be.
pub(super) type Plain = <NoTls as TlsConnect<Stream>>::Stream;
const _: fn() = || {
    fn is_stream<T: TlsStream>() {}
    is_stream::<Plain>();
};

/// Connects to one server, encrypted where that is asked for, and has `greet` say the first words; where a name has several addresses, the
/// first greeting that is answered wins.
pub(super) async fn dial<T, F: Future<Output = Result<T>>>(
    config: &Config,
    server: &Address,
    clock: &dyn Clock,
    greet: impl Fn(Stream) -> F,
) -> Result<T> {
    let shown = config.shown(server);
    match server {
        Address::Unix(directory, port) => {
            let path = directory.join(format!(".s.PGSQL.{port}"));
            let stream = UnixStream::connect(path).await.map_err(|error| unreachable(&shown, &error))?;
            greet(Stream::new(Box::new(stream))).await
        }
        Address::Tcp(named) => {
            let greet = async |stream| greet(Stream::new(encrypted(config, &shown, &named.host, stream).await?)).await;
            config.addresses.dial(named, &shown, clock, greet).await
        }
    }
}

async fn encrypted(config: &Config, shown: &str, host: &str, stream: TcpStream) -> Result<Box<dyn Bytes>> {
    match &config.tls {
        None => Ok(Box::new(stream)),
        Some(tls) => Ok(Box::new(tls.wrap(ask_for_tls(shown, stream).await?, host).await?)),
    }
}

/// The request that every conversation over TLS begins with: its length and a number.
const TLS_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

async fn ask_for_tls(shown: &str, mut stream: TcpStream) -> Result<TcpStream> {
    let asked = async {
        stream.write_all(&TLS_REQUEST).await?;
        stream.read_u8().await
    };
    match asked.await {
        Ok(b'S') => Ok(stream),
        Ok(b'N') => {
            let message = "the server does not encrypt: switch `ssl` on there, or say sslmode=disable where the network is trusted";
            Err(Error::new(ErrorKind::Denied, "connect", message).with("server", shown))
        }
        Ok(_) => {
            let message = "what answered does not speak as a PostgreSQL server does";
            Err(Error::new(ErrorKind::Unreachable, "connect", message).with("server", shown).retryable())
        }
        Err(error) => Err(unreachable(&shown, &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_read_from_a_greeting_in_whatever_pieces_it_comes() {
        let parts: [&[u8]; 4] =
            [b"R\0\0\0\x08\0\0\0\0", b"S\0\0\0\x09a\0b\0\0", b"K\0\0\0\x0c\0\0\x01\x02abcd", b"Z\0\0\0\x05I"];
        let greeting = parts.concat();
        let known_from = greeting.len() - 6;
        for length in 0..=greeting.len() {
            let (process, is_over) = heard(&greeting[..length]);
            assert_eq!(process, (length >= known_from).then_some(0x102), "{length}");
            assert_eq!(is_over, length == greeting.len());
        }
        assert_eq!(heard(b"Z\0\0\0\x01"), (None, false), "a length that cannot be");
    }
}
