//! The servers that tests start and stop. The stores of today live in a directory and in memory, so there are none.

use crate::shell::{self, Result};

/// The stores that need no server. A store that is in neither this list nor a table of servers fails the tests.
const WITHOUT: &[(&str, &str)] = &[("file", "a directory"), ("memory", "this process")];

pub(crate) fn run(args: &[String]) -> Result {
    shell::no_arguments(args)?;
    none_is_needed()?;
    for (scheme, place) in WITHOUT {
        println!("{scheme}: no server, it lives in {place}");
    }
    Ok(())
}

/// Fails when there is a store whose server nobody starts.
pub(crate) fn none_is_needed() -> Result {
    let scheme = |info: &fencelock::store::StoreInfo| info.scheme;
    match fencelock::store::stores().iter().map(scheme).find(|scheme| !WITHOUT.iter().any(|(known, _)| known == scheme))
    {
        None => Ok(()),
        Some(scheme) => Err(format!("nobody starts a server for {scheme}: add it to xtask/src/servers.rs")),
    }
}
