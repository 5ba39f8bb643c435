//! A connection to a server: its requests and its end.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::future;
use tokio::task::AbortHandle;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{AsyncMessage, Client, NoTls, Row, SimpleQueryMessage, SimpleQueryRow, Statement};

use super::dial::{Plain, Stream, dial};
use super::fault::{Own, fault, fault_in};
use super::link::Postgres;
use super::setup::{DIRECT, called};
use super::url::Address;
use crate::error::Result;
use crate::kit::database::User;
use crate::kit::database::call::{self, Calls, Cell, ConnectionState, Param};
use crate::kit::database::link::Dialler;
use crate::store::Tasks;
use crate::time::Clock;

type Function = (String, Vec<Type>, Option<Statement>);

struct Traffic {
    clock: Arc<dyn Clock>,
    waiting: Arc<()>,
    answers: AtomicUsize,
    /// The shortest time from a request to its answer, in nanoseconds: the round trip, because some requests take the server no time.
    way: AtomicU64,
}

pub(super) struct Connection {
    client: Client,
    /// The functions of the schema by name; unset until the connection has found the schema.
    functions: OnceLock<HashMap<&'static str, Function>>,
    /// Begins each transaction behind a pooler. Locked while the parts of a transaction are sent.
    pooled: Mutex<Option<String>>,
    traffic: Arc<Traffic>,
    tasks: Mutex<Vec<AbortHandle>>,
    /// The number of further releases that call the procedure `leave`, because other sessions waited lately.
    pub(super) contended: AtomicUsize,
    state: ConnectionState,
}

impl Connection {
    pub(super) async fn open(
        by: &Dialler<Postgres>,
        server: &Address,
        number: u64,
        tasks: &Tasks,
    ) -> Result<Arc<Self>> {
        let config = &*by.config;
        let mut settings = tokio_postgres::Config::new();
        settings.user(&config.user).dbname(&config.database).application_name(&config.application);
        if !config.pooled.load(Ordering::Relaxed) {
            settings.options(DIRECT);
        }
        if let Some(password) = &config.password {
            settings.password(password.read().await?);
        }
        let shown = config.shown(server);
        let greet = async |stream: Stream| {
            settings.connect_raw(stream, NoTls).await.map_err(|error| fault("connect", &error).with("server", &shown))
        };
        let (client, wire) = dial(config, server, &*by.clock, greet).await?;
        let (clock, waiting, answers) = (Arc::clone(&by.clock), Arc::default(), AtomicUsize::new(0));
        let traffic = Arc::new(Traffic { clock, waiting, answers, way: AtomicU64::new(u64::MAX) });
        let silence = given_up(Arc::clone(&traffic), by.silence);
        let end = End { user: Arc::clone(&by.user), number, server: shown };
        let task = tasks.spawn(drive(end, wire, silence));
        Ok(Arc::new(Self {
            client,
            functions: OnceLock::new(),
            pooled: Mutex::default(),
            traffic,
            tasks: Mutex::new(vec![task]),
            contended: AtomicUsize::new(0),
            state: ConnectionState { number, ..ConnectionState::default() },
        }))
    }

    pub(super) fn keep_doing(&self, chores: impl Future<Output = ()> + Send + 'static, tasks: &Tasks) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(tasks.spawn(chores));
    }

    pub(super) fn pooled(&self) -> MutexGuard<'_, Option<String>> {
        self.pooled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for an answer, and counts it. An abandoned wait counts nothing.
    async fn answered<T>(&self, answer: impl Future<Output = T>) -> T {
        let Traffic { clock, waiting, answers, way } = &*self.traffic;
        let (_waiting, sent) = (Arc::clone(waiting), clock.now());
        let answer = answer.await;
        answers.fetch_add(1, Ordering::Relaxed);
        way.fetch_min(clock.now().as_nanos() - sent.as_nanos(), Ordering::Relaxed);
        answer
    }

    async fn sent_whole<T>(&self, request: impl Future<Output = T>) -> T {
        let mut request = pin!(request);
        let sent = poll_fn(|cx| {
            let _alone = self.pooled();
            request.as_mut().poll(cx)
        });
        self.answered(sent).await
    }

