//! What a `postgres:` URL may say of a layout of others.

use super::super::advisory::Keys;
use super::super::url::{Config, bad};
use super::table::{Kind, Table};
use crate::error::Result;
use crate::store::StoreUrl;

/// How locks are kept.
pub(in super::super) enum Layout {
    /// In queues of our own.
    Fair,
    Table(Box<Table>),
    /// In the memory of the server, by keys of others.
    Advisory(Keys),
}

/// The layouts that there are.
const KNOWN: &str = "fair, distributed_lock, shedlock, advisory";

/// The options of lock tables.
const OF_TABLES: [&str; 3] = ["table", "columns", "zone"];

const NOT_OF_TABLES: &str =
    "`table`, `columns` and `zone` are options of lock tables: say `layout=distributed_lock` or `layout=shedlock`";
const NOT_OF_KEYS: &str = "`key` is an option of advisory locks: say `layout=advisory`";
const NO_SCHEMA: &str = "`schema` is of our own tables: a lock table is named as in table=app.distributed_lock";

/// The longest name that the server keeps whole.
const NAME_MOST: usize = 63;

impl Layout {
    /// What a URL says of the layout, and of the server.
    pub(in super::super) fn and_config(mut url: StoreUrl) -> Result<(Self, Config)> {
        let layout = Self::take(&mut url)?;
        Ok((layout, Config::from_url(url)?))
    }

    /// Takes the layout out of a URL, and what is said of it.
    fn take(url: &mut StoreUrl) -> Result<Self> {
        let layout = url.take("layout");
        let (key, at_least) = (url.take("key"), url.take_ms("lock_at_least_for_ms")?);
        if at_least.is_some() && layout.as_deref() != Some("shedlock") {
            return Err(bad("`lock_at_least_for_ms` is an option of `layout=shedlock`"));
        }
        let kind = match layout.as_deref() {
            Some("distributed_lock") => Kind::Tutorial,
            Some("shedlock") => Kind::ShedLock { at_least: at_least.unwrap_or_default() },
            None | Some("fair" | "advisory") if OF_TABLES.iter().any(|option| url.take(option).is_some()) => {
                return Err(bad(NOT_OF_TABLES));
            }
            Some("advisory") if url.take("schema").is_some() => return Err(bad(NO_SCHEMA)),
            Some("advisory") => return Keys::read(key.as_deref()).map(Self::Advisory),
            None | Some("fair") if key.is_some() => return Err(bad(NOT_OF_KEYS)),
            None | Some("fair") => return Ok(Self::Fair),
            Some(_) => return Err(bad("unknown layout").with("known", KNOWN)),
        };
        if key.is_some() {
            return Err(bad(NOT_OF_KEYS));
        }
        if url.take("schema").is_some() {
            return Err(bad(NO_SCHEMA));
        }
        let (table, columns) = kind.names();
        let name = names(&url.take("table").unwrap_or_else(|| table.to_owned()), '.').filter(|name| name.len() <= 2);
        let name = name.ok_or_else(|| {
            bad("a lock table is named as it is, as in table=distributed_lock or table=app.distributed_lock")
        })?;
        let given = names(&url.take("columns").unwrap_or_else(|| columns.to_owned()), ',');
        let columns = given.filter(|given| given.len() == columns.split(',').count()).ok_or_else(|| {
            bad("the columns of a lock table are named in their order, with commas between").with("by default", columns)
        })?;
        let columns = match kind {
            Kind::Tutorial => columns,
            // The end is the second of ShedLock's columns, and the holder the last.
            Kind::ShedLock { .. } => [0, 3, 1, 2].map(|index: usize| columns[index].clone()).to_vec(),
        };
        let zone = url.take("zone");
        if zone.is_some() && kind != Kind::Tutorial {
            return Err(bad("the times in ShedLock's table are UTC: leave `zone` out"));
        }
        if zone.as_deref().is_some_and(|zone| !is_a_zone(zone)) {
            return Err(bad("a time zone is named as the server does, as in zone=UTC or zone=Europe/Berlin"));
        }
        Ok(Self::Table(Box::new(Table { kind, name, columns, zone, statements: Default::default() })))
    }
}

impl Kind {
    /// How the table and its columns are called by default.
    fn names(&self) -> (&'static str, &'static str) {
        match self {
            Self::Tutorial => ("distributed_lock", "lock_key,lock_value,expire_time"),
            Self::ShedLock { .. } => ("shedlock", "name,lock_until,locked_at,locked_by"),
        }
    }
}

/// Names with `between` between them, none twice.
fn names(text: &str, between: char) -> Option<Vec<String>> {
    let names: Vec<String> = text.split(between).map(str::to_owned).collect();
    let is_name = |name: &String| !name.is_empty() && name.len() <= NAME_MOST && !name.contains(char::is_control);
    let is_new = |index: usize| !names[..index].contains(&names[index]);
    (names.iter().all(is_name) && (between == '.' || (0..names.len()).all(is_new))).then_some(names)
}

fn is_a_zone(zone: &str) -> bool {
    !zone.is_empty() && zone.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '+' | '-'))
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
            (plain.name, plain.columns.join(" ")),
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
        assert_eq!(named.zone.as_deref(), Some("Europe/Berlin"));
        let shed = table("layout=shedlock&columns=NAME,LOCK_UNTIL,LOCKED_AT,LOCKED_BY").unwrap().unwrap();
        assert_eq!(shed.columns.join(" "), "NAME LOCKED_BY LOCK_UNTIL LOCKED_AT");
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
