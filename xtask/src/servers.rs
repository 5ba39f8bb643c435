//! The servers that tests start and stop, and `cargo xtask servers`, which starts them all for as long as one likes.

use fencelock_testbed::{KINDS, Kind};

use crate::packages;
use crate::shell::{self, Result};

/// The stores that need no server that tests share. A store that is neither in these lists nor one of the test bed's [`KINDS`] fails the tests.
const WITHOUT: &[(&str, &str)] = &[
    ("file", "a directory"),
    ("memory", "this process"),
    ("redlock", "several servers of a test's own"),
    ("redlocks", "several servers of a test's own"),
];

/// A server that runs until it is dropped.
pub(crate) struct Server {
    /// What tells tests where it is: an environment variable and its value.
    pub(crate) variable: (&'static str, String),
    url: String,
    _running: Box<dyn std::any::Any>,
}

pub(crate) fn run(args: &[String]) -> Result {
    shell::no_arguments(args)?;
    for (scheme, place) in WITHOUT {
        println!("{scheme}: no server, it lives in {place}");
    }
    packages::ensure(packages::TESTS, packages::SERVERS)?;
    let servers = start()?;
    for Server { variable: (name, value), url, .. } in &servers {
        println!("{url}\n    export {name}={value}");
    }
    println!("Ctrl-C stops them and removes their data.");
    wait_for_signal().map_err(|error| format!("waiting for a signal: {error}"))
}

/// Starts every server that tests share.
pub(crate) fn start() -> Result<Vec<Server>> {
    every_store_has_one()?;
    KINDS.iter().map(|kind| start_one(kind).map_err(|fault| format!("{}: {fault}", kind.scheme))).collect()
}

fn start_one(kind: &Kind) -> std::io::Result<Server> {
    let running = kind.start()?;
    let address = running.address();
    let url = kind.url(address, &kind.namespace(address)?, "");
    Ok(Server { variable: (kind.variable, address.to_string()), url, _running: Box::new(running) })
}

/// Fails when there is a store whose server nobody starts.
fn every_store_has_one() -> Result {
    let with = KINDS.iter().flat_map(|kind| kind.other_schemes.iter().chain([&kind.scheme]).copied());
    let known: Vec<_> = with.chain(WITHOUT.iter().map(|(scheme, _)| *scheme)).collect();
    let scheme = |info: &fencelock::StoreInfo| info.scheme;
    match fencelock::stores().iter().map(scheme).find(|scheme| !known.contains(scheme)) {
        None => Ok(()),
        Some(scheme) => Err(format!("nobody starts a server for {scheme}: add it to KINDS of the test bed")),
    }
}

/// Returns on Ctrl-C, or when asked to end.
fn wait_for_signal() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
        let (mut interrupt, mut end) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = end.recv() => {}
        }
        Ok(())
    })
}
