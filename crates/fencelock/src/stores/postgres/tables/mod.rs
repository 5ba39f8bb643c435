//! Lock tables of other programs, by statements of PostgreSQL (`table.rs`). `kit/lock_table/` has the parts shared by all servers.

mod table;

use std::time::Duration;

use tokio_postgres::types::{ToSql, Type};

pub(super) use self::table::Table;
use super::connection::{Connection, value};
use super::link::Postgres;
use super::setup::{MAKING, check_grants};
use crate::error::{Error, ErrorKind, Result};
use crate::kit::database::Migration;
use crate::kit::database::call::strange;
use crate::kit::fault::{Meaning, refused};
use crate::kit::lock_table::{LockTable, Rows};
use crate::kit::try_again::Tried;
use crate::name::Name;

/// Makes the lock table unless it exists, and lets these roles use it. Returns whether the table was made.
pub(super) async fn make(connection: &Connection, table: &Table, unlogged: bool, roles: &[&str]) -> Result<Migration> {
    if unlogged {
        let message = "a lock table of others is a logged one: a crash of the server would empty it, and no holder would hear of that";
        return Err(Error::new(ErrorKind::Config, "migrate", message));
    }
    let (table, is_there) = table.located(connection).await?;
    let made = if is_there { String::new() } else { table.ddl() };
    let granted: String = roles.iter().map(|role| table.grant(role)).collect();
    // A message is a transaction; a second maker waits.
    let alone = format!("SELECT pg_catalog.pg_advisory_xact_lock({MAKING});");
    connection.simple("migrate", &format!("{alone}{made}{granted}")).await?;
    check_grants(connection, roles, &table.granted()).await?;
    Ok(Migration::of(!is_there))
}

fn meant(code: &str) -> Option<Meaning> {
    Some(match code {
        "42501" => refused(ErrorKind::Denied, "the user may not do that with the lock table any more"),
        "42P01" | "42703" | "42P10" | "42804" => {
            refused(ErrorKind::Layout, "the lock table was changed, or is not there any more")
        }
        "22001" => {
            refused(ErrorKind::Layout, "the lock table has no room for the name, or for what holders are known by")
        }
        "23502" => refused(
            ErrorKind::Layout,
            "the lock table has another column that every row must fill, and that has no default: give it one, or let it be empty",
        ),
        "55000" => refused(
            ErrorKind::Layout,
            "a publication has the lock table, which has no replica identity: ALTER TABLE … REPLICA IDENTITY USING INDEX, with the index of its key",
        ),
        "23505" => refused(ErrorKind::Layout, "another unique key of the lock table keeps the row out"),
        _ => return None,
    })
}

fn is_others_turn(error: &Error) -> bool {
    error.context().any(|(key, code)| key == "sqlstate" && matches!(code, "55P03" | "40001" | "40P01"))
}

impl Rows for Table {
    type Database = Postgres;

    const STORE: &'static str = "postgres";

    fn of(&self) -> &LockTable {
        &self.of
    }

    async fn meet(&self, connection: &Connection, only_looks: bool) -> Result<()> {
        self.look_at(connection, only_looks).await
    }

    fn longest(&self) -> Option<usize> {
        self.statements.get()?.longest
    }

    async fn take(
        &self,
        connection: &Connection,
        operation: &'static str,
        (key, holder): (&str, &str),
        ttl: i64,
    ) -> Result<Tried> {
        let parameters: [(&(dyn ToSql + Sync), Type); 3] =
            [(&key, Type::TEXT), (&holder, Type::TEXT), (&ttl, Type::INT8)];
        let rows = match connection.query(operation, &self.known(operation)?.take, &parameters, &meant).await {
            Err(error) if is_others_turn(&error) => return Ok(Tried::Busy(None)),
            rows => rows?,
        };
        let row = rows.first().ok_or_else(|| strange(operation))?;
        let (is_taken, left): (bool, Option<i64>) = (value(operation, row, 0)?, value(operation, row, 1)?);
        let left = left.and_then(|left| u64::try_from(left).ok()).map(Duration::from_millis);
        Ok(if is_taken { Tried::Granted(None) } else { Tried::Busy(left) })
    }

    async fn renew(
        &self,
        connection: &Connection,
        (keys, holders): (Vec<&str>, Vec<String>),
        ttl: i64,
    ) -> Result<Vec<bool>> {
        let parameters: [(&(dyn ToSql + Sync), Type); 3] =
            [(&keys, Type::TEXT_ARRAY), (&holders, Type::TEXT_ARRAY), (&ttl, Type::INT8)];
        let rows = connection.query("renew", &self.known("renew")?.renew, &parameters, &meant).await?;
        let mut is_kept = vec![false; keys.len()];
        for row in rows {
            let number: i64 = row.try_get(0).map_err(|_| strange("renew"))?;
            let index = usize::try_from(number - 1).ok();
            *index.and_then(|index| is_kept.get_mut(index)).ok_or_else(|| strange("renew"))? = true;
        }
        Ok(is_kept)
    }

    async fn leave(
        &self,
        connection: &Connection,
        operation: &'static str,
        (keys, holders): (Vec<&str>, Vec<String>),
    ) -> Result<usize> {
        let parameters: [(&(dyn ToSql + Sync), Type); 2] = [(&keys, Type::TEXT_ARRAY), (&holders, Type::TEXT_ARRAY)];
        Ok(connection.query(operation, &self.known(operation)?.leave, &parameters, &meant).await?.len())
    }
    async fn held(&self, connection: &Connection, key: &str) -> Result<Option<(String, Option<i64>)>> {
        let rows = connection.query("queue", &self.known("queue")?.show, &[(&key, Type::TEXT)], &meant).await?;
        rows.first().map(|row| Ok((value("queue", row, 0)?, value("queue", row, 1)?))).transpose()
    }

    async fn key_of(&self, _: &Connection, name: &Name) -> Result<String> {
        let message = "the collation of the key may take several names for one lock, and the server does not say which: lock one name at a time";
        match self.known("key")?.collation.as_deref() {
            None => Ok(name.to_string()),
            Some("") => Ok(name.as_str().trim_end_matches(' ').to_owned()),
            Some(named) => Err(Error::new(ErrorKind::Unsupported, "key", message).with("collation", named)),
        }
    }

    async fn keys(&self, connection: &Connection, from: &str, most: i64) -> Result<Vec<(String, bool)>> {
        let parameters: [(&(dyn ToSql + Sync), Type); 2] = [(&from, Type::TEXT), (&most, Type::INT8)];
        let rows = connection.query("names", &self.known("names")?.names, &parameters, &meant).await?;
        rows.iter().map(|row| Ok((value("names", row, 0)?, value("names", row, 1)?))).collect()
    }
}
