//! Questions to one Sentinel: which server is the primary, and messages about another primary.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisError, RedisResult, Value};
use tokio::sync::mpsc;

use crate::error::{Error, ErrorKind, Result};
use crate::kit::address::HostPort;
use crate::stores::redis::wire::{Config, Pushed, is_denied, is_unknown_command, shake_hands};
use crate::time::{Clock, outcome_before};

/// The channels on which a Sentinel says that a replica was promoted, and that the Sentinel names another primary.
const NEWS: [&str; 2] = ["+promoted-slave", "+switch-master"];
/// The time after which a silent Sentinel is given up.
const SILENCE: Duration = Duration::from_secs(10);

const NO_SENTINEL: &str = "this is a Redis server and no Sentinel: Sentinels listen on port 26379 by default; for one server write redis://host:6379/0";
const IN_A_CLUSTER: &str = "this is a node of a Redis Cluster and no Sentinel: write redis+cluster://host1:6379,host2,host3 with some of its nodes";
const OTHER_NAME: &str = "the Sentinel watches no primary of this name: write one of those that it knows behind the servers, as in redis+sentinel://host1,host2,host3/NAME";
const DENIED: &str = "the Sentinel, and not the primary, refuses the user or the password: `sentinel_user` and `sentinel_password_file` are for Sentinels. docs/stores.md has the rules of such a user";

/// A primary as one Sentinel names it.
pub(crate) struct Named {
    /// The number of this configuration: a later configuration has a higher number.
    pub(super) epoch: u64,
    pub(super) server: HostPort,
}

/// Asks a Sentinel for the primary `name`.
pub(super) async fn ask(config: &Config, name: &str, clock: &dyn Clock) -> Result<Named> {
    connected(config, None, clock, async |mut wire| named(&mut wire, name).await).await
}

/// Completes once a Sentinel names a primary that `is_other`. An error means that the Sentinel sends no more messages. A message is a hint to ask.
pub(super) async fn watch(
    config: &Config,
    name: &str,
    is_other: impl Fn(&Named) -> bool,
    clock: &dyn Clock,
) -> Result<()> {
    let (sender, mut news) = mpsc::channel(1);
    // A single hint in the channel is enough: the reader asks the Sentinel anyway.
    let pushed: Pushed = Arc::new(move |_| sender.try_send(()).unwrap_or_default());
    connected(config, Some(&pushed), clock, async |mut wire| {
        let mut subscribe = redis::cmd("SUBSCRIBE");
        subscribe.arg(&NEWS);
        // Without the right to subscribe, the client looks from time to time.
        let subscribed = outcome_before(clock, clock.now().after(SILENCE), answer(&mut wire, &subscribe)).await;
        drop(subscribed.ok_or_else(lost)?);
        loop {
            let named = outcome_before(clock, clock.now().after(SILENCE), named(&mut wire, name)).await;
            if is_other(&named.ok_or_else(lost)??) {
                return Ok(());
            }
            outcome_before(clock, clock.now().after(SILENCE), news.recv()).await;
        }
    })
    .await
}

/// Runs `requests` on a connection to a Sentinel.
async fn connected<T>(
    config: &Config,
    pushed: Option<&Pushed>,
    clock: &dyn Clock,
    requests: impl AsyncFnOnce(MultiplexedConnection) -> Result<T>,
) -> Result<T> {
    // A Sentinel that is stopped accepts connections, and answers nothing.
    let greeted = outcome_before(clock, clock.now().after(SILENCE), shake_hands(config, pushed, clock)).await;
    let (wire, driver) = greeted.ok_or_else(lost)?.map_err(|error| match error.kind() {
        ErrorKind::Denied => Error::new(ErrorKind::Denied, "connect", DENIED).caused_by(error),
        _ => error,
    })?;
    tokio::select! {
        answer = requests(wire) => answer,
        () = driver => Err(lost()),
    }
}

fn lost() -> Error {
    Error::new(ErrorKind::Unreachable, "connect", "the Sentinel hung up or gives no answer").retryable()
}

async fn answer(wire: &mut MultiplexedConnection, command: &redis::Cmd) -> RedisResult<Value> {
    wire.send_packed_command(command).await?.extract_error()
}

async fn named(wire: &mut MultiplexedConnection, name: &str) -> Result<Named> {
    // The number first: the address is as new, or newer.
    let about = match asked(wire, &["MASTER", name]).await {
        // Without the number no message would count.
        Err(error) if is_denied(&error) => return Err(refused(&error, NO_SENTINEL)),
        about => about.ok().and_then(read::<HashMap<String, Value>>),
    };
    let epoch = about.and_then(|mut about| read(about.remove("config-epoch")?)).unwrap_or(0);
    let address = match asked(wire, &["GET-MASTER-ADDR-BY-NAME", name]).await {
        Ok(address) => address,
        Err(error) => {
            let is_clustered = answer(wire, redis::cmd("CLUSTER").arg("INFO")).await.is_ok();
            return Err(refused(&error, if is_clustered { IN_A_CLUSTER } else { NO_SENTINEL }));
        }
    };
    if let Some((host, port)) = read(address) {
        return Ok(Named { epoch, server: HostPort { host, port } });
    }
    let known = asked(wire, &["MASTERS"]).await.ok().and_then(read::<Vec<HashMap<String, Value>>>).unwrap_or_default();
    let known = known.into_iter().filter_map(|mut about| read::<String>(about.remove("name")?));
    let error = Error::new(ErrorKind::Config, "connect", OTHER_NAME).with("name", name);
    Err(error.with("known", known.collect::<Vec<_>>().join(" ")))
}

async fn asked(wire: &mut MultiplexedConnection, words: &[&str]) -> RedisResult<Value> {
    answer(wire, redis::cmd("SENTINEL").arg(words)).await
}

fn read<T: redis::FromRedisValue>(value: Value) -> Option<T> {
    redis::from_redis_value(value).ok()
}

fn refused(error: &RedisError, no_sentinel: &'static str) -> Error {
    let refused = |kind, message| Error::new(kind, "connect", message).with("cause", error.to_string());
    match error.code() {
        Some("NOPERM" | "NOAUTH") => refused(ErrorKind::Denied, DENIED),
        Some(_) if is_unknown_command(error) => refused(ErrorKind::Unsupported, no_sentinel),
        _ => refused(ErrorKind::Unreachable, "the Sentinel does not name the primary").retryable(),
    }
}
