//! A connection, which serves one request at a time, and its task.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use mysql_async::prelude::{FromValue, Queryable};
use mysql_async::{Conn, Error as DriverError, Params, Row, Value, from_row_opt};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use super::fault::{cut_short, fault, fault_of, not_sent, panicked, too_large};
use super::link::Mysql;
use crate::error::Result;
use crate::kit::database::call::{self, Calls, Cell, ConnectionState, Param};
use crate::kit::database::link::Dialler;
use crate::kit::database::{Chores, User};
use crate::kit::fault::Meaning;
use crate::store::Tasks;
use crate::time::Clock;

const TRIES: u32 = 8;

const SLEEP: &str = "CALL fencelock_listen";

/// A request, and the channel of its answer. The request runs to its end even if its caller is gone: to drop a driver's query half-way
/// would cost the connection.
struct Query {
    sql: String,
    arguments: Option<Vec<Value>>,
    reply: oneshot::Sender<Result<QueryAnswer, DriverError>>,
}

pub(super) struct QueryAnswer {
    pub(super) rows: Vec<Row>,
    pub(super) matched: u64,
}

pub(super) struct Connection {
    jobs: mpsc::UnboundedSender<Query>,
    ended: Arc<AtomicBool>,
    task: AbortHandle,
    /// The largest request: after a larger one the server ends the connection.
    pub(super) largest: AtomicU64,
    pub(super) state: ConnectionState,
}

impl Connection {
    /// Connects; `tasks` drive the connection. A request without an answer for the silence of `by` ends the connection. The returned sender
    /// starts the chores that it receives.
    pub(super) async fn open(
        by: &Dialler<Mysql>,
        number: u64,
        tasks: &Tasks,
    ) -> Result<(Self, oneshot::Sender<Chores>)> {
        let (config, silence) = (&by.config, by.silence);
        // The system counts keepalive in whole seconds.
        let options = config.options().await?.tcp_keepalive(Some(silence.max(Duration::from_secs(1))));
        let options = options.client_found_rows(!by.purpose.needs_schema());
        let wire = AssertUnwindSafe(Conn::new(options)).catch_unwind().await;
        let wire = wire.map_err(|said| panicked(&*said).with("server", format_args!("{config:?}")))?;
        let wire = wire.map_err(|error| fault("connect", &error).with("server", format_args!("{config:?}")))?;
        let (jobs, receiver) = mpsc::unbounded_channel();
        let (chores, started) = oneshot::channel();
        let ended = Arc::new(AtomicBool::new(false));
        let end = EndGuard { ended: Arc::clone(&ended), user: Arc::clone(&by.user), number };
        let task = tasks.spawn(drive(wire, receiver, started, end, Arc::clone(&by.clock), silence));
        let state = ConnectionState { number, ..ConnectionState::default() };
        Ok((Self { jobs, ended, task, largest: AtomicU64::new(u64::MAX), state }, chores))
    }

    pub(super) async fn simple(&self, operation: &'static str, sql: &str) -> Result<Vec<Row>> {
        let answer = self.send(sql.to_owned(), None).await;
        answer.ok_or_else(|| not_sent(operation))?.map(|answer| answer.rows).map_err(|error| fault(operation, &error))
    }

    /// Runs a statement, and returns rows as lines of two values with a tab between them.
    pub(super) async fn lines(&self, sql: &str) -> Result<String> {
        let line = |row| from_row_opt::<(String, String)>(row).map(|(name, value)| format!("{name}\t{value}\n"));
        self.simple("ask", sql).await?.into_iter().map(line).collect::<Result<_, _>>().map_err(|_| cut_short("ask"))
    }

    pub(super) async fn version(&self) -> Result<Option<Vec<Row>>> {
        match self.send("CALL fencelock_version()".to_owned(), None).await {
            None => Err(not_sent("connect")),
            Some(Err(DriverError::Server(error))) if error.code == 1305 => Ok(None),
            Some(Ok(answer)) if answer.rows.is_empty() => Err(cut_short("connect")),
            Some(answer) => answer.map(|answer| Some(answer.rows)).map_err(|error| fault("connect", &error)),
        }
    }

    /// Calls the procedure that sleeps. Returns `None` if `KILL QUERY` woke the connection.
    pub(super) async fn sleep(&self, arguments: Vec<Value>) -> Result<Option<Row>> {
        let answer = self.send(format!("{SLEEP}(?,?,?,?)"), Some(arguments)).await;
        match answer.ok_or_else(|| not_sent("listen"))? {
            Ok(answer) => answer.rows.into_iter().next().map(Some).ok_or_else(|| cut_short("listen")),
            Err(DriverError::Server(error)) if error.code == 1317 => Ok(None),
            Err(error) => Err(fault("listen", &error)),
        }
    }

    pub(super) async fn run(
        &self,
        operation: &'static str,
        sql: &str,
        arguments: Vec<Value>,
        meant: &(dyn Fn(u16) -> Option<Meaning> + Sync),
    ) -> Result<QueryAnswer> {
        let answer = self.settled(operation, sql, arguments).await?;
        answer.map_err(|error| fault_of(operation, &error, meant))
    }

    /// Sends a request again while the server undoes the request in favour of another one (1213; 1020 with `innodb_snapshot_isolation`).
    async fn settled(
        &self,
        operation: &'static str,
        sql: &str,
        arguments: Vec<Value>,
    ) -> Result<Result<QueryAnswer, DriverError>> {
        let mut undone = 0;
        loop {
            let answer = self.send(sql.to_owned(), Some(arguments.clone())).await;
            match answer.ok_or_else(|| not_sent(operation))? {
                Err(DriverError::Server(error)) if matches!(error.code, 1213 | 1020) && undone < TRIES => undone += 1,
                answer => return Ok(answer),
            }
        }
    }

