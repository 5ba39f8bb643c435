//! The replicas' acknowledgement of an answer: `min_replicas` of them have all earlier writes of the server.
//!
//! `WAIT` holds up the connection that sends it, so a second connection sends it. The server waits for the last write of that connection
//! alone. So the connection writes first: a message on a channel without subscribers, which the server copies to its replicas behind all
//! that the server did before. A node of a Cluster copies no messages, so a script writes a key there. Callers at the same time share one such round.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, RedisResult, Value};
use tokio::sync::{Mutex, mpsc};
use tokio::task::AbortHandle;

use crate::error::{Error, ErrorKind, Result};
use crate::store::Tasks;
use crate::stores::redis::cluster::key_in;
use crate::stores::redis::wire::{
    Call, Config, Connection, Naming, Script, Server, Subscription, fault, is_denied, is_unknown_command, shake_hands,
};
use crate::time::{Clock, outcome_before};

/// The requests whose answers say what this client has: until the replicas have it, the client must not believe them.
const CONFIRMING: &[&str] =
    &["open session", "resume session", "enter", "next", "look", "renew", "downgrade", "lighten"];

const TOO_FEW: &str = "the server answered, and fewer replicas than `min_replicas` have acknowledged it in time: the answer does not count";
const NO_WAIT: &str =
    "the server knows no WAIT, so that replicas acknowledge nothing: `min_replicas=0` in the URL leaves that out";
const WAIT_IS_DENIED: &str = "the user may not run WAIT and PUBLISH, so that replicas acknowledge nothing: `+wait +publish` in its rules, or `min_replicas=0` in the URL";
const ANOTHER: &str =
    "a second connection, on which replicas are waited for, leads to another server, or the user may not run INFO";

/// Writes a key of a node of a Cluster, for a minute. After a removal the server allows a script to write without free memory.
static MARK: LazyLock<Script> = LazyLock::new(|| {
    Script::new("mark", "redis.call('DEL', KEYS[1]) return redis.call('SET', KEYS[1], '', 'PX', 60000)")
});

/// Whether the answer of this request counts only with the replicas' word.
pub(crate) fn needs_replicas(operation: &str) -> bool {
    CONFIRMING.contains(&operation)
}

/// The second connection to a server, for the acknowledgement of its replicas.
pub(crate) struct Replicas {
    wire: MultiplexedConnection,
    task: AbortHandle,
    wanted: u32,
    /// For how long the server waits for them.
    time: Duration,
    clock: Arc<dyn Clock>,
    /// The server gave no answer for too long.
    is_silent: AtomicBool,
    channel: String,
    /// Whether the server is a node of a Cluster. If the connection is for a slot, the name of the channel is that of a key in the slot.
    is_node: bool,
    /// How many callers have come.
    callers: AtomicU64,
    /// The value of `callers` when the last round began, and the round's outcome.
    last: Mutex<(u64, Result<(), Arc<Error>>)>,
}

impl Replicas {
    /// Opens a second connection to the process that `server` describes.
    pub(crate) async fn open(
        config: &Config,
        server: &Server,
        channel: Option<String>,
        (clock, patience): (&Arc<dyn Clock>, Duration),
        tasks: &Tasks,
    ) -> Result<Self> {
        let (wire, driver) = shake_hands(config, None, &**clock).await?;
        let task = tasks.spawn(driver);
        let channel = channel.unwrap_or_else(|| "fencelock".to_owned()) + ":replicas";
        let (callers, last) = (AtomicU64::new(0), Mutex::new((0, Ok(()))));
        let (wanted, clock, is_silent) = (config.min_replicas, Arc::clone(clock), AtomicBool::default());
        let is_node = config.naming == Naming::Cluster;
        // A renewal gives a part of a Cluster half of the time: a silent connection must be noticed before.
        let time = patience / if is_node { 4 } else { 2 };
        let replicas = Self { wire, task, wanted, time, clock, is_silent, channel, is_node, callers, last };
        let mut wire = replicas.wire.clone();
        let info = wire.send_packed_command(&redis::cmd("INFO")).await.and_then(Value::extract_error);
        if !info.is_ok_and(|info| Server::answered(info).is_same_process(server)) {
            return Err(Error::new(ErrorKind::Unreachable, "connect", ANOTHER).retryable());
        }
        replicas.ask(0, 1, None).await.map(|_| replicas).map_err(|error| meant(&error))
    }

