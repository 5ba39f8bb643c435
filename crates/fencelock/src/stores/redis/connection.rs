//! One connection: requests that share it, and the one task that drives it, watches over it and looks after the waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{
    AsyncConnectionConfig, Cmd, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo, RedisError, RedisResult,
    Value,
};
use tokio::io::AsyncReadExt;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::config::Config;
use super::dial::dial;
use super::fault::{fault, is_of_a_replica, is_old_protocol, is_unknown_script};
use super::push::{Hub, Over};
use super::scripts::{self, Call};
use super::server::Server;
use crate::engine::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::store::Tasks;

/// How many requests may be on their way to the task that sends them; more wait for room.
const ROOM: usize = 4096;

/// How long a server that hung up gets to say why, and how many bytes of that are read.
const WORDS: Duration = Duration::from_millis(100);
const WORDS_MOST: u64 = 4096;

/// What a connection shows of itself in `CLIENT LIST`.
const NAME: (&str, &str) = ("fencelock", env!("CARGO_PKG_VERSION"));

/// One connection to the server. Dropped, it is closed, whatever is on its way.
pub(super) struct Connection {
    wire: MultiplexedConnection,
    traffic: Arc<Traffic>,
    task: AbortHandle,
    /// Of the session that it serves.
    hub: Option<Arc<Hub>>,
}

/// What goes on on a connection.
#[derive(Default)]
struct Traffic {
    /// Requests whose callers wait, or have not looked at the answer yet.
    waiting: AtomicUsize,
    /// Answers that callers looked at.
    heard: AtomicUsize,
    ended: AtomicBool,
}

/// A caller that waits for its answer.
struct Waiting<'a>(&'a Traffic);

impl<'a> Waiting<'a> {
    fn new(traffic: &'a Traffic) -> Self {
        traffic.waiting.fetch_add(1, Ordering::Relaxed);
        Self(traffic)
    }
}

