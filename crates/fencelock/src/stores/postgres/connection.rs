//! One connection: requests that share it, and the task that drives it.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::future;
use tokio::sync::{Mutex, oneshot};
use tokio::task::AbortHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, NoTls, Row, SimpleQueryMessage, Statement};

use super::dial::{Plain, Stream, dial};
use super::fault::fault;
use super::url::{Address, Config};
use crate::error::{Error, ErrorKind, Result};
use crate::store::Tasks;
use crate::time::Clock;

/// What is done on a connection besides requests, until it ends. Chores hold the connection weakly, or it would never be closed.
pub(super) type Chores = BoxFuture<'static, ()>;

/// Who a connection is made for.
pub(super) trait User: Send + Sync {
    /// Says the first words on a new connection, whose server is fit and has our schema by then.
    fn greet<'a>(&'a self, connection: &'a Arc<Connection>) -> BoxFuture<'a, Result<Option<Chores>>>;

    /// Something was told on the connection of this number.
    fn heard(&self, _connection: u64, _message: &str) {}

    /// The connection of this number ended.
    fn disconnected(&self, _connection: u64) {}
}

/// The functions of the schema that clients call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Call {
    Open,
    Resume,
    Unknown,
    Renew,
    Enter,
    Leave,
    Lighten,
    Withdraw,
    Look,
    Listen,
    Contention,
    Show,
    Names,
    Break,
    Breaks,
    Close,
    ClearUp,
    Ring,
    Keepers,
}

impl Call {
    /// Each, with the name of its function and how many arguments that takes.
    pub(super) const ALL: [(Self, &'static str, usize); 19] = [
        (Self::Open, "open", 6),
        (Self::Resume, "resume", 2),
        (Self::Unknown, "unknown", 2),
        (Self::Renew, "renew", 3),
        (Self::Enter, "enter", 10),
        (Self::Leave, "leave", 6),
        (Self::Lighten, "lighten", 6),
        (Self::Withdraw, "withdraw", 4),
        (Self::Look, "look", 6),
        (Self::Listen, "listen", 1),
        (Self::Contention, "contention", 3),
        (Self::Show, "show", 4),
        (Self::Names, "names", 3),
        (Self::Break, "break_grant", 7),
        (Self::Breaks, "breaks", 1),
        (Self::Close, "close", 1),
        (Self::ClearUp, "clear_up", 1),
        (Self::Ring, "ring", 0),
        (Self::Keepers, "keepers", 0),
    ];

    /// Those that change nothing.
    pub(super) const LOOKS: [Self; 4] = [Self::Contention, Self::Show, Self::Names, Self::Breaks];

    /// Whether somebody may be granted by it, who is told by the call of `ring` that follows in the same message.
    fn rings(self) -> bool {
        matches!(self, Self::Leave | Self::Lighten | Self::Break)
    }
}

/// What goes on on a connection.
#[derive(Default)]
struct Traffic {
    /// Requests whose callers wait.
    waiting: AtomicUsize,
    /// Answers so far.
    heard: AtomicUsize,
    ended: AtomicBool,
}

struct Waiting<'a>(&'a Traffic);

impl<'a> Waiting<'a> {
    fn new(traffic: &'a Traffic) -> Self {
        traffic.waiting.fetch_add(1, Ordering::Relaxed);
        Self(traffic)
    }
}

