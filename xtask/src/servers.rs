//! The servers that tests start and stop, and `cargo xtask servers`, which starts them all for as long as one likes.

use fencelock_testbed::redis;
use fencelock_testbed::zookeeper::{self, Ensemble};

use crate::packages;
use crate::shell::{self, Result};

/// The stores that need no server. A store that is in none of these lists fails the tests.
const WITHOUT: &[(&str, &str)] = &[("file", "a directory"), ("memory", "this process")];

/// The stores that need one, and how it is started.
const WITH: &[(&str, Start)] = &[("redis", redis), ("zk", zookeeper)];

/// Other ways to a server of [`WITH`]. Tests that go them start servers of their own.
const ANOTHER_WAY: &[(&str, &str)] = &[("redis+unix", "redis"), ("rediss", "redis"), ("zks", "zk")];

type Start = fn() -> Result<Server>;

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
    WITH.iter().map(|(scheme, start)| start().map_err(|fault| format!("{scheme}: {fault}"))).collect()
}

fn zookeeper() -> Result<Server> {
    let ensemble = Ensemble::start(zookeeper::Settings::default()).map_err(|error| error.to_string())?;
    let address = ensemble.server(0).address().to_string();
    Ok(Server { variable: (zookeeper::SHARED, address), url: ensemble.url("/locks"), _running: Box::new(ensemble) })
}

fn redis() -> Result<Server> {
    let server = redis::Server::start(redis::Settings::default()).map_err(|error| error.to_string())?;
    let address = server.address().to_string();
    // The first database counts those out that tests use.
    Ok(Server { variable: (redis::SHARED, address), url: server.url() + "/4095", _running: Box::new(server) })
}

/// Fails when there is a store whose server nobody starts.
fn every_store_has_one() -> Result {
    let without = WITHOUT.iter().chain(ANOTHER_WAY).map(|(known, _)| *known);
    let known: Vec<_> = WITH.iter().map(|(known, _)| *known).chain(without).collect();
    let scheme = |info: &fencelock::store::StoreInfo| info.scheme;
    match fencelock::store::stores().iter().map(scheme).find(|scheme| !known.contains(scheme)) {
        None => Ok(()),
        Some(scheme) => Err(format!("nobody starts a server for {scheme}: add it to xtask/src/servers.rs")),
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
