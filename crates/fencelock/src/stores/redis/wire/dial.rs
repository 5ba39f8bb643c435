//! The way to a server: TCP, TLS or a socket file.

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::config::{Address, Config};
use super::meter::Metered;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::address::HostPort;

/// Whatever bytes go through.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Connects, without a word to the server but those of TLS. A reply that is too large is an error of the connection.
pub(super) async fn dial(config: &Config) -> Result<Metered<Box<dyn Stream>>> {
    Ok(Metered::new(connect(config).await?))
}

async fn connect(config: &Config) -> Result<Box<dyn Stream>> {
    match &config.address {
        Address::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(|error| unreachable(config, &error))?;
            Ok(Box::new(stream))
        }
        Address::Tcp(HostPort { host, port }) => {
            let stream =
                TcpStream::connect((host.as_str(), *port)).await.map_err(|error| unreachable(config, &error))?;
            // A second request in flight would wait for the acknowledgement of the first otherwise: 40 ms.
            stream.set_nodelay(true).map_err(|error| unreachable(config, &error))?;
            match &config.tls {
                Some(tls) => Ok(Box::new(tls.wrap(stream, host).await?)),
                None => Ok(Box::new(stream)),
            }
        }
    }
}

fn unreachable(config: &Config, error: &std::io::Error) -> Error {
    let denied = error.kind() == std::io::ErrorKind::PermissionDenied;
    let (kind, message) = match denied {
        true => (ErrorKind::Denied, "the socket of the server may not be used"),
        false => (ErrorKind::Unreachable, "the server cannot be reached"),
    };
    let error = Error::new(kind, "connect", message).with("server", format!("{config:?}")).with("cause", error);
    if denied { error } else { error.retryable() }
}