    pub(super) async fn simple(&self, operation: &'static str, sql: &str) -> Result<Vec<SimpleQueryRow>> {
        let settings = self.pooled().clone().unwrap_or_default();
        let messages = self.sent_whole(self.client.simple_query(&format!("{settings}{sql}"))).await;
        let row = |message| if let SimpleQueryMessage::Row(row) = message { Some(row) } else { None };
        let rows = messages.map_err(|error| fault(operation, &error))?.into_iter().filter_map(row);
        Ok(rows.skip(settings.matches("SELECT").count()).collect())
    }

    /// Runs statements, and returns rows as lines of two values with a tab between them.
    pub(super) async fn lines(&self, sql: &str) -> Result<String> {
        let value = |row: &SimpleQueryRow, at| row.get(at).unwrap_or_default().to_owned();
        Ok(self.simple("ask", sql).await?.iter().map(|row| format!("{}\t{}\n", value(row, 0), value(row, 1))).collect())
    }

    pub(super) async fn query(
        &self,
        operation: &'static str,
        sql: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
        own: Own<'_>,
    ) -> Result<Vec<Row>> {
        let (settings, asked) = (self.pooled().clone(), self.client.query_typed(sql, parameters));
        let rows = match settings {
            None => self.answered(asked).await,
            Some(settings) => {
                let begin = format!("BEGIN ISOLATION LEVEL READ COMMITTED; {settings}");
                // A pooler does not report a crash, so no crash may undo a release. After an error the server skips the rest of a
                // message, so COMMIT, which ends a failed transaction too, is a message of its own.
                let durable = self.client.batch_execute("SET LOCAL synchronous_commit = on");
                let end = self.client.batch_execute("COMMIT");
                let all = future::join4(self.client.batch_execute(&begin), asked, durable, end);
                let (begun, rows, durable, ended) = self.sent_whole(all).await;
                begun.and(rows).and_then(|rows| durable.and(ended).map(|()| rows))
            }
        };
        rows.map_err(|error| {
            if error.code().is_some_and(|code| code.code() == "FL006") {
                self.tasks.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(AbortHandle::abort);
            }
            fault_in(operation, &error, own)
        })
    }

    pub(super) async fn prepare(&self, schema: &str) -> Result<()> {
        let is_pooled = self.pooled().is_some();
        let prepared = called().map(|(name, types, call)| async move {
            let arguments: Vec<String> = (1..=types.len()).map(|number| format!("${number}")).collect();
            let sql = format!("{call} {schema}.{name}({})", arguments.join(", "));
            let kept = if is_pooled { None } else { Some(self.client.prepare(&sql).await?) };
            Ok((name, (sql, types.into_iter().map(type_of).collect(), kept)))
        });
        let prepared = self.answered(future::try_join_all(prepared)).await.map_err(|error| fault("connect", &error))?;
        // Prepared once, when the connection is made.
        let _ = self.functions.set(prepared.into_iter().collect());
        let _ = self.state.schema.set(());
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner).iter().for_each(AbortHandle::abort);
    }
}

fn type_of(name: &str) -> Type {
    match name {
        "bigint" => Type::INT8,
        "bigint[]" => Type::INT8_ARRAY,
        "integer" => Type::INT4,
        "integer[]" => Type::INT4_ARRAY,
        "boolean" => Type::BOOL,
        "boolean[]" => Type::BOOL_ARRAY,
        "bytea" => Type::BYTEA,
        "text[]" => Type::TEXT_ARRAY,
        _ => Type::TEXT,
    }
}

impl Calls for Connection {
    fn state(&self) -> &ConnectionState {
        &self.state
    }

    fn is_alive(&self) -> bool {
        !self.client.is_closed()
    }

    /// Adds a call for each millisecond of the round trip. A pooler promises no order of transactions.
    fn calls_at_once(&self) -> usize {
        let further = self.traffic.way.load(Ordering::Relaxed) / 1_000_000;
        if self.pooled().is_some() { 1 } else { 1 + further.min(3) as usize }
    }