impl Waiting<'_> {
    /// The caller looks at its answer. One that gives up has heard nothing.
    fn answered(self) {
        self.0.heard.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One connection to the server. Dropped, it is closed, whatever is on its way.
pub(super) struct Connection {
    client: Client,
    /// What the schema's functions are called with; none while the schema is not known to be there.
    statements: OnceLock<HashMap<Call, Statement>>,
    traffic: Arc<Traffic>,
    task: AbortHandle,
    /// Which process of the server this is said to be with; 0 for an unknown one.
    process: Arc<AtomicI32>,
    /// The URL of the server, without secrets.
    pub(super) server_name: String,
    /// Which connection of its link it is, from 1; 0 for one that belongs to none.
    pub(super) number: u64,
    ear: Mutex<()>,
    hears: AtomicBool,
}

impl Connection {
    /// Connects for `user`; `tasks` drive the connection, which is given up when somebody waited for `silence` and no answer came. The sender in the answer starts the chores that are sent through it.
    pub(super) async fn open(
        config: &Config,
        server: &Address,
        user: Arc<dyn User>,
        number: u64,
        clock: Arc<dyn Clock>,
        silence: Duration,
        tasks: &Tasks,
    ) -> Result<(Self, oneshot::Sender<Chores>)> {
        let mut settings = tokio_postgres::Config::new();
        settings.user(&config.user).dbname(&config.database).application_name(&config.application);
        if let Some(password) = &config.password {
            settings.password(password.read().await?);
        }
        let greet = async |stream: Stream| {
            let process = stream.process();
            match settings.connect_raw(stream, NoTls).await {
                Ok((client, wire)) => Ok((client, wire, process)),
                Err(error) => Err(fault("connect", &error).with("server", config.shown(server))),
            }
        };
        let (client, wire, process) = dial(config, server, &*clock, greet).await?;
        let traffic = Arc::new(Traffic::default());
        let (chores, receiver) = oneshot::channel();
        let silence = given_up(Arc::clone(&traffic), clock, silence);
        let task = tasks.spawn(drive(wire, receiver, user, number, Arc::clone(&traffic), silence));
        let connection = Self {
            client,
            statements: OnceLock::new(),
            traffic,
            task,
            process,
            server_name: config.shown(server),
            number,
            ear: Mutex::default(),
            hears: AtomicBool::new(false),
        };
        Ok((connection, chores))
    }

    /// Which process of the server this is said to be with, where that is known. A pooler says a number of its own.
    pub(super) fn process(&self) -> Option<i32> {
        Some(self.process.load(Ordering::Acquire)).filter(|process| *process != 0)
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.traffic.ended.load(Ordering::Acquire) && !self.client.is_closed()
    }

    /// Runs statements that the server does not keep; the rows of the last one that has any, as text.
    pub(super) async fn simple(&self, operation: &'static str, sql: &str) -> Result<Vec<Vec<Option<String>>>> {
        let waiting = Waiting::new(&self.traffic);
        let messages = self.client.simple_query(sql).await;
        waiting.answered();
        let messages = messages.map_err(|error| fault(operation, &error))?;
        let row = |message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|column| row.get(column).map(str::to_owned)).collect())
            }
            _ => None,
        };
        Ok(messages.into_iter().filter_map(row).collect())
    }

    /// Has the server prepare the calls, all in one round trip.
    pub(super) async fn prepare(&self, schema: &str, calls: &[Call]) -> Result<()> {
        let waiting = Waiting::new(&self.traffic);
        let prepared =
            Call::ALL.iter().filter(|(call, ..)| calls.contains(call)).map(|(call, name, count)| async move {
                let arguments: Vec<String> = (1..=*count).map(|number| format!("${number}")).collect();
                let sql = format!("SELECT * FROM {schema}.{name}({})", arguments.join(", "));
                self.client.prepare(&sql).await.map(|statement| (*call, statement))
            });
        let prepared = future::try_join_all(prepared).await;
        waiting.answered();
        let prepared = prepared.map_err(|error| fault("connect", &error))?;
        // Prepared once, when the connection is made.
        let _ = self.statements.set(prepared.into_iter().collect());
        Ok(())
    }

    /// Whether the schema was there when the connection was made.
    pub(super) fn has_schema(&self) -> bool {
        self.statements.get().is_some()
    }

    fn statement(&self, operation: &'static str, call: Call) -> Result<&Statement> {
        let found = self.statements.get().and_then(|statements| statements.get(&call));
        found.ok_or_else(|| {
            Error::new(ErrorKind::Internal, operation, "a function was called on a connection that does not know it")
        })
    }

    /// Calls a function of the schema.
    pub(super) async fn call(
        &self,
        operation: &'static str,
        call: Call,
        arguments: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>> {
        let waiting = Waiting::new(&self.traffic);
        let mut asked = pin!(self.client.query(self.statement(operation, call)?, arguments));
        let rows = if call.rings() {
            // Sent in the same message, in a transaction of its own. Nobody waits for its answer.
            let mut ring = Some(Box::pin(self.client.query(self.statement(operation, Call::Ring)?, &[])));
            poll_fn(|cx| {
                let answer = asked.as_mut().poll(cx);
                if let Some(mut ring) = ring.take() {
                    let _ = ring.as_mut().poll(cx);
                }
                answer
            })
            .await
        } else {
            asked.await
        };
        waiting.answered();
        match rows {
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                let told = fault(operation, &error);
                Err(match self.keepers().await {
                    Some(who) => told.with("kept by", who),
                    None => told,
                })
            }
            rows => rows.map_err(|error| fault(operation, &error)),
        }
    }

    /// Who keeps our rows, as far as can be seen: asked after a request that waited for them in vain.
    async fn keepers(&self) -> Option<String> {
        let statement = self.statement("look", Call::Keepers).ok()?;
        let waiting = Waiting::new(&self.traffic);
        let rows = self.client.query(statement, &[]).await;
        waiting.answered();
        rows.ok()?.first()?.try_get(0).ok().flatten()
    }

    /// Calls a function that answers one value.
    pub(super) async fn ask<T>(
        &self,
        operation: &'static str,
        call: Call,
        arguments: &[&(dyn ToSql + Sync)],
    ) -> Result<T>
    where
        T: for<'a> tokio_postgres::types::FromSql<'a>,
    {
        let rows = self.call(operation, call, arguments).await?;
        rows.first().and_then(|row| row.try_get(0).ok()).ok_or_else(|| strange(operation))
    }

    /// Whether what is told to `channel` is heard here.
    pub(super) fn hears(&self) -> bool {
        self.hears.load(Ordering::SeqCst)
    }

    /// From now on hears what is told to `channel`.
    pub(super) async fn listen(&self, channel: &str) -> Result<()> {
        let _one = self.ear.lock().await;
        if !self.hears() {
            self.call("listen", Call::Listen, &[&channel]).await?;
            self.hears.store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Hears nothing any more, unless somebody needs it by then: every commit with a NOTIFY wakes all who listen, whatever they listen to.
    pub(super) async fn deafen(&self, is_needed: impl Fn() -> bool + Send) -> Result<()> {
        let _one = self.ear.lock().await;
        if !self.hears.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        if is_needed() {
            self.hears.store(true, Ordering::SeqCst);
            return Ok(());
        }
        self.simple("listen", "UNLISTEN *").await.map(drop)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The server answered what none of these functions answers.
pub(super) fn strange(operation: &'static str) -> Error {
    let message =
        "the server answered what none of these functions answers: the schema is of another release, or damaged";
    Error::new(ErrorKind::Layout, operation, message).outcome_unknown()
}

/// The task of a connection: everything that is awaited on its behalf.
async fn drive(
    mut wire: tokio_postgres::Connection<Stream, Plain>,
    chores: oneshot::Receiver<Chores>,
    user: Arc<dyn User>,
    number: u64,
    traffic: Arc<Traffic>,
    silence: impl Future<Output = ()> + Send,
) {
    let chores = async {
        if let Ok(chores) = chores.await {
            chores.await;
        }
        std::future::pending::<()>().await;
    };
    // Told however it ends: also when the task is dropped.
    let _told = Told { traffic: &traffic, user: &*user, number };
    let driver = poll_fn(|cx| {
        loop {
            match wire.poll_message(cx) {
                Poll::Ready(Some(Ok(AsyncMessage::Notification(told)))) => user.heard(number, told.payload()),
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(error))) => {
                    tracing::debug!(%error, "a connection ended");
                    return Poll::Ready(());
                }
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    });
    // The driver first: mostly it is what woke the task.
    tokio::select! {
        biased;
        () = driver => {}
        () = silence => {}
        () = chores => {}
    }
}

struct Told<'a> {
    traffic: &'a Traffic,
    user: &'a dyn User,
    number: u64,
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.traffic.ended.store(true, Ordering::Release);
        self.user.disconnected(self.number);
    }
}

/// Completes when somebody waits for an answer, and none came for as long as `patience`, or half as long more.
async fn given_up(traffic: Arc<Traffic>, clock: Arc<dyn Clock>, patience: Duration) {
    let (mut quiet, mut heard) = (0, 0);
    loop {
        clock.sleep_until(clock.now().after(patience / 2)).await;
        let now = traffic.heard.load(Ordering::Relaxed);
        let is_quiet = traffic.waiting.load(Ordering::Relaxed) > 0 && now == heard;
        quiet = if is_quiet { quiet + 1 } else { 0 };
        heard = now;
        if quiet == 2 {
            tracing::debug!(?patience, "a connection without an answer is given up");
            return;
        }
    }
}
