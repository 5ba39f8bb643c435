//! The first words on a connection: the protocol, who we are, and why a server hangs up.

use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use redis::aio::{MultiplexedConnection, PubSub, PubSubSink, PubSubStream};
use redis::{AsyncConnectionConfig, ProtocolVersion, PushInfo, RedisConnectionInfo, RedisError, Value};
use tokio::io::AsyncReadExt;

use super::config::Config;
use super::dial::{Stream, dial};
use super::fault::{fault, is_old_protocol};
use super::meter::Metered;
use super::user::Subscription;
use crate::error::{Error, ErrorKind, Result};
use crate::time::Clock;

/// How many requests may be on their way to the task that sends them; more wait for room.
const ROOM: usize = 4096;

/// A server that refuses a client (maxclients, protected mode) sends one error line and closes: how long that line is waited for, and how
/// many bytes of it are read.
const REFUSAL_WAIT: Duration = Duration::from_millis(100);
const REFUSAL_MOST: u64 = 4096;

/// What a connection shows of itself in `CLIENT LIST`.
const NAME: (&str, &str) = ("fencelock", env!("CARGO_PKG_VERSION"));

/// A connection whose server knows who we are.
pub(super) struct Shaken {
    pub(super) requests: MultiplexedConnection,
    pub(super) driver: Driver,
    /// The second connection, for messages, subscribed already: with a server that knows the older protocol only.
    pub(super) messages: Option<(PubSubSink, PubSubStream)>,
}

/// What sends requests and reads answers; it has to be polled.
type Driver = BoxFuture<'static, ()>;

/// Connects, in the newer protocol if the server knows it.
pub(super) async fn shake_hands(
    config: &Config,
    subscription: Option<&Subscription>,
    clock: &dyn Clock,
) -> Result<Shaken> {
    let shake = async |stream| shake(stream, config, ProtocolVersion::RESP3, subscription).await;
    let shaken = match dial(config, clock, shake).await {
        Ok(Some((requests, driver))) => Ok(Shaken { requests, driver, messages: None }),
        Ok(None) => older(config, subscription, clock).await,
        Err(error) => Err(error),
    };
    match shaken {
        Err(error) if error.kind() == ErrorKind::Unreachable => {
            Err(unasked(config, clock).await.map_or(error, |said| greeting(config, &said)))
        }
        shaken => shaken,
    }
}

/// Greets the server in this protocol; `None` when it only knows the older one.
async fn shake(
    stream: Metered<Box<dyn Stream>>,
    config: &Config,
    protocol: ProtocolVersion,
    subscription: Option<&Subscription>,
) -> Result<Option<(MultiplexedConnection, Driver)>> {
    let identity = identity(config, protocol).await?;
    // Who waits has a deadline of its own: an answer that is late is still an answer.
    let mut settings = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(ROOM);
    if let Some(subscription) = subscription.filter(|_| protocol != ProtocolVersion::RESP2) {
        let subscription = subscription.clone();
        settings = settings.set_push_sender(move |push: PushInfo| {
            subscription.pushed(&push);
            Ok::<_, redis::aio::SendError>(())
        });
    }
    match MultiplexedConnection::new_with_config(&identity, stream, settings).await {
        Ok((wire, driver)) => Ok(Some((wire, Box::pin(driver)))),
        Err(error) if protocol != ProtocolVersion::RESP2 && is_old_protocol(&error) => Ok(None),
        Err(error) => Err(greeting(config, &error)),
    }
}

/// A server that knows the older protocol only: messages come on a second connection.
async fn older(config: &Config, subscription: Option<&Subscription>, clock: &dyn Clock) -> Result<Shaken> {
    let shaken = dial(config, clock, async |stream| shake(stream, config, ProtocolVersion::RESP2, None).await).await?;
    let Some((requests, driver)) = shaken else {
        return Err(Error::new(ErrorKind::Internal, "connect", "the older protocol needs no HELLO"));
    };
    let Some(subscription) = subscription else { return Ok(Shaken { requests, driver, messages: None }) };
    tracing::debug!(server = ?config, "the server knows RESP2 only: messages come on a second connection");
    let identity = identity(config, ProtocolVersion::RESP2).await?;
    let listen = async |stream| {
        let pubsub = PubSub::new(&identity, stream).await;
        pubsub.map_err(|error| greeting(config, &error))
    };
    let mut pubsub = dial(config, clock, listen).await?;
    pubsub.subscribe(&subscription.channel).await.map_err(|error| fault("subscribe", &error))?;
    Ok(Shaken { requests, driver, messages: Some(pubsub.split()) })
}

/// The one line with which a server refuses every new client (too many clients, protected mode). The server sends it unasked and closes;
/// a client that has sent a request meanwhile never reads it.
async fn unasked(config: &Config, clock: &dyn Clock) -> Option<RedisError> {
    let mut said = Vec::new();
    // A connection without a greeting says nothing of an address that is worth to be remembered.
    let config = &Config { addresses: Arc::default(), ..config.clone() };
    let mut stream = dial(config, clock, async |stream| Ok(stream)).await.ok()?.take(REFUSAL_MOST);
    tokio::select! {
        _ = stream.read_to_end(&mut said) => {}
        () = clock.sleep_until(clock.now().after(REFUSAL_WAIT)) => {}
    }
    redis::parse_redis_value(&said).and_then(Value::extract_error).err().filter(|error| error.code().is_some())
}

fn greeting(config: &Config, error: &RedisError) -> Error {
    // Nothing was asked for yet that could have taken effect.
    fault("connect", error).with("server", format!("{config:?}"))
}

async fn identity(config: &Config, protocol: ProtocolVersion) -> Result<RedisConnectionInfo> {
    let mut info =
        RedisConnectionInfo::default().set_db(i64::from(config.db)).set_protocol(protocol).set_lib_name(NAME.0, NAME.1);
    if let Some(user) = &config.user {
        info = info.set_username(user);
    }
    if let Some(password) = &config.password {
        info = info.set_password(password.read().await?);
    }
    Ok(info)
}
