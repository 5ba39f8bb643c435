//! A lock table of others: its statements, and whether the one that is there can be used.

use std::sync::OnceLock;

use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::super::connection::{Connection, strange};
use crate::error::{Error, ErrorKind, Result};
use crate::kit::lock_table::{HOLDER_LENGTH, Kind, LockTable};

/// A table of locks.
#[derive(Debug)]
pub(in super::super) struct Table {
    pub(super) of: LockTable,
    pub(super) statements: OnceLock<Statements>,
}

/// What is sent, for the types that the columns turned out to have.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) take: String,
    pub(super) renew: String,
    pub(super) leave: String,
    pub(super) show: String,
    pub(super) names: String,
    /// The longest key, in characters; `None` for any.
    pub(super) longest: Option<usize>,
}

const NO_TABLE: &str = "the database has no such lock table: make it with `fencelock migrate` or with this statement, or name the one that there is (options `table` and `columns`)";
const NO_COLUMN: &str =
    "the lock table has no such column: say how key, holder and end are called there (option `columns`)";
const NO_KEY: &str = "nothing keeps two rows of one key out of the lock table, so two clients would hold one lock: the column of the key must be unique by itself";
const NO_ROOM: &str = "the column has no room for what a holder is known by, a UUID of 36 characters";
const NO_TEXT: &str = "the columns of key and holder are text or varchar, the holder's may be uuid";
const NO_TIME: &str = "the column of the end is a timestamp";
const NO_ZONE: &str = "the column of the end has no time zone, and which one the others mean who write it is theirs to say: give it as `zone=UTC`, or as the zone of their sessions (a database driver may set its program's); or make the column a timestamptz";
const SHIFTED: &str = "ShedLock writes UTC into this column, which is a `timestamp` in its table: in a timestamptz each session reads another time";
const A_ZONE: &str = "the column of the end has a time zone: leave the option `zone` out";
const UNLOGGED: &str = "the lock table is unlogged: a crash of the server empties it, and whoever held a lock would not hear of it. ALTER TABLE … SET LOGGED changes that";
const NO_RIGHTS: &str = "the user may not do with the lock table what this needs";

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn refuse(kind: ErrorKind, message: &'static str) -> Error {
    Error::new(kind, "connect", message)
}

/// A column as it is there.
struct Column {
    name: String,
    kind: String,
    /// What its type is modified by: of text 4 more than its length, of times the digits behind the second; -1 for nothing.
    modifier: i32,
    is_key: bool,
}

impl Column {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self { name: row.try_get(0)?, kind: row.try_get(1)?, modifier: row.try_get(2)?, is_key: row.try_get(3)? })
    }

    /// The longest text that it takes, in characters.
    fn longest(&self) -> Option<i32> {
        (self.modifier >= 4).then_some(self.modifier - 4)
    }

    fn is_text(&self) -> bool {
        matches!(&*self.kind, "text" | "varchar" | "bpchar")
    }
}

impl Table {
    pub(super) fn new(of: LockTable) -> Self {
        Self { of, statements: OnceLock::new() }
    }

    /// As it stands in a statement.
    fn quoted(&self) -> String {
        self.of.name.iter().map(|part| quoted(part)).collect::<Vec<_>>().join(".")
    }

    /// The statement that makes it.
    pub(in super::super) fn ddl(&self) -> String {
        let columns: Vec<String> = self.of.columns.iter().map(|column| quoted(column)).collect();
        let [key, holder, end, began @ ..] = columns.as_slice() else { return String::new() };
        let table = self.quoted();
        match self.of.kind {
            Kind::Tutorial => format!(
                "CREATE TABLE IF NOT EXISTS {table} ({key} varchar(512) PRIMARY KEY, {holder} varchar(64) NOT NULL, {end} timestamptz NOT NULL);\n"
            ),
            Kind::ShedLock { .. } => format!(
                "CREATE TABLE IF NOT EXISTS {table} ({key} varchar(64) PRIMARY KEY, {end} timestamp NOT NULL, {} timestamp NOT NULL, {holder} varchar(255) NOT NULL);\n",
                began.join("")
            ),
        }
    }

    /// The statement that lets a role use it.
    pub(in super::super) fn grant(&self, role: &str) -> String {
        format!("GRANT {} ON {} TO {};\n", self.of.rights(), self.quoted(), quoted(role))
    }

