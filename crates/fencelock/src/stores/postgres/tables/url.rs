//! The options of a `postgres:` URL for a layout of others.

use super::super::advisory::Keys;
use super::super::url::{Config, bad};
use crate::error::Result;
use crate::kit::lock_table::{Layout, TableKind};
use crate::store::StoreUrl;

pub(in super::super) fn layout_and_config(mut url: StoreUrl) -> Result<(Layout<Keys>, Config)> {
    Ok((layout(&mut url)?, Config::from_url(url)?))
}

fn layout(url: &mut StoreUrl) -> Result<Layout<Keys>> {
    let key = url.take("key");
    let stray = key.as_ref().map(|_| "`key` is an option of advisory locks: say `layout=advisory`");
    let layout = Layout::take(url, bad, "advisory", stray, || Keys::read(key.as_deref()))?;
    match &layout {
        Layout::Table(table) if table.zone.is_some() && table.kind != TableKind::Tutorial => {
            Err(bad("the times in ShedLock's table are UTC: leave `zone` out"))
        }
        Layout::Table(_) | Layout::Session(_) if url.take("schema").is_some() => {
            Err(bad("`schema` is of our own tables: a lock table is named as in table=app.distributed_lock"))
        }
        _ => Ok(layout),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Table;
    use super::*;

    fn table(options: &str) -> Result<Option<Table>> {
        let mut url = StoreUrl::parse(&format!("postgres://me@localhost/app?{options}"))?;
        Ok(match layout(&mut url)? {
            Layout::Table(table) => Some(Table::new(table)),
            Layout::Fair | Layout::Session(_) => None,
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
