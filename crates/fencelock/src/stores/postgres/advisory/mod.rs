//! Statements for advisory locks of PostgreSQL, by the keys of other programs. `kit/database/session_locks.rs` has the rest.

mod key;

use std::sync::LazyLock;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use self::key::Key;
pub(super) use self::key::Keys;
use super::connection::{Connection, value};
use super::link::Postgres;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::database::call::strange;
use crate::kit::database::session_locks::{SessionLocks, contender, least};
use crate::name::Name;
use crate::store::{Capability, Contender, Peer, Presumption, RequestId};

pub(super) static CAPABILITY: LazyLock<Capability> = LazyLock::new(|| Capability {
    presumes: &[Presumption::EndsAreHeard, Presumption::NoTakeover],
    // Before PostgreSQL 14 the network's own timers end a session, which count in seconds.
    detection_slack: Duration::from_secs(5),
    same_as: &[Peer::DistributedLockNet, Peer::WithAdvisoryLock, Peer::SessionLock],
    ..least("postgres", "advisory locks of sessions: a bigint, or a pair of integers")
});

impl Key {
    fn argument(self) -> String {
        match self {
            Self::Big(number) => format!("({number}::int8)"),
            Self::Pair(first, second) => format!("({first}::int4, {second}::int4)"),
        }
    }

    fn rows(self) -> String {
        let (class, object, kind) = match self {
            Self::Big(number) => (number.cast_unsigned() >> 32, number.cast_unsigned() & 0xffff_ffff, 1),
            Self::Pair(first, second) => (u64::from(first.cast_unsigned()), u64::from(second.cast_unsigned()), 2),
        };
        format!("{HERE} AND l.classid::int8 = {class} AND l.objid::int8 = {object} AND l.objsubid = {kind}")
    }
}

const HERE: &str = "l.locktype = 'advisory' AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())";

async fn cell<T: for<'a> FromSql<'a>>(connection: &Connection, operation: &'static str, sql: &str) -> Result<T> {
    let rows = connection.query(operation, sql, &[], &|_| None).await?;
    value(operation, rows.first().ok_or_else(|| strange(operation))?, 0)
}

fn ends_after(ttl: Duration) -> String {
    let (idle, seconds) = (ttl.as_millis().max(1), ttl.as_secs() + 1);
    let between = (seconds / 6).clamp(1, 3);
    let count = seconds / between + 1;
    format!(
        "SELECT pg_catalog.set_config(s.name, w.value, false) FROM pg_catalog.pg_settings AS s JOIN (VALUES ('idle_session_timeout', '{idle}'), \
         ('tcp_keepalives_idle', '{}'), ('tcp_keepalives_interval', '{between}'), ('tcp_keepalives_count', '{count}'), \
         ('tcp_user_timeout', '{}')) AS w (name, value) ON w.name = s.name",
        (seconds / 2).max(1),
        seconds * 1000
    )
}

impl SessionLocks for Keys {
    type Database = Postgres;
    type Key = Key;

    const KIND: &'static str = "advisory lock";
    const CAPABILITY: &'static LazyLock<Capability> = &CAPABILITY;

    fn key(&self, operation: &'static str, name: &Name) -> Result<Key> {
        self.of(operation, name)
    }

    async fn begin(&self, connection: &Connection, ttl: Duration) -> Result<u64> {
        if connection.pooled().is_some() {
            let message = "an advisory lock lasts as long as a connection of the server, which the pooler before it gives to other clients: name the server itself, or use layout=fair";
            return Err(Error::new(ErrorKind::Unsupported, "connect", message));
        }
        connection.simple("open session", &ends_after(ttl)).await?;
        self.process(connection).await
    }

    async fn process(&self, connection: &Connection) -> Result<u64> {
        cell::<i32>(connection, "renew", "SELECT pg_backend_pid()").await.map(|process| process.unsigned_abs().into())
    }

    async fn take(
        &self,
        connection: &Connection,
        operation: &'static str,
        key: &Key,
        is_in_doubt: bool,
    ) -> Result<bool> {
        let take = format!("pg_catalog.pg_try_advisory_lock{}", key.argument());
        let sql = match is_in_doubt {
            false => format!("SELECT {take}"),
            true => format!(
                "SELECT CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_locks AS l WHERE {} AND l.granted AND l.pid = pg_backend_pid()) THEN true ELSE {take} END",
                key.rows()
            ),
        };
        cell(connection, operation, &sql).await
    }

    async fn give_up(&self, connection: &Connection, operation: &'static str, key: &Key) -> Result<bool> {
        cell(connection, operation, &format!("SELECT pg_catalog.pg_advisory_unlock{}", key.argument())).await
    }

    async fn contenders(&self, connection: &Connection, key: &Key) -> Result<Vec<Contender>> {
        let sql = format!(
            "SELECT l.pid, l.granted, COALESCE(a.application_name, ''), COALESCE(host(a.client_addr), ''), \
             COALESCE(extract(epoch FROM a.backend_start) * 1000000, 0)::int8 FROM pg_catalog.pg_locks AS l \
             LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid WHERE {} ORDER BY l.granted DESC, l.pid",
            key.rows()
        );
        let rows = connection.query("queue", &sql, &[], &|_| None).await?;
        rows.iter().map(process).collect()
    }

    async fn names(&self, connection: &Connection) -> Result<Vec<Name>> {
        let sql = format!(
            "SELECT DISTINCT l.classid::int8, l.objid::int8, l.objsubid FROM pg_catalog.pg_locks AS l WHERE {HERE}"
        );
        let rows = connection.query("names", &sql, &[], &|_| None).await?;
        let key = |row: &Row| -> Option<Key> {
            let (class, object): (i64, i64) = (row.try_get(0).ok()?, row.try_get(1).ok()?);
            Some(match row.try_get::<_, i16>(2).ok()? {
                1 => Key::Big(class << 32 | object),
                _ => Key::Pair(class as i32, object as i32),
            })
        };
        Ok(rows.iter().filter_map(|row| self.name(key(row)?)).collect())
    }
}

fn process(row: &Row) -> Result<Contender> {
    let process: i32 = value("queue", row, 0)?;
    let (application, from): (String, String) = (value("queue", row, 2)?, value("queue", row, 3)?);
    let since: i64 = value("queue", row, 4)?;
    let id = RequestId { client: u64::from(process.unsigned_abs()), number: since.unsigned_abs() };
    let at = if from.is_empty() { String::new() } else { format!(" at {from}") };
    Ok(contender(id, format!("{application}{at} (process {process} of the server)"), value("queue", row, 1)?))
}