    /// Whether it is there.
    pub(in super::super) async fn is_there(&self, connection: &Connection) -> Result<bool> {
        let parameters: [(&(dyn ToSql + Sync), Type); 1] = [(&self.quoted(), Type::TEXT)];
        let rows = connection.query("connect", "SELECT to_regclass($1) IS NOT NULL", &parameters, &|_| None).await?;
        rows.first().and_then(|row| row.try_get(0).ok()).ok_or_else(|| strange("connect"))
    }

    /// Looks at the table that is there, and refuses one with which two clients could hold one lock.
    pub(super) async fn meet(&self, connection: &Connection, only_looks: bool) -> Result<()> {
        let table = self.quoted();
        let asked = "SELECT a.attname::text, t.typname::text, a.atttypmod, EXISTS (SELECT FROM pg_catalog.pg_index AS i WHERE i.indrelid = c.oid AND i.indisunique \
             AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum), \
             c.relpersistence = 'u', has_table_privilege(c.oid, 'SELECT'), (SELECT bool_and(has_table_privilege(c.oid, r)) FROM unnest($2::text[]) AS r) \
             FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
             JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid WHERE c.oid = to_regclass($1) AND c.relkind IN ('r', 'p')";
        let rights: Vec<&str> = self.of.rights().split(", ").collect();
        let parameters: [(&(dyn ToSql + Sync), Type); 2] = [(&table, Type::TEXT), (&rights, Type::TEXT_ARRAY)];
        let rows = connection.query("connect", asked, &parameters, &|_| None).await?;
        let met = self.judge(&rows, only_looks)?;
        if let Some(zone) = &self.of.zone {
            let known = "SELECT EXISTS (SELECT FROM pg_catalog.pg_timezone_names WHERE name = $1)";
            let rows = connection.query("connect", known, &[(zone, Type::TEXT)], &|_| None).await?;
            if rows.first().and_then(|row| row.try_get(0).ok()) != Some(true) {
                let message = "the server knows no such time zone: its view pg_timezone_names has those that there are";
                return Err(refuse(ErrorKind::Config, message).with("zone", zone));
            }
        }
        // The same table is met by each connection.
        let _ = self.statements.set(met);
        Ok(())
    }

    fn judge(&self, rows: &[Row], only_looks: bool) -> Result<Statements> {
        let named = |error: Error| error.with("table", self.of.name.join("."));
        let Some(first) = rows.first() else {
            return Err(named(refuse(ErrorKind::Layout, NO_TABLE)).with("statement", self.ddl().trim_end()));
        };
        let is = |column: usize| first.try_get::<_, bool>(column).map_err(|_| strange("connect"));
        if is(4)? {
            return Err(named(refuse(ErrorKind::Config, UNLOGGED)));
        }
        if !is(if only_looks { 5 } else { 6 })? {
            let needed = if only_looks { "SELECT" } else { self.of.rights() };
            return Err(named(refuse(ErrorKind::Denied, NO_RIGHTS)).with("GRANT", needed));
        }
        let there: Vec<Column> =
            rows.iter().map(Column::read).collect::<Result<_, _>>().map_err(|_| strange("connect"))?;
        let find = |name: &String| {
            let missing = || {
                let there: Vec<&str> = there.iter().map(|column| &*column.name).collect();
                named(refuse(ErrorKind::Layout, NO_COLUMN)).with("column", name).with("there", there.join(" "))
            };
            there.iter().find(|column| column.name == *name).ok_or_else(missing)
        };
        let columns: Vec<&Column> = self.of.columns.iter().map(find).collect::<Result<_>>()?;
        let [key, holder, end, ..] = columns.as_slice() else { return Err(strange("connect")) };
        let of = |column: &Column, message| {
            named(refuse(ErrorKind::Layout, message)).with("column", &column.name).with("type", &column.kind)
        };
        if !key.is_key {
            let change = format!("ALTER TABLE {} ADD UNIQUE ({})", self.quoted(), quoted(&key.name));
            return Err(of(key, NO_KEY).with("statement", change));
        }
        if let Some(other) = [key, holder].into_iter().find(|column| !column.is_text() && column.kind != "uuid") {
            return Err(of(other, NO_TEXT));
        }
        if !key.is_text() {
            return Err(of(key, NO_TEXT));
        }
        if holder.longest().is_some_and(|longest| longest < HOLDER_LENGTH) {
            return Err(of(holder, NO_ROOM));
        }
        let now = self.now(end).map_err(|message| of(end, message))?;
        let began = columns.get(3).copied();
        if let Some(began) = began {
            self.now(began).map_err(|message| of(began, message))?;
        }
        Ok(self.statements(key, holder, end, began, &now))
    }