    /// Completes once enough replicas have everything that the server did before this call. `slot` is that of the request, if it goes by a route.
    pub(crate) async fn acknowledged(&self, slot: Option<u16>) -> Result<()> {
        let number = self.callers.fetch_add(1, Ordering::Relaxed) + 1;
        let mut last = self.last.lock().await;
        if last.0 < number {
            let callers = self.callers.load(Ordering::Relaxed);
            let milliseconds = u64::try_from(self.time.as_millis()).unwrap_or(u64::MAX).max(1);
            let limit = self.clock.now().after(self.time * 2);
            let answer = outcome_before(&*self.clock, limit, self.ask(self.wanted, milliseconds, slot)).await;
            self.is_silent.fetch_or(answer.is_none(), Ordering::Relaxed);
            // The server's error can be about the slot of this caller alone.
            let shared = if slot.is_some() && matches!(answer, Some(Err(_))) { number } else { callers };
            let outcome = match answer.unwrap_or(Ok(0)) {
                Ok(count) if count >= i64::from(self.wanted) => Ok(()),
                Ok(count) => Err(too_few(self.wanted, count)),
                Err(error) => Err(meant(&error)),
            };
            *last = (shared, outcome.map_err(Arc::new));
        }
        last.1.clone().map_err(|error| error.again())
    }

    /// Whether the connection for acknowledgements has ended, or is silent.
    pub(crate) fn has_ended(&self) -> bool {
        self.task.is_finished() || self.is_silent.load(Ordering::Relaxed)
    }

    async fn ask(&self, wanted: u32, milliseconds: u64, slot: Option<u16>) -> RedisResult<i64> {
        let mut round = redis::pipe();
        match self.is_node {
            true if wanted == 0 => round.cmd("PING"),
            true => {
                let key = slot.map_or_else(|| self.channel.clone(), key_in);
                let write = Call::<Value>::new(&MARK, &[key], Ok);
                round.add_command(MARK.load()).add_command(write.command)
            }
            false => round.cmd("PUBLISH").arg(&self.channel).arg(""),
        };
        round.cmd("WAIT").arg(wanted).arg(milliseconds);
        let mut count = Value::Nil;
        for answer in self.wire.clone().send_packed_commands(&round, 0, round.len()).await? {
            count = answer.extract_error()?;
        }
        Ok(redis::from_redis_value(count)?)
    }
}

impl Drop for Replicas {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn too_few(wanted: u32, count: i64) -> Error {
    Error::new(ErrorKind::Unreachable, "wait for replicas", TOO_FEW)
        .with("min_replicas", wanted)
        .with("acknowledged", count)
        .outcome_unknown()
        .retryable()
}

/// The meaning of an error in the place of the replicas' word.
fn meant(error: &redis::RedisError) -> Error {
    let refused = |kind, message| Error::new(kind, "wait for replicas", message).with("cause", error.to_string());
    match error {
        error if is_unknown_command(error) => refused(ErrorKind::Unsupported, NO_WAIT).outcome_unknown(),
        error if is_denied(error) => refused(ErrorKind::Denied, WAIT_IS_DENIED).outcome_unknown(),
        error if error.code().is_none() => fault("wait for replicas", error),
        _ => refused(ErrorKind::Unreachable, "the server does not say what its replicas have")
            .outcome_unknown()
            .retryable(),
    }
}

/// Messages of the server that wait for the replicas' word.
pub(crate) type Messages = (Subscription, mpsc::UnboundedReceiver<PushInfo>);

/// Whether a message grants a place. All other messages are hints, or report a loss.
fn may_grant(push: &PushInfo) -> bool {
    matches!(push.data.last(), Some(Value::BulkString(text)) if text.windows(3).any(|line| line == b"\ng "))
}

/// Passes messages on in order, once the replicas have the reported writes. Without that, a message that grants counts as lost.
pub(crate) async fn hand_on(connection: std::sync::Weak<Connection>, (subscription, mut messages): Messages) {
    let mut some = Vec::new();
    while messages.recv_many(&mut some, 64).await > 0 {
        let Some(connection) = connection.upgrade() else { return };
        match connection.counts("next", None).await {
            Ok(()) => some.drain(..).for_each(|push| subscription.pushed(&push)),
            Err(error) => {
                tracing::warn!(%error, "A message of the server does not count.");
                some.drain(..).filter(|push| !may_grant(push)).for_each(|push| subscription.pushed(&push));
            }
        }
    }
}
