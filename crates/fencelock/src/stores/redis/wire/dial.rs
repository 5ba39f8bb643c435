//! The way to a server: TCP, TLS or a socket file.

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::config::{Address, Config};
use crate::error::Result;
use crate::kit::dial::unreachable;
use crate::time::Clock;

/// A stream of bytes.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Connects, with the TLS handshake if there is one, and calls `greet`, which sends the first requests. If a name has several addresses,
/// the first greeting with an answer wins.
pub(super) async fn dial<T, F: Future<Output = Result<T>>>(
    config: &Config,
    clock: &dyn Clock,
    greet: impl Fn(Box<dyn Stream>) -> F,
) -> Result<T> {
    let shown = format!("{config:?}");
    match &config.address {
        Address::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(|error| unreachable(&shown, &error))?;
            greet(Box::new(stream)).await
        }
        Address::Primary(_) | Address::Owner(_) => unreachable!("the server has been found before"),
        Address::Tcp(server) => {
            let greet = async |stream| greet(encrypted(config, &server.host, stream).await?).await;
            config.addresses.dial(server, &shown, clock, greet).await
        }
    }
}

async fn encrypted(config: &Config, host: &str, stream: TcpStream) -> Result<Box<dyn Stream>> {
    match &config.tls {
        Some(tls) => Ok(Box::new(tls.wrap(stream, host).await?)),
        None => Ok(Box::new(stream)),
    }
}
