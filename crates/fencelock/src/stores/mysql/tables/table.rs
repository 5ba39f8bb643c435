//! A lock table of another program: its statements, and the check of an existing table.

use mysql_async::Row;

use super::super::connection::{Connection, column};
use super::meant;
use crate::error::{ErrorKind, Result};
use crate::kit::database::call::strange;
use crate::kit::lock_table::{Column, Fit, KnownTable, TableKind, Words};

pub(in super::super) type Table = KnownTable<Statements>;

#[derive(Debug)]
pub(in super::super) struct Statements {
    pub(super) look: String,
    pub(super) insert: String,
    pub(super) update: String,
    pub(super) renew: String,
    pub(super) alive: String,
    pub(super) leave: String,
    pub(super) names: String,
    pub(super) key_of: Option<String>,
    pub(super) lists: [String; 2],
    pub(super) has_other_keys: bool,
    pub(super) longest: usize,
}

const ZONE: &str = "SELECT @fencelock_zone, CONVERT_TZ('2026-01-01', '+00:00', @fencelock_zone) = '2026-01-01' AND CONVERT_TZ('2026-07-01', '+00:00', @fencelock_zone) = '2026-07-01'";
const NO_TIME: &str = "the column of the end is a datetime or a timestamp";
const NO_ZONE: &str = "the rows keep the writer's local time, and a session of another time zone reads another time: set `zone` to the zone of the other programs' sessions, which is the server's unless a driver sets another one";
const NOT_SYSTEM: &str =
    "`zone=SYSTEM` is the zone of the server's operating system, and the sessions of this server have another one";
const A_ZONE: &str = "the times in this column are the same in every time zone: leave the option `zone` out";
const NOT_INNODB: &str = "the lock table is not of the engine InnoDB: a crash of the server may lose what it granted";

const WORDS: Words = Words {
    quoted,
    ignores_case: true,
    texts: &["char", "varchar", "varbinary"],
    holders: &[],
    no_text: "the columns of key and holder are char, varchar or varbinary",
};

fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

fn read(row: &Row, indexes: &[(String, String, Option<i64>)]) -> Result<Column> {
    let name: String = column("connect", row, 0)?;
    let is_it = |(index, column, part): &&(String, String, Option<i64>)| {
        let parts = indexes.iter().filter(|(other, ..)| other == index).count();
        column.eq_ignore_ascii_case(&name) && part.is_none() && parts == 1
    };
    Ok(Column {
        unique: indexes.iter().find(is_it).map(|(index, ..)| index.clone()),
        kind: column::<String>("connect", row, 1)?.to_ascii_lowercase(),
        longest: Some(column::<Option<i64>>("connect", row, 2)?.unwrap_or(0)),
        digits: column::<Option<u32>>("connect", row, 3)?.unwrap_or(0),
        collation: column("connect", row, 5)?,
        name,
    })
}