    async fn send(&self, sql: String, arguments: Option<Vec<Value>>) -> Option<Result<QueryAnswer, DriverError>> {
        let (reply, answer) = oneshot::channel();
        self.jobs.send(Query { sql, arguments, reply }).ok()?;
        answer.await.ok()
    }
}

const LISTING: [&str; 3] = ["show", "names", "breaks"];

impl Calls for Connection {
    fn state(&self) -> &ConnectionState {
        &self.state
    }

    fn is_alive(&self) -> bool {
        !self.ended.load(Ordering::Acquire)
    }

    /// Repeats a request that the server undid in favour of another one: the request changed nothing. An answer without a row means that a
    /// `KILL QUERY` ended the request half-way, which MariaDB may report as a success. Then the connection ends, for its transaction may be
    /// open.
    async fn call(
        &self,
        operation: &'static str,
        function: &'static str,
        params: Vec<Param<'_>>,
    ) -> Result<Vec<call::Row>> {
        let sql = format!("CALL fencelock_{function}({})", vec!["?"; params.len()].join(","));
        let arguments: Vec<Value> = params.into_iter().map(value).collect();
        // A call has less than 128 bytes besides its arguments.
        if arguments.iter().map(Value::bin_len).sum::<u64>() + 128 > self.largest.load(Ordering::Relaxed) {
            return Err(too_large(operation));
        }
        let answer = self.settled(operation, &sql, arguments).await?;
        let rows = answer.map_err(|error| fault(operation, &error))?.rows;
        if rows.is_empty() && !LISTING.contains(&function) {
            self.task.abort();
            return Err(cut_short(operation));
        }
        let cells = |row: &Row| (0..row.len()).filter_map(|at| row.as_ref(at).map(cell)).collect();
        Ok(rows.iter().map(|row| call::Row { operation, cells: cells(row) }).collect())
    }
}

fn value(param: Param<'_>) -> Value {
    match param {
        Param::Null => Value::NULL,
        Param::Flag(flag) => flag.into(),
        Param::Number(number) => number.into(),
        Param::Signed(number) => number.into(),
        Param::Text(text) => text.into_owned().into(),
        Param::Bytes(bytes) => bytes.into(),
        Param::List(numbers) => {
            let text = |number| if let Param::Number(number) = number { Some(number.to_string()) } else { None };
            numbers.into_iter().filter_map(text).collect::<Vec<_>>().join(",").into()
        }
    }
}

fn cell(value: &Value) -> Cell {
    match value {
        Value::Int(number) => Cell::Number(*number),
        Value::UInt(number) => Cell::Number(number.cast_signed()),
        Value::Bytes(text) => Cell::Text(text.clone()),
        _ => Cell::Null,
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(super) fn column<T: FromValue>(operation: &'static str, row: &Row, at: usize) -> Result<T> {
    row.get_opt(at).and_then(Result::ok).ok_or_else(|| call::strange(operation))
}

async fn drive(
    wire: Conn,
    jobs: mpsc::UnboundedReceiver<Query>,
    chores: oneshot::Receiver<Chores>,
    _end: EndGuard,
    clock: Arc<dyn Clock>,
    silence: Duration,
) {
    let chores = async {
        if let Ok(chores) = chores.await {
            chores.await;
        }
        std::future::pending::<()>().await;
    };
    // Requests first: most wake-ups are for them.
    tokio::select! {
        biased;
        () = serve(wire, jobs, clock, silence) => {}
        () = chores => {}
    }
}

async fn serve(mut wire: Conn, mut jobs: mpsc::UnboundedReceiver<Query>, clock: Arc<dyn Clock>, silence: Duration) {
    while let Some(job) = jobs.recv().await {
        // The caller is gone, and nothing was sent.
        if job.reply.is_closed() {
            continue;
        }
        let sleeps = job.sql.starts_with(SLEEP);
        let answer = tokio::select! {
            biased;
            answer = ask(&mut wire, job.sql, job.arguments) => answer,
            () = clock.sleep_until(clock.now().after(silence)) => {
                tracing::debug!(?silence, "a connection without an answer is given up");
                Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into())
            }
        };
        let is_over = answer.as_ref().is_err_and(|error| error.is_fatal() || !sleeps && may_have_left_open(error));
        // Its caller may have gone.
        let _ = job.reply.send(answer);
        if is_over {
            return;
        }
    }
}

/// Whether the request may have left its transaction open, with the rows that it locked: a request that another client ended between two
/// statements of a procedure runs no handler. The server ends the transaction with the connection.
fn may_have_left_open(error: &DriverError) -> bool {
    matches!(error, DriverError::Server(error) if matches!(error.code, 1317 | 1028 | 3024 | 1969 | 1568))
}

async fn ask(wire: &mut Conn, sql: String, arguments: Option<Vec<Value>>) -> Result<QueryAnswer, DriverError> {
    let rows = match arguments {
        None => wire.query_iter(sql).await?.collect_and_drop().await?,
        Some(arguments) => {
            let arguments = if arguments.is_empty() { Params::Empty } else { Params::Positional(arguments) };
            wire.exec_iter(sql, arguments).await?.collect_and_drop().await?
        }
    };
    Ok(QueryAnswer { rows, matched: wire.affected_rows() })
}

struct EndGuard {
    ended: Arc<AtomicBool>,
    user: Arc<dyn User<Connection>>,
    number: u64,
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        self.user.disconnected(self.number);
    }
}