impl Waiting<'_> {
    fn answered(self) {
        self.0.heard.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a connection serves, besides requests: the messages to a session.
#[derive(Clone)]
pub(super) struct Ears {
    pub(super) hub: Arc<Hub>,
    pub(super) channel: String,
    /// The number of the connection.
    pub(super) number: u64,
}

/// What is awaited besides requests, until the connection ends.
pub(super) type Chores = futures_core::future::BoxFuture<'static, ()>;

impl Connection {
    /// Connects, and says who we are; `tasks` drive the connection. With `ears`, subscribes to the session's channel. The sender in the answer starts the
    /// chores that are sent through it.
    pub(super) async fn open(
        config: &Config,
        ears: Option<&Ears>,
        clock: &Arc<dyn Clock>,
        silence: Duration,
        tasks: &Tasks,
    ) -> Result<(Self, oneshot::Sender<Chores>)> {
        let greeted = match shake(config, ProtocolVersion::RESP3, ears).await {
            Ok(Some((wire, driver))) => Ok((wire, driver, None)),
            Ok(None) => older(config, ears).await,
            Err(error) => Err(error),
        };
        let (wire, driver, pubsub) = match greeted {
            Ok(greeted) => greeted,
            Err(error) if error.kind() == ErrorKind::Unreachable => {
                return Err(unasked(config, &**clock).await.map_or(error, |said| greeting(config, &said)));
            }
            Err(error) => return Err(error),
        };
        // Otherwise the second connection is subscribed already.
        let subscribes_itself = pubsub.is_none();
        let traffic = Arc::new(Traffic::default());
        let (chores, receiver) = oneshot::channel();
        let task = drive(
            (wire.clone(), driver),
            pubsub,
            receiver,
            ears.cloned(),
            Arc::clone(&traffic),
            Arc::clone(clock),
            silence,
        );
        let hub = ears.map(|ears| Arc::clone(&ears.hub));
        let connection = Self { wire, traffic, task: tasks.spawn(task), hub };
        if let Some(ears) = ears.filter(|_| subscribes_itself) {
            let mut subscribe = redis::cmd("SUBSCRIBE");
            connection.command("subscribe", subscribe.arg(&ears.channel)).await?;
        }
        Ok((connection, chores))
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.traffic.ended.load(Ordering::Acquire)
    }

    /// What the server says of itself; nothing if that is forbidden.
    pub(super) async fn server(&self) -> Result<Server> {
        match self.send(&redis::cmd("INFO")).await {
            Ok(Value::BulkString(info)) => Ok(Server::read(&String::from_utf8_lossy(&info))),
            Ok(Value::VerbatimString { text, .. }) => Ok(Server::read(&text)),
            Ok(_) => Ok(Server::default()),
            Err(error) if error.code() == Some("NOPERM") => {
                tracing::warn!(
                    "the user may not run INFO: whether the server evicts keys is not seen, and every new connection counts as a restart, which costs the locks"
                );
                Ok(Server::default())
            }
            Err(error) => Err(fault("connect", &error)),
        }
    }

    /// Makes sure that the server knows the scripts.
    pub(super) async fn load_scripts(&self) -> Result<()> {
        let mut pipeline = redis::pipe();
        for script in scripts::all() {
            pipeline.add_command(script.load());
        }
        let count = pipeline.len();
        let waiting = Waiting::new(&self.traffic);
        let loaded = self.wire.clone().send_packed_commands(&pipeline, 0, count).await;
        waiting.answered();
        let loaded =
            loaded.and_then(|values| values.into_iter().map(Value::extract_error).collect::<RedisResult<Vec<_>>>());
        loaded.map(drop).map_err(|error| fault("load scripts", &error))
    }

    /// Runs a script. One that the server forgot is loaded, and run once more.
    pub(super) async fn run<R>(&self, operation: &'static str, call: &Call<R>) -> Result<R> {
        let mut answer = self.send(call.command()).await;
        if answer.as_ref().is_err_and(is_unknown_script) {
            self.command(operation, &call.script().load()).await?;
            answer = self.send(call.command()).await;
        }
        match answer {
            Ok(value) => call.read(value),
            Err(error) => Err(fault(operation, &error)),
        }
    }

    /// Sends one command.
    pub(super) async fn command(&self, operation: &'static str, command: &Cmd) -> Result<Value> {
        self.send(command).await.map_err(|error| fault(operation, &error))
    }

    async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        let waiting = Waiting::new(&self.traffic);
        let answer = self.wire.clone().send_packed_command(command).await;
        waiting.answered();
        let answer = answer.and_then(Value::extract_error);
        if answer.as_ref().is_err_and(is_of_a_replica) {
            self.is_a_replica();
        }
        answer
    }

    /// Another server decides now, and may not have heard of all that this one granted: nothing of the session can be relied on any more, not
    /// even if this one is made the primary again, with the other one's data. Ends the connection, so that the next request makes one, to wherever
    /// the address leads by then.
    fn is_a_replica(&self) {
        if self.hub.as_ref().is_some_and(|hub| hub.end(Over::Here)) {
            tracing::warn!("the server is a replica now: the session and its locks are lost");
        }
        self.traffic.ended.store(true, Ordering::Release);
        self.task.abort();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Driver = futures_core::future::BoxFuture<'static, ()>;

/// Greets the server in this protocol; `None` when it only knows the older one.
async fn shake(
    config: &Config,
    protocol: ProtocolVersion,
    ears: Option<&Ears>,
) -> Result<Option<(MultiplexedConnection, Driver)>> {
    let stream = dial(config).await?;
    // Who waits has a deadline of its own: an answer that is late is still an answer.
    let mut settings = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(ROOM);
    if let Some(ears) = ears.filter(|_| protocol != ProtocolVersion::RESP2) {
        let ears = ears.clone();
        settings = settings.set_push_sender(move |push: PushInfo| {
            hear(&ears, push);
            Ok::<_, redis::aio::SendError>(())
        });
    }
    match MultiplexedConnection::new_with_config(&identity(config, protocol), stream, settings).await {
        Ok((wire, driver)) => Ok(Some((wire, Box::pin(driver)))),
        Err(error) if protocol != ProtocolVersion::RESP2 && is_old_protocol(&error) => Ok(None),
        Err(error) => Err(greeting(config, &error)),
    }
}

/// A server that knows the older protocol only: messages come on a second connection.
async fn older(config: &Config, ears: Option<&Ears>) -> Result<(MultiplexedConnection, Driver, Option<PubSub>)> {
    let Some((wire, driver)) = shake(config, ProtocolVersion::RESP2, None).await? else {
        return Err(Error::new(ErrorKind::Internal, "connect", "the older protocol needs no HELLO"));
    };
    let Some(ears) = ears else { return Ok((wire, driver, None)) };
    tracing::debug!(server = ?config, "the server knows RESP2 only: messages come on a second connection");
    let pubsub = PubSub::new(&identity(config, ProtocolVersion::RESP2), dial(config).await?).await;
    let mut pubsub = pubsub.map_err(|error| greeting(config, &error))?;
    pubsub.subscribe(&ears.channel).await.map_err(|error| fault("subscribe", &error))?;
    Ok((wire, driver, Some(pubsub)))
}

/// What a server says that hangs up on whoever comes (there are too many clients, it is in protected mode). It does so before
/// it is asked, and whoever has asked meanwhile never reads it.
async fn unasked(config: &Config, clock: &dyn Clock) -> Option<RedisError> {
    let mut said = Vec::new();
    let mut stream = dial(config).await.ok()?.take(WORDS_MOST);
    tokio::select! {
        _ = stream.read_to_end(&mut said) => {}
        () = clock.sleep_until(clock.now().after(WORDS)) => {}
    }
    redis::parse_redis_value(&said).and_then(Value::extract_error).err().filter(|error| error.code().is_some())
}

fn greeting(config: &Config, error: &RedisError) -> Error {
    // Nothing was asked for yet that could have taken effect.
    fault("connect", error).with("server", format!("{config:?}"))
}

fn identity(config: &Config, protocol: ProtocolVersion) -> RedisConnectionInfo {
    let mut info =
        RedisConnectionInfo::default().set_db(i64::from(config.db)).set_protocol(protocol).set_lib_name(NAME.0, NAME.1);
    if let Some(user) = &config.user {
        info = info.set_username(user);
    }
    if let Some(password) = &config.password {
        info = info.set_password(password);
    }
    info
}

fn hear(ears: &Ears, push: PushInfo) {
    if push.kind == PushKind::Message
        && let Some(Value::BulkString(message)) = push.data.get(1)
    {
        ears.hub.heard(ears.number, message);
    }
}

/// The task of a connection: everything that is awaited on its behalf.
async fn drive(
    (wire, driver): (MultiplexedConnection, Driver),
    pubsub: Option<PubSub>,
    chores: oneshot::Receiver<Chores>,
    ears: Option<Ears>,
    traffic: Arc<Traffic>,
    clock: Arc<dyn Clock>,
    patience: Duration,
) {
    let chores = async {
        if let Ok(chores) = chores.await {
            chores.await;
        }
        std::future::pending::<()>().await;
    };
    // Told however it ends: also when the task is dropped.
    let _told = Told { traffic: &traffic, ears: ears.as_ref() };
    // The driver first: mostly it is what woke the task.
    tokio::select! {
        biased;
        () = driver => {}
        () = messages(pubsub, ears.as_ref(), &*clock, patience) => {}
        () = silence(wire, &traffic, &*clock, patience) => tracing::debug!(?patience, "a connection without an answer is given up"),
        () = chores => {}
    }
}

struct Told<'a> {
    traffic: &'a Traffic,
    ears: Option<&'a Ears>,
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.traffic.ended.store(true, Ordering::Release);
        if let Some(ears) = self.ears {
            ears.hub.disconnected(ears.number);
        }
    }
}

