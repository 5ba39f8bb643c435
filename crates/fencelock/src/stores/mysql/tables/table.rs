//! A lock table of others: its statements, and whether the one that is there can be used.

use std::sync::OnceLock;

use mysql_async::Row;
use mysql_async::prelude::FromValue;

use super::super::connection::{Connection, column};
use super::meant;
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
    pub(super) look: String,
    pub(super) insert: String,
    pub(super) update: String,
    /// Two lists, of keys and holders, are still to come behind it and the next one.
    pub(super) renew: String,
    pub(super) alive: String,
    pub(super) leave: String,
    pub(super) names: String,
    /// The columns that the two lists are of.
    pub(super) lists: [String; 2],
    /// The name of the index that keeps two rows of one key out.
    pub(super) index: String,
    /// The longest key, in characters.
    pub(super) longest: usize,
}

const NO_TABLE: &str = "the database has no such lock table: make it with `fencelock migrate` or with this statement, or name the one that there is (options `table` and `columns`)";
const NO_COLUMN: &str =
    "the lock table has no such column: say how key, holder and end are called there (option `columns`)";
const NO_KEY: &str = "nothing keeps two rows of one key out of the lock table, so two clients would hold one lock: the column of the key must be unique by itself, in its whole length";
const NO_ROOM: &str = "the column has no room for what a holder is known by, a UUID of 36 characters";
const NO_TEXT: &str = "the columns of key and holder are char, varchar or varbinary";
const NO_TIME: &str = "the column of the end is a datetime or a timestamp";
const NO_ZONE: &str = "whoever writes these times writes them as they are in the time zone of its session, and another session would read another time: say as which zone they all mean them, as in `zone=SYSTEM` (the server's own, where no driver sets another one), `zone=+02:00` or `zone=Europe/Berlin`";
const A_ZONE: &str = "the times in this column are the same in every time zone: leave the option `zone` out";
const NOT_INNODB: &str = "the lock table is not of the engine InnoDB: a crash of the server may lose what it granted";

fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

fn refuse(kind: ErrorKind, message: &'static str) -> Error {
    Error::new(kind, "connect", message)
}

/// A column as it is there.
struct Column {
    name: String,
    kind: String,
    /// The longest text that it takes, in characters.
    longest: i64,
    /// The digits behind the second.
    digits: u32,
}

impl Column {
    fn read(row: &Row) -> Result<Self> {
        Ok(Self {
            name: told(row, 0)?,
            kind: told::<String>(row, 1)?.to_ascii_lowercase(),
            longest: told::<Option<i64>>(row, 2)?.unwrap_or(0),
            digits: told::<Option<u32>>(row, 3)?.unwrap_or(0),
        })
    }

    fn is_text(&self) -> bool {
        matches!(&*self.kind, "char" | "varchar" | "varbinary")
    }
}

fn told<T: FromValue>(row: &Row, at: usize) -> Result<T> {
    column("connect", row, at)
}

