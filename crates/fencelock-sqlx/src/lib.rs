//! Locks of [`fencelock`] in transactions of [`sqlx`]: the check of the lock and the write commit together, or not at all.
//!
//! A lock in PostgreSQL can be part of a transaction in the same database. [`Hold`] fails unless the grant is current, and keeps it from
//! ending until the transaction does: a release, an expiry and a break wait. So a process that was paused between its check and its write
//! does not write late: either its transaction holds the lock, or it fails.
//!
//! ```no_run
//! # async fn sell(client: &fencelock::Client, pool: &sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! use fencelock_sqlx::Hold;
//!
//! let guard = client.mutex("stock/42")?.acquire().await?;
//! let mut transaction = pool.begin().await?;
//! Hold::of(&guard)?.run(&mut transaction).await?;
//! sqlx::query("UPDATE stock SET left_over = left_over - 1 WHERE item = 42").execute(&mut *transaction).await?;
//! transaction.commit().await?;
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! All of this is plain SQL, which any other client can run: `docs/locks-in-postgresql.md` has its promises, above READ COMMITTED too.

use std::fmt;
use std::time::Duration;

use fencelock::{ErrorKind, FencingToken, Guard};
use sqlx::postgres::PgArguments;
use sqlx::postgres::types::PgInterval;
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, PgConnection, Postgres};

/// The grant that a transaction is to hold.
#[derive(Debug, Clone, Copy)]
#[must_use = "nothing is held before it is run"]
pub struct Hold<'a> {
    name: &'a str,
    token: FencingToken,
    limit: Option<Duration>,
    schema: &'a str,
}

impl<'a> Hold<'a> {
    /// The grant of `guard`.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for a lock of a store that gives no tokens: its grants are not kept in a database.
    pub fn of<K>(guard: &'a Guard<K>) -> fencelock::Result<Self> {
        let token = guard.token().ok_or_else(|| {
            let message = "the grant has no token: locks of this store are not in a database that a transaction could hold them in";
            fencelock::Error::new(ErrorKind::Unsupported, "hold", message).with("lock", guard.name().as_str())
        })?;
        Ok(Self::new(guard.name().as_str(), token))
    }

    /// The grant of the lock `name` that has this token.
    pub fn new(name: &'a str, token: FencingToken) -> Self {
        Self { name, token, limit: None, schema: "fencelock" }
    }

    /// Lets the server end the connection when the transaction is idle for `limit` (its `idle_in_transaction_session_timeout`): from 1 ms to 24 days,
    /// and the nearer of the two for anything else. Without it, the limit is a minute, unless that setting has another value already.
    pub fn limit(self, limit: Duration) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// The schema of the locks, where the option `schema` of the store's URL names one.
    pub fn schema(self, schema: &'a str) -> Self {
        Self { schema, ..self }
    }

    /// Holds the grant until the transaction ends. `transaction` is a [`sqlx::Transaction`], or a connection in which one was begun: outside
    /// of one, the grant is held no longer than this call. Call it first, before anything that reads or writes what the lock protects.
    ///
    /// Cancelled, it holds the grant, or does not; roll back.
    ///
    /// # Errors [`Error::NotHeld`] when the grant is not current: released, broken or lost, or, above READ COMMITTED, granted after the first
    /// statement of the transaction. [`Error::Database`] for all else: above READ COMMITTED also for a grant that ended since then (`40001`).
    /// The transaction is void either way.
    pub async fn run(self, transaction: &mut PgConnection) -> Result<(), Error> {
        let limit = self.limit.map(|limit| {
            let milliseconds = limit.as_millis().clamp(1, i32::MAX as u128);
            let microseconds = milliseconds as i64 * 1000;
            PgInterval { months: 0, days: 0, microseconds }
        });
        let hold = call(self.schema, "hold($1, $2, $3)").bind(self.name).bind(self.token.to_i64()).bind(limit);
        done(hold, transaction).await
    }
}

/// Refuses a token that is lower than the highest that was seen for this resource, and remembers the highest; `schema` is that of the locks,
/// mostly `fencelock`. For resources that are not in this transaction, and are guarded by tokens alone.
///
/// # Errors
/// [`Error::Stale`] for an older token, and [`Error::Database`].
pub async fn fence(
    connection: &mut PgConnection,
    schema: &str,
    resource: &str,
    token: FencingToken,
) -> Result<(), Error> {
    done(call(schema, "fence($1, $2)").bind(resource).bind(token.to_i64()), connection).await
}

/// Takes a lock that ends with the transaction, and waits for it as long as `lock_timeout` allows; `schema` is that of the locks, mostly
/// `fencelock`. The lock excludes its own kind alone, and no lock that a client holds. Above READ COMMITTED it is refused: the
/// transaction's reads would be older than the lock. Waiters have no order, and there is no token.
///
/// # Errors
/// [`Error::Database`].
pub async fn in_transaction(transaction: &mut PgConnection, schema: &str, name: &str) -> Result<(), Error> {
    done(call(schema, "in_transaction($1)").bind(name), transaction).await
}

fn call(schema: &str, function: &str) -> Query<'static, Postgres, PgArguments> {
    let schema = schema.replace('"', "\"\"");
    // The name of the schema is quoted, and the rest is our own.
    sqlx::query(AssertSqlSafe(format!("SELECT \"{schema}\".{function}")))
}

async fn done(query: Query<'static, Postgres, PgArguments>, connection: &mut PgConnection) -> Result<(), Error> {
    query.execute(connection).await.map(drop).map_err(Error::from)
}

/// Why a transaction must not continue.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The grant is not current (SQLSTATE `FL001`): another client may hold the lock by now.
    NotHeld(sqlx::Error),
    /// The token is older than one that was seen (SQLSTATE `FL002`), by [`fence`] or by the trigger `fencelock.fenced`.
    Stale(sqlx::Error),
    /// Anything else that the database or the way to it had to say.
    Database(sqlx::Error),
}

impl From<sqlx::Error> for Error {
    /// By the server's SQLSTATE: also for a write that the trigger `fencelock.fenced` refused.
    fn from(error: sqlx::Error) -> Self {
        match error.as_database_error().and_then(|said| said.code()).as_deref() {
            Some("FL001") => Self::NotHeld(error),
            Some("FL002") => Self::Stale(error),
            _ => Self::Database(error),
        }
    }
}

impl From<Error> for sqlx::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::NotHeld(error) | Error::Stale(error) | Error::Database(error) => error,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, error) = match self {
            Self::NotHeld(error) => ("the grant is not current", error),
            Self::Stale(error) => ("the token is older than one that was seen", error),
            Self::Database(error) => ("the database, or the way to it, failed", error),
        };
        write!(f, "{what}: {error}")
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // `Display` has already shown the error itself.
        let (Self::NotHeld(error) | Self::Stale(error) | Self::Database(error)) = self;
        error.source()
    }
}
