//! Lock tables of other programs, by statements of MariaDB and MySQL (`table.rs`). `kit/lock_table/` has the parts shared by all servers.

mod table;

use std::time::Duration;

use mysql_async::{Row, Value};

pub(super) use self::table::Table;
use super::connection::{Connection, QueryAnswer, column};
use super::fault::cut_short;
use super::link::Mysql;
use super::setup::account;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::database::Migration;
use crate::kit::database::call::strange;
use crate::kit::fault::{Meaning, refused};
use crate::kit::lock_table::{LockTable, Rows, TableKind};
use crate::kit::try_again::Tried;
use crate::name::Name;

/// Makes the lock table unless it is there, and lets these accounts use it.
pub(super) async fn make(connection: &Connection, table: &Table, accounts: &[&str]) -> Result<Migration> {
    let is_there = table.is_there(connection).await?;
    if !is_there {
        connection.simple("migrate", &table.ddl()).await?;
    }
    for name in accounts {
        connection.simple("migrate", &table.grant(&account(name))).await?;
    }
    Ok(Migration::of(!is_there))
}

const ANOTHER_KEY: &str = "another unique key of the lock table keeps the row out";

/// How often an insert fails with no row of its key before another unique key is blamed. Between an insert and a look, a holder may leave.
const TRIES: usize = 20;

fn meant(code: u16) -> Option<Meaning> {
    Some(match code {
        1142 | 1143 => refused(
            ErrorKind::Denied,
            "the user may not do that with the lock table: it needs SELECT, INSERT and UPDATE, and DELETE where rows are deleted",
        ),
        1146 | 1054 => refused(ErrorKind::Layout, "the lock table was changed, or is not there any more"),
        1406 => refused(ErrorKind::Layout, "the lock table has no room for the name, or for what holders are known by"),
        1366 | 1267 | 3988 => refused(ErrorKind::InvalidName, "the lock table cannot keep a name of these characters"),
        1364 | 1048 => refused(
            ErrorKind::Layout,
            "the lock table has another column that every row must fill, and that has no default: give it one, or let it be empty",
        ),
        1062 => refused(ErrorKind::Layout, ANOTHER_KEY),
        1292 => {
            refused(ErrorKind::Layout, "the time is none in the zone of the lock table: clocks skip this hour there")
        }
        1298 => refused(
            ErrorKind::Config,
            "the server knows no such time zone: mariadb-tzinfo-to-sql or mysql_tzinfo_to_sql gives it those with names",
        ),
        _ => return None,
    })
}

fn is(error: &Error, codes: &[&str]) -> bool {
    let number = |code: &&str, said: &str| said.strip_prefix(*code).is_some_and(|rest| rest.starts_with(' '));
    error.context().any(|(key, said)| key == "error" && codes.iter().any(|code| number(code, said)))
}

struct FoundRow {
    by: String,
    left: Option<i64>,
    is_held: bool,
}

impl Table {
    async fn look(&self, connection: &Connection, operation: &'static str, key: &str) -> Result<Option<FoundRow>> {
        let rows = connection.run(operation, &self.known(operation)?.look, vec![key.into()], &meant).await?.rows;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(Some(FoundRow {
            by: text(operation, row)?,
            left: column(operation, row, 1)?,
            is_held: column::<i64>(operation, row, 2)? != 0,
        }))
    }