    /// The time of the server, as the column of the end has it.
    fn now(&self, end: &Column) -> Result<String, &'static str> {
        match (&self.of.kind, &*end.kind, &self.of.zone) {
            (Kind::Tutorial, "timestamptz", None) => Ok("clock_timestamp()".to_owned()),
            (Kind::Tutorial, "timestamptz", Some(_)) => Err(A_ZONE),
            (Kind::Tutorial, "timestamp", Some(zone)) => Ok(format!("(clock_timestamp() AT TIME ZONE '{zone}')")),
            (Kind::Tutorial, "timestamp", None) => Err(NO_ZONE),
            (Kind::ShedLock { .. }, "timestamp", _) => Ok("timezone('utc', clock_timestamp())".to_owned()),
            (Kind::ShedLock { .. }, "timestamptz", _) => Err(SHIFTED),
            _ => Err(NO_TIME),
        }
    }

    /// Each compares with the clock once it has the row, however long it waited for that.
    fn statements(&self, key: &Column, holder: &Column, end: &Column, began: Option<&Column>, now: &str) -> Statements {
        let table = self.quoted();
        let (key_type, holder_type) = (&key.kind, &holder.kind);
        let longest = key.longest().and_then(|longest| usize::try_from(longest).ok());
        // A column that keeps fewer digits rounds to the nearest: no end is to be earlier than it was meant.
        let unit = match end.modifier {
            digits @ 0..6 => format!(" + interval '{} microseconds'", 10_u32.pow(6 - digits.unsigned_abs())),
            _ => String::new(),
        };
        let until = format!("{now} + $3::float8 * interval '1 millisecond'{unit}");
        let (key, holder, end) = (quoted(&key.name), quoted(&holder.name), quoted(&end.name));
        let left = format!(
            "CASE WHEN isfinite(t.{end}) THEN GREATEST(0, extract(epoch FROM t.{end} - {now}) * 1000)::bigint END"
        );
        let held = format!("(t.{end} > {now}) IS NOT FALSE");
        let mine = format!("t.{key} = w.k::{key_type} AND t.{holder}::text = w.v");
        let began = began.map(|began| quoted(&began.name)).unwrap_or_default();
        let (also, is, set) = match self.of.kind {
            Kind::Tutorial => Default::default(),
            Kind::ShedLock { .. } => {
                (format!(", {began}"), format!(", {now}"), format!(", {began} = EXCLUDED.{began}"))
            }
        };
        let take = format!(
            "WITH taken AS (INSERT INTO {table} AS t ({key}, {holder}, {end}{also}) VALUES ($1::{key_type}, $2::{holder_type}, {until}{is}) \
             ON CONFLICT ({key}) DO UPDATE SET {holder} = EXCLUDED.{holder}, {end} = EXCLUDED.{end}{set} WHERE t.{end} <= {now} OR t.{holder}::text = $2 RETURNING 1) \
             SELECT EXISTS (SELECT FROM taken), (SELECT {left} FROM {table} AS t WHERE t.{key} = $1::{key_type})"
        );
        let renew = format!(
            "UPDATE {table} AS t SET {end} = {until} FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (k, v, i) \
             WHERE {mine} AND t.{end} > {now} RETURNING w.i"
        );
        let leave = match self.of.kind {
            Kind::Tutorial => format!(
                "DELETE FROM {table} AS t USING unnest($1::text[], $2::text[]) AS w (k, v) WHERE {mine} RETURNING 1"
            ),
            Kind::ShedLock { at_least } => format!(
                "UPDATE {table} AS t SET {end} = GREATEST({now}, t.{began} + interval '{} milliseconds') FROM unnest($1::text[], $2::text[]) AS w (k, v) \
                 WHERE {mine} AND t.{end} > {now} RETURNING 1",
                at_least.as_millis()
            ),
        };
        let show =
            format!("SELECT t.{holder}::text, {left} FROM {table} AS t WHERE t.{key} = $1::{key_type} AND {held}");
        let names = format!(
            "SELECT t.{key}::text, {held} FROM {table} AS t WHERE t.{key} > $1::{key_type} ORDER BY t.{key} LIMIT $2"
        );
        Statements { take, renew, leave, show, names, longest }
    }
}