/// Hears messages on a second connection, until it ends, or answers nothing any more: nobody else asks anything there.
async fn messages(pubsub: Option<PubSub>, ears: Option<&Ears>, clock: &dyn Clock, patience: Duration) {
    let (Some(pubsub), Some(ears)) = (pubsub, ears) else { return std::future::pending().await };
    let (sink, mut stream) = pubsub.split();
    let ping = || {
        let mut sink = sink.clone();
        async move { sink.ping().await }
    };
    let heard = async {
        while let Some(message) = stream.next().await {
            ears.hub.heard(ears.number, message.get_payload_bytes());
        }
    };
    tokio::select! {
        () = heard => {}
        () = unanswered(|| Some(ping()), || 0, clock, patience) => {
            tracing::debug!(?patience, "a connection for messages that answers nothing is given up");
        }
    }
}

/// Completes when a question is not answered for half of `patience`, nor anything else `heard`; asks as often, if it likes.
async fn unanswered<A>(ask: impl Fn() -> Option<A>, heard: impl Fn() -> usize, clock: &dyn Clock, patience: Duration)
where
    A: Future<Output = RedisResult<Value>>,
{
    loop {
        clock.sleep_until(clock.now().after(patience / 2)).await;
        let before = heard();
        let Some(question) = ask() else { continue };
        let answered = tokio::select! {
            biased;
            // A refusal is an answer, too: the server is busy.
            answer = question => answer.map_or_else(|error| error.code().is_some(), |_| true),
            () = clock.sleep_until(clock.now().after(patience / 2)) => heard() != before,
        };
        if !answered {
            return;
        }
    }
}