impl Table {
    pub(in super::super) fn new(of: LockTable) -> Self {
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
                "CREATE TABLE IF NOT EXISTS {table} ({key} varbinary(512) PRIMARY KEY, {holder} varchar(64) NOT NULL, \
                 {end} timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)) ENGINE=InnoDB"
            ),
            Kind::ShedLock { .. } => format!(
                "CREATE TABLE IF NOT EXISTS {table} ({key} varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY, \
                 {end} datetime(3) NOT NULL, {} datetime(3) NOT NULL, {holder} varchar(255) NOT NULL) ENGINE=InnoDB",
                began.join("")
            ),
        }
    }

    /// The statement that lets an account, as it stands in one, use it.
    pub(in super::super) fn grant(&self, account: &str) -> String {
        format!("GRANT {} ON {} TO {account}", self.of.rights(), self.quoted())
    }

    /// Its columns; none where there is no such table.
    async fn columns(&self, connection: &Connection) -> Result<Vec<Row>> {
        let asked = "SELECT c.COLUMN_NAME, c.DATA_TYPE, c.CHARACTER_MAXIMUM_LENGTH, c.DATETIME_PRECISION, COALESCE(t.ENGINE, '') \
             FROM information_schema.COLUMNS AS c JOIN information_schema.TABLES AS t ON t.TABLE_SCHEMA = c.TABLE_SCHEMA AND t.TABLE_NAME = c.TABLE_NAME \
             WHERE c.TABLE_SCHEMA = COALESCE(?, DATABASE()) AND c.TABLE_NAME = ? AND t.TABLE_TYPE = 'BASE TABLE'";
        connection.run("connect", asked, self.arguments(), &meant).await.map(|answer| answer.rows)
    }

    /// Schema, if one was given, and name.
    fn arguments(&self) -> Vec<mysql_async::Value> {
        let (schema, name) = match self.of.name.as_slice() {
            [schema, name] => (Some(schema.clone()), name.clone()),
            names => (None, names.concat()),
        };
        vec![schema.into(), name.into()]
    }

    /// Whether it is there.
    pub(in super::super) async fn is_there(&self, connection: &Connection) -> Result<bool> {
        Ok(!self.columns(connection).await?.is_empty())
    }

    /// Looks at the table that is there, refuses one with which two clients could hold one lock, and has this session mean the times in it as
    /// all others do.
    pub(super) async fn meet(&self, connection: &Connection) -> Result<()> {
        let rows = self.columns(connection).await?;
        let asked = "SELECT INDEX_NAME, COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS \
             WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ? AND NON_UNIQUE = 0";
        let indexes = connection.run("connect", asked, self.arguments(), &meant).await?.rows;
        let needs_zone = self.judge(&rows, &indexes)?;
        if let Some(zone) = &self.of.zone {
            let set = format!("SET SESSION time_zone = '{zone}'");
            return connection.run("connect", &set, Vec::new(), &meant).await.map(drop);
        }
        if needs_zone {
            let asked = "SELECT IF(@@global.time_zone = 'SYSTEM', @@system_time_zone, @@global.time_zone)";
            let rows = connection.simple("connect", asked).await?;
            let zone: String = rows.first().map_or_else(|| Ok(String::new()), |row| told(row, 0))?;
            if !matches!(&*zone, "UTC" | "Etc/UTC" | "+00:00") {
                return Err(self.named(refuse(ErrorKind::Layout, NO_ZONE)).with("the server's zone", zone));
            }
        }
        Ok(())
    }

    fn named(&self, error: Error) -> Error {
        error.with("table", self.of.name.join("."))
    }

    /// Whether sessions of different zones read different times in it.
    fn judge(&self, rows: &[Row], indexes: &[Row]) -> Result<bool> {
        let Some(first) = rows.first() else {
            return Err(self.named(refuse(ErrorKind::Layout, NO_TABLE)).with("statement", self.ddl()));
        };
        if !told::<String>(first, 4)?.eq_ignore_ascii_case("InnoDB") {
            return Err(self.named(refuse(ErrorKind::Config, NOT_INNODB)));
        }
        let there: Vec<Column> = rows.iter().map(Column::read).collect::<Result<_>>()?;
        let find = |name: &String| {
            let missing = || {
                let there: Vec<&str> = there.iter().map(|column| &*column.name).collect();
                self.named(refuse(ErrorKind::Layout, NO_COLUMN)).with("column", name).with("there", there.join(" "))
            };
            there.iter().find(|column| column.name.eq_ignore_ascii_case(name)).ok_or_else(missing)
        };
        let columns: Vec<&Column> = self.of.columns.iter().map(find).collect::<Result<_>>()?;
        let [key, holder, end, began @ ..] = columns.as_slice() else {
            return Err(super::super::connection::strange("connect"));
        };
        let of = |column: &Column, message| {
            let error = self.named(refuse(ErrorKind::Layout, message));
            error.with("column", &column.name).with("type", &column.kind)
        };
        let index = unique(indexes, key)?.ok_or_else(|| {
            let change = format!("ALTER TABLE {} ADD UNIQUE ({})", self.quoted(), quoted(&key.name));
            of(key, NO_KEY).with("statement", change)
        })?;
        if let Some(other) = [key, holder].into_iter().find(|column| !column.is_text()) {
            return Err(of(other, NO_TEXT));
        }
        if holder.longest < i64::from(HOLDER_LENGTH) {
            return Err(of(holder, NO_ROOM));
        }
        let mut shifts = false;
        for time in [end].into_iter().chain(began) {
            // In a `timestamp` the server keeps the moment, which it takes for one of the session's zone; in a `datetime` what was written.
            shifts |= match (&self.of.kind, &*time.kind) {
                (Kind::Tutorial, "datetime") | (Kind::ShedLock { .. }, "timestamp") => true,
                (_, "datetime" | "timestamp") => false,
                _ => return Err(of(time, NO_TIME)),
            };
        }
        if self.of.zone.is_some() && !shifts {
            return Err(of(end, A_ZONE));
        }
        // The same table is met by each connection.
        let _ = self.statements.set(self.statements(key, holder, end, began.first().copied(), index));
        Ok(shifts)
    }

    /// `now` is when the statement began: what waits for a row takes others' ends for later than they are, and never for earlier.
    fn statements(
        &self,
        key: &Column,
        holder: &Column,
        end: &Column,
        began: Option<&Column>,
        index: String,
    ) -> Statements {
        let table = self.quoted();
        let longest = usize::try_from(key.longest).unwrap_or(usize::MAX);
        let now = match self.of.kind {
            Kind::Tutorial => "NOW(6)",
            Kind::ShedLock { .. } => "UTC_TIMESTAMP(6)",
        };
        // A column that keeps fewer digits cuts or rounds: no end is to be earlier than it was meant.
        let unit = if end.digits < 6 { 10_u32.pow(6 - end.digits) } else { 0 };
        let until = format!("{now} + INTERVAL ? + {unit} MICROSECOND");
        let (key, holder, end) = (quoted(&key.name), quoted(&holder.name), quoted(&end.name));
        let held = format!("({end} > {now}) IS NOT FALSE");
        let (also, is, set) = match began.map(|began| quoted(&began.name)) {
            None => Default::default(),
            Some(began) => (format!(", {began}"), format!(", {now}"), format!(", {began} = {now}")),
        };
        let mine = format!("{key} = ? AND {holder} = ?");
        let leave = match self.of.kind {
            Kind::Tutorial => format!("DELETE FROM {table} WHERE {mine}"),
            Kind::ShedLock { at_least } => {
                let least = format!("{}{}", also.trim_start_matches(", "), interval(at_least.as_micros()));
                format!("UPDATE {table} SET {end} = IF({least} > {now}, {least}, {now}) WHERE {mine} AND {end} > {now}")
            }
        };
        Statements {
            look: format!(
                "SELECT {holder}, TIMESTAMPDIFF(MICROSECOND, {now}, {end}) DIV 1000, {held} FROM {table} WHERE {key} = ?"
            ),
            insert: format!("INSERT INTO {table} ({key}, {holder}, {end}{also}) VALUES (?, ?, {until}{is})"),
            update: format!(
                "UPDATE {table} SET {holder} = ?, {end} = {until}{set} WHERE {key} = ? AND ({end} <= {now} OR {holder} = ?)"
            ),
            renew: format!("UPDATE {table} SET {end} = {until} WHERE {end} > {now}"),
            alive: format!("SELECT {holder} FROM {table} WHERE {end} > {now}"),
            leave,
            names: format!("SELECT {key}, {held} FROM {table} WHERE {key} > ? ORDER BY {key} LIMIT ?"),
            lists: [key, holder],
            index,
            longest,
        }
    }
}

fn interval(micros: u128) -> String {
    format!(" + INTERVAL {micros} MICROSECOND")
}

/// The unique index of this column alone, in its whole length.
fn unique(indexes: &[Row], key: &Column) -> Result<Option<String>> {
    let parts: Vec<(String, String, Option<i64>)> =
        indexes.iter().map(|row| Ok((told(row, 0)?, told(row, 1)?, told(row, 2)?))).collect::<Result<_>>()?;
    let is_it = |(index, column, part): &&(String, String, Option<i64>)| {
        column.eq_ignore_ascii_case(&key.name)
            && part.is_none()
            && parts.iter().filter(|(other, ..)| other == index).count() == 1
    };
    Ok(parts.iter().find(is_it).map(|(index, ..)| index.clone()))
}
