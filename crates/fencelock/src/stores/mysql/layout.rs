//! How a `mysql:` URL says that locks are kept.

use super::get_lock::Keys;
use super::tables::Table;
use super::url::{Config, bad};
use crate::error::Result;
use crate::kit::lock_table::LockTable;
use crate::store::StoreUrl;

pub(super) enum Layout {
    Fair,
    Table(Box<Table>),
    Named(Keys),
}

const KNOWN: &str = "fair, distributed_lock, shedlock, get_lock";

impl Layout {
    pub(super) fn and_config(mut url: StoreUrl) -> Result<(Self, Config)> {
        let layout = Self::take(&mut url)?;
        Ok((layout, Config::from_url(url)?))
    }

    fn take(url: &mut StoreUrl) -> Result<Self> {
        let (layout, key, prefix) = (url.take("layout"), url.take("key"), url.take("prefix"));
        let table = LockTable::take(url, layout.as_deref(), bad)?;
        Ok(match (layout.as_deref(), table) {
            (Some("get_lock"), _) => Self::Named(Keys::read(key.as_deref(), prefix)?),
            _ if key.is_some() || prefix.is_some() => {
                return Err(bad("`key` and `prefix` are options of named locks: say `layout=get_lock`"));
            }
            (None | Some("fair"), _) => Self::Fair,
            (_, Some(table)) => Self::Table(Box::new(Table::new(table))),
            _ => return Err(bad("unknown layout").with("known", KNOWN)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(options: &str) -> Result<Layout> {
        Layout::take(&mut StoreUrl::parse(&format!("mysql://me@localhost/app?{options}"))?)
    }

    #[test]
    fn a_layout_has_the_options_that_are_its_own() {
        for options in ["", "layout=fair"] {
            assert!(matches!(layout(options), Ok(Layout::Fair)), "{options}");
        }
        for options in
            ["layout=distributed_lock&table=app.Locks&columns=k,v,e&zone=+02:00", "layout=shedlock&zone=SYSTEM"]
        {
            assert!(matches!(layout(options), Ok(Layout::Table(_))), "{options}");
        }
        assert!(matches!(layout("layout=get_lock&key=exact&prefix=app_"), Ok(Layout::Named(_))));
        for options in [
            "layout=other",
            "layout=advisory&key=.net",
            "layout=get_lock",
            "layout=get_lock&key=exact&table=a",
            "layout=distributed_lock&key=exact",
            "layout=shedlock&prefix=a",
            "key=exact",
            "table=a",
            "zone=UTC",
            "lock_at_least_for_ms=1",
            "layout=distributed_lock&zone=U'TC",
        ] {
            let error = layout(options).err().unwrap_or_else(|| panic!("{options}"));
            assert_eq!(error.kind(), crate::error::ErrorKind::Config, "{options}");
        }
    }
}