impl Table {
    pub(in super::super) fn ddl(&self) -> String {
        let tutorial = ["varbinary(512)", "varchar(64)", "timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"];
        let shedlock = ["varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "varchar(255)", "datetime(3)"];
        WORDS.ddl(&self.of, tutorial, shedlock, " ENGINE=InnoDB")
    }

    pub(in super::super) fn grant(&self, account: &str) -> String {
        format!("GRANT {} ON {} TO {account}", self.of.rights(), WORDS.table(&self.of))
    }

    async fn columns(&self, connection: &Connection) -> Result<Vec<Row>> {
        // MySQL pads to a number of characters, not of weights, so an expansion such as that of ß would weigh more: there, spaces at the end go.
        let asked = "SELECT c.COLUMN_NAME, c.DATA_TYPE, c.CHARACTER_MAXIMUM_LENGTH, c.DATETIME_PRECISION, COALESCE(t.ENGINE, ''), \
             REPLACE(REPLACE(CASE WHEN c.COLLATION_NAME REGEXP '_nopad_|_0900_' THEN 'SELECT HEX(WEIGHT_STRING(CONVERT(? USING @s) COLLATE @c))' \
             WHEN VERSION() LIKE '%MariaDB%' THEN CONCAT('SELECT HEX(WEIGHT_STRING(CONVERT(? USING @s) COLLATE @c AS CHAR(', 2 * c.CHARACTER_MAXIMUM_LENGTH, ')))') \
             ELSE 'SELECT HEX(TRIM(TRAILING WEIGHT_STRING(CONVERT('' '' USING @s) COLLATE @c) FROM WEIGHT_STRING(CONVERT(? USING @s) COLLATE @c)))' \
             END, '@s', c.CHARACTER_SET_NAME), '@c', c.COLLATION_NAME) \
             FROM information_schema.COLUMNS AS c JOIN information_schema.TABLES AS t ON t.TABLE_SCHEMA = c.TABLE_SCHEMA AND t.TABLE_NAME = c.TABLE_NAME \
             WHERE c.TABLE_SCHEMA = COALESCE(?, DATABASE()) AND c.TABLE_NAME = ? AND t.TABLE_TYPE = 'BASE TABLE'";
        connection.run("connect", asked, self.arguments(), &meant).await.map(|answer| answer.rows)
    }

    fn arguments(&self) -> Vec<mysql_async::Value> {
        let (schema, name) = match self.of.name.as_slice() {
            [schema, name] => (Some(schema.clone()), name.clone()),
            names => (None, names.concat()),
        };
        vec![schema.into(), name.into()]
    }

    pub(in super::super) async fn is_there(&self, connection: &Connection) -> Result<bool> {
        Ok(!self.columns(connection).await?.is_empty())
    }

    pub(super) async fn look_at(&self, connection: &Connection) -> Result<()> {
        let rows = self.columns(connection).await?;
        let asked = "SELECT INDEX_NAME, COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS \
             WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ? AND NON_UNIQUE = 0";
        let indexes = connection.run("connect", asked, self.arguments(), &meant).await?.rows;
        let index = |row| Ok((column("connect", row, 0)?, column("connect", row, 1)?, column("connect", row, 2)?));
        let indexes: Vec<_> = indexes.iter().map(index).collect::<Result<_>>()?;
        if !self.judge(&rows, &indexes)? {
            return Ok(());
        }
        let rows = connection.simple("connect", ZONE).await?;
        let row = rows.first().ok_or_else(|| strange("connect"))?;
        let (sessions, is_utc): (String, Option<i64>) = (column("connect", row, 0)?, column("connect", row, 1)?);
        let refuse = |kind, message| Err(self.of.refuse(kind, message).with("they have", format!("zone={sessions}")));
        let Some(zone) = &self.of.zone else {
            return if is_utc == Some(1) { Ok(()) } else { refuse(ErrorKind::Layout, NO_ZONE) };
        };
        if zone.eq_ignore_ascii_case("SYSTEM") && sessions != "SYSTEM" {
            return refuse(ErrorKind::Config, NOT_SYSTEM);
        }
        let set = format!("SET SESSION time_zone = '{zone}'");
        connection.run("connect", &set, Vec::new(), &meant).await.map(drop)
    }

    fn judge(&self, rows: &[Row], indexes: &[(String, String, Option<i64>)]) -> Result<bool> {
        let first = rows.first().ok_or_else(|| self.of.missing(&self.ddl()))?;
        if !column::<String>("connect", first, 4)?.eq_ignore_ascii_case("InnoDB") {
            return Err(self.of.refuse(ErrorKind::Config, NOT_INNODB));
        }
        let there: Vec<Column> = rows.iter().map(|row| read(row, indexes)).collect::<Result<_>>()?;
        let fit = self.of.fit(&there, &WORDS)?;
        let mut shifts = false;
        for time in [fit.end].into_iter().chain(fit.began) {
            // In a `timestamp` the server keeps the moment, which it takes for one of the session's zone; in a `datetime` what was written.
            shifts |= match (&self.of.kind, &*time.kind) {
                (TableKind::Tutorial, "datetime") | (TableKind::ShedLock { .. }, "timestamp") => true,
                (_, "datetime" | "timestamp") => false,
                _ => return Err(self.of.refuse_column(time, NO_TIME)),
            };
        }
        if self.of.zone.is_some() && !shifts {
            return Err(self.of.refuse_column(fit.end, A_ZONE));
        }
        // The same table is met by each connection.
        let _ = self
            .statements
            .set(self.statements(&fit, indexes.iter().any(|(index, ..)| fit.key.unique.as_ref() != Some(index))));
        Ok(shifts)
    }

    /// `now` is when the statement began: a statement that waits for a row takes ends for later than they are, never for earlier.
    fn statements(&self, fit: &Fit<'_>, has_other_keys: bool) -> Statements {
        let table = WORDS.table(&self.of);
        let longest = fit.key.longest_key().unwrap_or(usize::MAX);
        let now = match self.of.kind {
            TableKind::Tutorial => "NOW(6)",
            TableKind::ShedLock { .. } => "UTC_TIMESTAMP(6)",
        };
        let unit = fit.end.unit().unwrap_or(0);
        let until = format!("{now} + INTERVAL ? + {unit} MICROSECOND");
        let (key, holder, end) = (quoted(&fit.key.name), quoted(&fit.holder.name), quoted(&fit.end.name));
        let held = format!("({end} > {now}) IS NOT FALSE");
        let (also, is, set) = match fit.began.map(|began| quoted(&began.name)) {
            None => Default::default(),
            Some(began) => (format!(", {began}"), format!(", {now}"), format!(", {began} = {now}")),
        };
        let mine = format!("{key} = ? AND {holder} = ?");
        let leave = match self.of.kind {
            TableKind::Tutorial => format!("DELETE FROM {table} WHERE {mine}"),
            TableKind::ShedLock { at_least } => {
                let least =
                    format!("{} + INTERVAL {} MICROSECOND", also.trim_start_matches(", "), at_least.as_micros());
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
            key_of: fit.key.collation.clone(),
            lists: [key, holder],
            has_other_keys,
            longest,
        }
    }
}
