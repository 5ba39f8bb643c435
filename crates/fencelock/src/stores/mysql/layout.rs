//! The layout in a `mysql:` URL.

use super::get_lock::Keys;
use super::url::{Config, bad};
use crate::error::Result;
use crate::kit::lock_table::Layout;
use crate::store::StoreUrl;

pub(super) fn layout_and_config(mut url: StoreUrl) -> Result<(Layout<Keys>, Config)> {
    Ok((layout(&mut url)?, Config::from_url(url)?))
}

fn layout(url: &mut StoreUrl) -> Result<Layout<Keys>> {
    let (key, prefix) = (url.take("key"), url.take("prefix"));
    let stray = key.as_ref().or(prefix.as_ref());
    let stray = stray.map(|_| "`key` and `prefix` are options of named locks: say `layout=get_lock`");
    Layout::take(url, bad, "get_lock", stray, || Keys::read(key.as_deref(), prefix))
}

#[cfg(test)]
mod tests {
    use super::{Keys, Layout, Result, StoreUrl};

    fn layout(options: &str) -> Result<Layout<Keys>> {
        super::layout(&mut StoreUrl::parse(&format!("mysql://me@localhost/app?{options}"))?)
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
        assert!(matches!(layout("layout=get_lock&key=exact&prefix=app_"), Ok(Layout::Session(_))));
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