/// Completes when somebody waits, and neither a question is answered nor anything that was asked before it. Whoever stands
/// still and looks at no answer waits as well, so waiting alone proves nothing.
async fn silence(wire: MultiplexedConnection, traffic: &Traffic, clock: &dyn Clock, patience: Duration) {
    let ping = || {
        let mut wire = wire.clone();
        let is_waited_for = traffic.waiting.load(Ordering::Relaxed) > 0;
        is_waited_for.then_some(async move { wire.send_packed_command(&redis::cmd("PING")).await })
    };
    unanswered(ping, || traffic.heard.load(Ordering::Relaxed), clock, patience).await;
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::io::AsyncWriteExt;
    use tokio::sync::mpsc;

    use super::*;
    use crate::engine::clock::SystemClock;
    use crate::stores::memory::VirtualClock;

    /// Answers so many questions, and swallows the others.
    async fn answer(mut stream: tokio::io::DuplexStream, mut pings: usize) {
        let mut asked = [0; 4096];
        while let Ok(read @ 1..) = stream.read(&mut asked).await {
            let text = String::from_utf8_lossy(&asked[..read]).into_owned();
            for command in text.split('*').skip(1) {
                let answer: &[u8] = match command.contains("PING") {
                    true if pings == 0 => continue,
                    true => b"*2\r\n$4\r\npong\r\n$0\r\n\r\n",
                    false => b"+OK\r\n",
                };
                pings -= usize::from(command.contains("PING"));
                stream.write_all(answer).await.unwrap();
            }
        }
    }

    #[tokio::test]
    async fn a_connection_for_messages_that_answers_nothing_any_more_is_given_up_and_no_sooner() {
        let (ours, theirs) = tokio::io::duplex(4096);
        let server = tokio::spawn(answer(theirs, 3));
        let info = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP2);
        let pubsub = PubSub::new(&info, ours).await.unwrap();
        let hub = Arc::new(Hub::new(mpsc::unbounded_channel().0));
        let ears = Ears { hub, channel: String::new(), number: 1 };
        let patience = Duration::from_secs(1);
        let start = SystemClock.now();
        let given_up = messages(Some(pubsub), Some(&ears), &SystemClock, patience);
        tokio::time::timeout(Duration::from_secs(60), given_up).await.expect("it is given up");
        assert!(SystemClock.now().since(start) >= patience / 2 * 5, "it was given up while it answered");
        server.abort();
    }

    /// Whether a connection that answers no question is given up within ten times its patience, if so much is heard of it.
    fn is_given_up(heard: impl Fn() -> usize) -> bool {
        let (clock, patience) = (VirtualClock::new(), Duration::from_secs(1));
        let given_up = unanswered(|| Some(std::future::pending()), heard, &clock, patience);
        let mut given_up = std::pin::pin!(given_up);
        (0..20).any(|_| {
            let is_over = given_up.as_mut().now_or_never().is_some();
            clock.advance(patience / 2);
            is_over
        })
    }

    #[test]
    fn a_connection_that_answers_what_was_asked_before_is_not_silent() {
        let answers = AtomicUsize::new(0);
        assert!(!is_given_up(|| answers.fetch_add(1, Ordering::Relaxed)));
        assert!(is_given_up(|| 0));
    }
}
