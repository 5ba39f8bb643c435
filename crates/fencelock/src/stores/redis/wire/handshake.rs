//! The way to a server by TCP, TLS or a socket file, and the handshake of a connection: the protocol and the credentials.

use std::sync::Arc;

use futures_core::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, PushInfo, RedisConnectionInfo};
use tokio::net::UnixStream;

use super::config::{Address, Config};
use super::fault::no_greeting;
use crate::error::Result;
use crate::kit::dial::{Bytes, encrypted, unreachable};
use crate::time::Clock;

/// How many requests may wait for the task that sends them; further callers wait for room.
const ROOM: usize = 4096;

/// The name and version of the client library in `CLIENT LIST`.
const NAME: (&str, &str) = ("fencelock", env!("CARGO_PKG_VERSION"));

/// Sends requests and reads answers while it is polled.
pub(crate) type Driver = BoxFuture<'static, ()>;

/// Receives each message that the server sends unasked.
pub(crate) type Pushed = Arc<dyn Fn(PushInfo) + Send + Sync>;

/// Connects, with the TLS handshake if there is one, and greets the server in RESP3, which brings answers and messages on one connection. If a
/// name has several addresses, the first greeting with an answer wins.
pub(crate) async fn shake_hands(
    config: &Config,
    pushed: Option<&Pushed>,
    clock: &dyn Clock,
) -> Result<(MultiplexedConnection, Driver)> {
    let shown = format!("{config:?}");
    match &config.address {
        Address::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(|error| unreachable(&shown, &error))?;
            greet(Box::new(stream), config, pushed).await
        }
        Address::Tcp(server) => {
            let greet =
                async |stream| greet(encrypted(config.tls.as_ref(), &server.host, stream).await?, config, pushed).await;
            config.addresses.dial(server, &shown, clock, greet).await
        }
        _ => unreachable!("the server has been found before"),
    }
}

async fn greet(
    stream: Box<dyn Bytes>,
    config: &Config,
    pushed: Option<&Pushed>,
) -> Result<(MultiplexedConnection, Driver)> {
    let identity = identity(config).await?;
    // A waiting caller has a deadline of its own: a late answer is still an answer.
    let mut settings = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(ROOM);
    if let Some(pushed) = pushed.cloned() {
        settings = settings.set_push_sender(move |push: PushInfo| {
            pushed(push);
            Ok::<_, redis::aio::SendError>(())
        });
    }
    let greeted = MultiplexedConnection::new_with_config(&identity, stream, settings).await;
    let (wire, driver) = greeted.map_err(|error| no_greeting(&error).with("server", format!("{config:?}")))?;
    Ok((wire, Box::pin(driver)))
}

async fn identity(config: &Config) -> Result<RedisConnectionInfo> {
    let mut info = RedisConnectionInfo::default()
        .set_db(i64::from(config.db))
        .set_protocol(ProtocolVersion::RESP3)
        .set_lib_name(NAME.0, NAME.1);
    if let Some(user) = &config.user {
        info = info.set_username(user);
    }
    if let Some(password) = &config.password {
        info = info.set_password(password.read().await?);
    }
    Ok(info)
}