    async fn insert(
        &self,
        connection: &Connection,
        operation: &'static str,
        (key, holder): (&str, &str),
        ttl: i64,
    ) -> Result<Option<()>> {
        let known = self.known(operation)?;
        match connection.run(operation, &known.insert, vec![key.into(), holder.into(), ttl.into()], &meant).await {
            Ok(answer) if answer.matched == 0 => Err(cut_short(operation)),
            Ok(_) => Ok(Some(())),
            Err(error) if is(&error, &["1062"]) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn try_to_take(
        &self,
        connection: &Connection,
        operation: &'static str,
        (key, holder): (&str, &str),
        ttl: i64,
    ) -> Result<Tried> {
        // The rows of tutorials are there only while a client has the lock, so a new client inserts at once. A client that tries again
        // reads first: an insert in vain uses up a number where the table counts its rows, and waits for locks.
        let mut found = None;
        if operation != "enter" || self.of.kind != TableKind::Tutorial {
            found = self.look(connection, operation, key).await?;
        }
        // A row of that key that is gone at the next look was given up in between.
        for _ in 0..TRIES {
            if found.is_some() {
                break;
            }
            if self.insert(connection, operation, (key, holder), ttl).await?.is_some() {
                return Ok(Tried::Granted(None));
            }
            found = self.look(connection, operation, key).await?;
        }
        match found {
            None if self.known(operation)?.has_other_keys => Err(refused(ErrorKind::Layout, ANOTHER_KEY).of(operation)),
            None => Ok(Tried::Busy(Some(Duration::ZERO))),
            Some(found) if found.is_held && found.by != holder => {
                Ok(Tried::Busy(found.left.and_then(|left| u64::try_from(left).ok()).map(Duration::from_millis)))
            }
            Some(_) => {
                let arguments = vec![holder.into(), ttl.into(), key.into(), holder.into()];
                let taken = connection.run(operation, &self.known(operation)?.update, arguments, &meant).await?;
                Ok(if taken.matched > 0 { Tried::Granted(None) } else { Tried::Busy(None) })
            }
        }
    }

    async fn listed(
        &self,
        connection: &Connection,
        sql: &str,
        mut arguments: Vec<Value>,
        (keys, holders): (&[&str], &[String]),
    ) -> Result<QueryAnswer> {
        let count = keys.len().next_power_of_two();
        let marks = vec!["?"; count].join(",");
        let [key, holder] = &self.known("renew")?.lists;
        let sql = format!("{sql} AND {key} IN ({marks}) AND {holder} IN ({marks})");
        let last = keys.last().copied().unwrap_or_default();
        arguments.extend((0..count).map(|index| Value::from(keys.get(index).copied().unwrap_or(last))));
        let last = holders.last().map_or("", String::as_str);
        arguments.extend((0..count).map(|index| Value::from(holders.get(index).map_or(last, String::as_str))));
        connection.run("renew", &sql, arguments, &meant).await
    }
}

/// The first column, as text: another program may have written anything.
fn text(operation: &'static str, row: &Row) -> Result<String> {
    Ok(String::from_utf8_lossy(&column::<Vec<u8>>(operation, row, 0)?).into_owned())
}

impl Rows for Table {
    type Database = Mysql;

    const STORE: &'static str = "mysql";

    fn of(&self) -> &LockTable {
        &self.of
    }

    async fn meet(&self, connection: &Connection, _: bool) -> Result<()> {
        self.look_at(connection).await
    }

    fn longest(&self) -> Option<usize> {
        self.statements.get().map(|known| known.longest)
    }

    async fn take(
        &self,
        connection: &Connection,
        operation: &'static str,
        row: (&str, &str),
        ttl_ms: i64,
    ) -> Result<Tried> {
        match self.try_to_take(connection, operation, row, ttl_ms.saturating_mul(1000)).await {
            // Another client's transaction is at this row.
            Err(error) if is(&error, &["1205", "1213"]) => Ok(Tried::Busy(None)),
            tried => tried,
        }
    }

    async fn renew(
        &self,
        connection: &Connection,
        (keys, holders): (Vec<&str>, Vec<String>),
        ttl_ms: i64,
    ) -> Result<Vec<bool>> {
        let known = self.known("renew")?;
        let lists = (&*keys, &*holders);
        let renewed =
            self.listed(connection, &known.renew, vec![ttl_ms.saturating_mul(1000).into()], lists).await?.matched;
        if usize::try_from(renewed) == Ok(keys.len()) {
            return Ok(vec![true; keys.len()]);
        }
        let alive = self.listed(connection, &known.alive, Vec::new(), lists).await?.rows;
        let alive: Vec<String> = alive.iter().map(|row| text("renew", row)).collect::<Result<_>>()?;
        // `KILL QUERY` may end an update that then reports success and no row.
        if usize::try_from(renewed).is_ok_and(|renewed| renewed < alive.len()) {
            return Err(cut_short("renew"));
        }
        Ok(holders.iter().map(|holder| alive.contains(holder)).collect())
    }

    async fn leave(
        &self,
        connection: &Connection,
        operation: &'static str,
        (keys, holders): (Vec<&str>, Vec<String>),
    ) -> Result<usize> {
        let sql = &self.known(operation)?.leave;
        let mut left = 0;
        // A statement for each: a statement about several locks might read, and lock, the rows of other locks.
        for (key, holder) in keys.iter().zip(&holders) {
            let arguments = vec![Value::from(*key), Value::from(holder.as_str())];
            let matched = connection.run(operation, sql, arguments, &meant).await?.matched;
            if matched == 0 && self.held(connection, key).await?.is_some_and(|(by, _)| by == *holder) {
                return Err(cut_short(operation));
            }
            left += matched;
        }
        Ok(usize::try_from(left).unwrap_or(usize::MAX))
    }
    async fn held(&self, connection: &Connection, key: &str) -> Result<Option<(String, Option<i64>)>> {
        let found = self.look(connection, "queue", key).await?.filter(|found| found.is_held);
        Ok(found.map(|found| (found.by, found.left)))
    }

    async fn key_of(&self, connection: &Connection, name: &Name) -> Result<String> {
        let Some(sql) = &self.known("key")?.key_of else { return Ok(name.to_string()) };
        let rows = connection.run("key", sql, vec![name.as_str().into()], &meant).await?.rows;
        column("key", rows.first().ok_or_else(|| strange("key"))?, 0)
    }

    async fn keys(&self, connection: &Connection, from: &str, most: i64) -> Result<Vec<(String, bool)>> {
        let sql = &self.known("names")?.names;
        let rows = connection.run("names", sql, vec![from.into(), most.into()], &meant).await?.rows;
        rows.iter().map(|row| Ok((text("names", row)?, column::<i64>("names", row, 1)? != 0))).collect()
    }
}
