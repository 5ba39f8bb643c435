//! What a `postgres:` URL may say of a layout of others.

use super::super::advisory::Keys;
use super::super::url::{Config, bad};
use super::table::Table;
use crate::error::Result;
use crate::kit::lock_table::{Kind, LockTable};
use crate::store::StoreUrl;

pub(in super::super) enum Layout {
    Fair,
    Table(Box<Table>),
    Advisory(Keys),
}

const KNOWN: &str = "fair, distributed_lock, shedlock, advisory";

const NOT_OF_KEYS: &str = "`key` is an option of advisory locks: say `layout=advisory`";
const NO_SCHEMA: &str = "`schema` is of our own tables: a lock table is named as in table=app.distributed_lock";

impl Layout {
    pub(in super::super) fn and_config(mut url: StoreUrl) -> Result<(Self, Config)> {
        let layout = Self::take(&mut url)?;
        Ok((layout, Config::from_url(url)?))
    }

    fn take(url: &mut StoreUrl) -> Result<Self> {
        let (layout, key) = (url.take("layout"), url.take("key"));
        let table = LockTable::take(url, layout.as_deref(), bad)?;
        let layout = match (layout.as_deref(), table) {
            (None | Some("fair"), _) if key.is_some() => return Err(bad(NOT_OF_KEYS)),
            (None | Some("fair"), _) => return Ok(Self::Fair),
            (Some("advisory"), _) => Self::Advisory(Keys::read(key.as_deref())?),
            (_, Some(_)) if key.is_some() => return Err(bad(NOT_OF_KEYS)),
            (_, Some(table)) if table.zone.is_some() && table.kind != Kind::Tutorial => {
                return Err(bad("the times in ShedLock's table are UTC: leave `zone` out"));
            }
            (_, Some(table)) => Self::Table(Box::new(Table::new(table))),
            _ => return Err(bad("unknown layout").with("known", KNOWN)),
        };
        match url.take("schema") {
            Some(_) => Err(bad(NO_SCHEMA)),
            None => Ok(layout),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(options: &str) -> Result<Option<Table>> {
        let mut url = StoreUrl::parse(&format!("postgres://me@localhost/app?{options}"))?;
        Ok(match Layout::take(&mut url)? {
            Layout::Table(table) => Some(*table),
            Layout::Fair | Layout::Advisory(_) => None,
        })
    }

    #[test]
    fn tables_and_columns_have_the_names_that_are_given_or_those_of_the_layout() {
        let plain = table("layout=distributed_lock").unwrap().unwrap();
        assert_eq!(
            (plain.of.name.clone(), plain.of.columns.join(" ")),
            (vec!["distributed_lock".into()], "lock_key lock_value expire_time".into())
        );
        let named =
            table("layout=distributed_lock&table=App.Locks&columns=k,v%22,e&zone=Europe/Berlin").unwrap().unwrap();
        assert!(
            named
                .ddl()
                .starts_with("CREATE TABLE IF NOT EXISTS \"App\".\"Locks\" (\"k\" varchar(512) PRIMARY KEY, \"v\"\"\""),
            "{}",
            named.ddl()
        );
        assert_eq!(named.of.zone.as_deref(), Some("Europe/Berlin"));
        let shed = table("layout=shedlock&columns=NAME,LOCK_UNTIL,LOCKED_AT,LOCKED_BY").unwrap().unwrap();
        assert_eq!(shed.of.columns.join(" "), "NAME LOCKED_BY LOCK_UNTIL LOCKED_AT");
        assert!(table("layout=fair").unwrap().is_none() && table("").unwrap().is_none());
    }

    #[test]
    fn what_names_no_table_is_refused() {
        for options in [
            "layout=other",
            "layout=advisory",
            "layout=advisory&key=.net&schema=a",
            "layout=advisory&key=.net&table=a",
            "layout=distributed_lock&key=.net",
            "key=.net",
            "table=a",
            "layout=fair&columns=a,b,c",
            "zone=UTC",
            "layout=distributed_lock&lock_at_least_for_ms=1",
            "layout=shedlock&zone=UTC",
            "layout=shedlock&columns=a,b,c",
            "layout=shedlock&lock_at_least_for_ms=x",
            "layout=distributed_lock&schema=a",
            "layout=distributed_lock&table=",
            "layout=distributed_lock&table=a.b.c",
            "layout=distributed_lock&columns=a,b",
            "layout=distributed_lock&columns=a,b,b",
            "layout=distributed_lock&columns=a,b,",
            "layout=distributed_lock&zone=",
            "layout=distributed_lock&zone=U'TC",
        ] {
            assert_eq!(table(options).unwrap_err().kind(), crate::error::ErrorKind::Config, "{options}");
        }
    }
}