    async fn call(
        &self,
        operation: &'static str,
        function: &'static str,
        params: Vec<Param<'_>>,
    ) -> Result<Vec<call::Row>> {
        let params: Vec<_> = params.iter().map(|param| param as &(dyn ToSql + Sync)).collect();
        let known = self.functions.get().and_then(|all| all.get(function)).ok_or_else(|| call::strange(operation))?;
        let rows = if let (_, _, Some(kept)) = known {
            let answer = self.client.query(kept, &params);
            self.answered(answer).await.map_err(|error| fault(operation, &error))?
        } else {
            let params: Vec<_> = params.into_iter().zip(known.1.iter().cloned()).collect();
            self.query(operation, &known.0, &params, &|_| None).await?
        };
        let cells = |row: &Row| (0..row.len()).map(|at| value(operation, row, at)).collect::<Result<_>>();
        rows.iter().map(|row| Ok(call::Row { operation, cells: cells(row)? })).collect()
    }
}

type Refusal = Box<dyn std::error::Error + Sync + Send>;

impl ToSql for Param<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Refusal> {
        let number = |number: i64, out: &mut BytesMut| match *ty {
            Type::INT2 => i16::try_from(number)?.to_sql(ty, out),
            Type::INT4 => i32::try_from(number)?.to_sql(ty, out),
            _ => number.to_sql(ty, out),
        };
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Flag(flag) => flag.to_sql(ty, out),
            Self::Number(value) => number(value.cast_signed(), out),
            Self::Signed(value) => number(*value, out),
            Self::Text(text) => text.to_sql(ty, out),
            Self::Bytes(bytes) => bytes.to_sql(ty, out),
            Self::List(values) => values.to_sql(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Cell {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Refusal> {
        let wide = |numbers: Vec<i32>| numbers.into_iter().map(i64::from).collect();
        Ok(match *ty {
            Type::VOID => Self::Null,
            Type::BOOL => Self::Number(bool::from_sql(ty, raw)?.into()),
            Type::INT4 => Self::Number(i32::from_sql(ty, raw)?.into()),
            Type::INT8 => Self::Number(i64::from_sql(ty, raw)?),
            Type::INT4_ARRAY => Self::Numbers(wide(Vec::from_sql(ty, raw)?)),
            Type::INT8_ARRAY => Self::Numbers(Vec::from_sql(ty, raw)?),
            _ => Self::Text(raw.to_vec()),
        })
    }

    fn from_sql_null(_: &Type) -> Result<Self, Refusal> {
        Ok(Self::Null)
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

pub(super) fn value<'a, T: FromSql<'a>>(operation: &'static str, row: &'a Row, column: usize) -> Result<T> {
    row.try_get(column).map_err(|_| call::strange(operation))
}

async fn drive(end: End, wire: tokio_postgres::Connection<Stream, Plain>, silence: impl Future<Output = ()> + Send) {
    // `wire` is dropped before `end`, so the connection is closed when the user receives its end.
    let mut wire = wire;
    let driver = poll_fn(|cx| {
        loop {
            match wire.poll_message(cx) {
                Poll::Ready(Some(Ok(AsyncMessage::Notification(notification)))) => {
                    end.user.receive(end.number, notification.payload().as_bytes());
                }
                // The notice says that the server cannot be identified, see `_mark()` in `schema.sql`.
                Poll::Ready(Some(Ok(AsyncMessage::Notice(said)))) if said.code().code() == "FL005" => {
                    tracing::warn!(server = end.server, "{}", said.message());
                }
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
    tokio::select! {
        biased;
        () = driver => {}
        () = silence => {}
    }
}

struct End {
    user: Arc<dyn User<Connection>>,
    number: u64,
    server: String,
}

impl Drop for End {
    fn drop(&mut self) {
        self.user.disconnected(self.number);
    }
}

async fn given_up(traffic: Arc<Traffic>, patience: Duration) {
    let (mut quiet, mut before) = (0, 0);
    loop {
        traffic.clock.sleep_until(traffic.clock.now().after(patience / 2)).await;
        let answers = traffic.answers.load(Ordering::Relaxed);
        let is_quiet = Arc::strong_count(&traffic.waiting) > 1 && answers == before;
        quiet = if is_quiet { quiet + 1 } else { 0 };
        before = answers;
        if quiet == 2 {
            tracing::debug!(?patience, "a connection without an answer is given up");
            return;
        }
    }
}
