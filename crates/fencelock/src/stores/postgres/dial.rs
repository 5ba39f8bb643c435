//! Connects to a server: by TCP, TLS or a socket file.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_postgres::tls::{NoTls, TlsConnect};

use super::url::{Address, Config};
use crate::error::{Error, ErrorKind, Result};
use crate::kit::dial::{Bytes, unreachable};
use crate::time::Clock;

pub(super) type Stream = Box<dyn Bytes>;

/// The driver has no TLS of its own. Its stream is encrypted already, if the URL asks for that.
pub(super) type Plain = <NoTls as TlsConnect<Stream>>::Stream;

/// Connects to one server, encrypted if the URL asks for it, and greets. The first address that answers `greet` wins.
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
            greet(Box::new(stream)).await
        }
        Address::Tcp(named) => {
            let greet = async |stream| greet(encrypted(config, &shown, &named.host, stream).await?).await;
            config.addresses.dial(named, &shown, clock, greet).await
        }
    }
}

async fn encrypted(config: &Config, shown: &str, host: &str, stream: TcpStream) -> Result<Stream> {
    match &config.tls {
        None => Ok(Box::new(stream)),
        Some(tls) => Ok(Box::new(tls.wrap(ask_for_tls(shown, stream).await?, host).await?)),
    }
}

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
            let message = "the answer is not that of a PostgreSQL server";
            Err(Error::new(ErrorKind::Unreachable, "connect", message).with("server", shown).retryable())
        }
        Err(error) => Err(unreachable(&shown, &error)),
    }
}
