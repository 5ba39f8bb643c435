//! `cargo xtask servers`: every server that tests share, for as long as one likes.

use fencelock_testbed::KINDS;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::packages;
use crate::shell::{self, Result};

pub(crate) fn run(args: &[String]) -> Result {
    shell::no_arguments(args)?;
    packages::ensure(packages::GATE, packages::GATE_SERVERS)?;
    let fault = |error: std::io::Error| error.to_string();
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(fault)?;
    let mut running = Vec::new();
    for kind in KINDS {
        let server = kind.start().map_err(|error| format!("{}: {error}", kind.scheme))?;
        let address = server.address();
        println!("{}", kind.url(address, &kind.namespace(address).map_err(fault)?, ""));
        println!("    export {}={address}", kind.variable);
        running.push(server);
    }
    println!("file, memory: no server. redlock: tests start several servers of their own.");
    println!("Ctrl-C stops them and removes their data.");
    signals.forever().next();
    Ok(())
}
