//! Statements for named locks of MariaDB and MySQL (`GET_LOCK`), by the names of other programs. `kit/database/session_locks.rs` has the rest.

mod key;

use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use mysql_async::Value;
use mysql_async::prelude::FromValue;

pub(super) use self::key::Keys;
use super::connection::{Connection, column};
use super::fault::cut_short;
use super::link::Mysql;
use super::setup::is_cluster;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::database::session_locks::{Asking, SessionLocks, contender, least};
use crate::kit::fault::{Meaning, refused};
use crate::kit::try_again::TryAgainSession;
use crate::name::Name;
use crate::store::{Capability, Contender, Peer, Presumption, RequestId};

pub(super) static CAPABILITY: LazyLock<Capability> = LazyLock::new(|| Capability {
    presumes: &[Presumption::EndsAreHeard, Presumption::NoTakeover],
    detection_slack: Duration::from_secs(2),
    same_as: &[Peer::DistributedLockNet, Peer::WithAdvisoryLock, Peer::SessionLock],
    ..least("mysql", "named locks of sessions, by GET_LOCK")
});

const LOOK: Duration = Duration::from_millis(200);

const NOT_HERE: &str = "the server is a node of a cluster (Galera), where a named lock holds on one node alone or is refused: say `layout=distributed_lock`";

/// The server's errors with another meaning here. 1235 is Galera's refusal, 1105 that of Percona's strict mode.
fn meant(code: u16) -> Option<Meaning> {
    matches!(code, 1105 | 1235).then(|| refused(ErrorKind::Unsupported, NOT_HERE))
}

async fn cell<T: FromValue>(
    connection: &Connection,
    operation: &'static str,
    sql: &str,
    arguments: Vec<Value>,
) -> Result<T> {
    let rows = connection.run(operation, sql, arguments, &meant).await?.rows;
    column(operation, rows.first().ok_or_else(|| cut_short(operation))?, 0)
}

impl SessionLocks for Keys {
    type Database = Mysql;
    type Key = String;

    const KIND: &'static str = "named lock";
    const CAPABILITY: &'static LazyLock<Capability> = &CAPABILITY;

    fn key(&self, operation: &'static str, name: &Name) -> Result<String> {
        self.of(operation, name)
    }

    async fn begin(&self, connection: &Connection, ttl: Duration) -> Result<u64> {
        if is_cluster(connection).await? {
            return Err(Error::new(ErrorKind::Unsupported, "connect", NOT_HERE));
        }
        let silence = format!("SET SESSION wait_timeout = {}", ttl.as_secs() + 1);
        connection.simple("open session", &silence).await?;
        self.process(connection).await
    }

    async fn process(&self, connection: &Connection) -> Result<u64> {
        cell(connection, "renew", "SELECT CONNECTION_ID()", Vec::new()).await
    }

    async fn take(
        &self,
        connection: &Connection,
        operation: &'static str,
        key: &String,
        is_in_doubt: bool,
    ) -> Result<bool> {
        let sql = "SELECT IF(IS_USED_LOCK(?) <=> CONNECTION_ID(), 2, GET_LOCK(?, 0))";
        match cell::<Option<i64>>(connection, operation, sql, vec![key.as_str().into(), key.as_str().into()]).await? {
            Some(1) => Ok(true),
            Some(2) => Ok(is_in_doubt),
            Some(_) => Ok(false),
            None => {
                let message = "the server gave no named lock: it has no memory, or another client ended the request";
                Err(Error::new(ErrorKind::Exhausted, operation, message).retryable())
            }
        }
    }

    async fn give_up(&self, connection: &Connection, operation: &'static str, key: &String) -> Result<bool> {
        let sql = "SELECT RELEASE_LOCK(?)";
        Ok(cell::<Option<i64>>(connection, operation, sql, vec![key.as_str().into()]).await? == Some(1))
    }

    /// Sends an empty statement at intervals: only a request shows the end of the connection.
    async fn watch(connection: Weak<Connection>, session: Arc<TryAgainSession<Asking<Self>>>) {
        let clock = &session.opening.clock;
        loop {
            clock.sleep_until(clock.now().after(LOOK)).await;
            let Some(connection) = connection.upgrade() else { return };
            if !session.backend.holds_nothing() {
                // Its failure ends the connection, which reports that.
                let _ = connection.simple("renew", "DO 0").await;
            }
        }
    }

    /// The holder, as far as the server shows it to this user. The server does not list waiters.
    async fn contenders(&self, connection: &Connection, key: &String) -> Result<Vec<Contender>> {
        let sql = "SELECT l.id, COALESCE(p.USER, '?'), COALESCE(p.HOST, '?') FROM (SELECT IS_USED_LOCK(?) AS id) AS l \
             LEFT JOIN information_schema.PROCESSLIST AS p ON p.ID = l.id WHERE l.id IS NOT NULL";
        let rows = connection.run("queue", sql, vec![key.as_str().into()], &meant).await?.rows;
        let holder = |row| {
            let process: u64 = column("queue", row, 0)?;
            let (user, host): (String, String) = (column("queue", row, 1)?, column("queue", row, 2)?);
            let who = format!("{user} at {host} (connection {process} of the server)");
            Ok(contender(RequestId { client: process, number: 0 }, who, true))
        };
        rows.iter().map(holder).collect()
    }

    async fn names(&self, _: &Connection) -> Result<Vec<Name>> {
        let message = "the server lists no named locks: ask for one by its name";
        Err(Error::new(ErrorKind::Unsupported, "names", message))
    }
}
