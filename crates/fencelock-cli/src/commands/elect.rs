//! `fencelock elect`: runs a command while this is the leader, and again whenever it is elected again.

use std::time::Duration;

use clap::Args;
use fencelock::Name;

use super::StoreArguments;
use super::acquire::Waiting;
use super::run::{Run, Task};
use crate::arguments;
use crate::output::{Outcome, code};

/// Run a command only while leading.
///
/// Of all candidates of one name, one leads at a time, and holds the lock of that name. A store must be named: the default is one of
/// this host. The command is started when this candidate is elected, and finds its term, which is the fencing token, in
/// FENCELOCK_TOKEN. The command is stopped, as `run` stops a command, before leadership becomes uncertain; then the candidate waits
/// again. `elect` ends with the exit code of a command that ends by itself, or on a signal (TERM, INT, HUP, QUIT).
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Elect {
    /// The election's name: 1 to 512 bytes of UTF-8.
    #[arg(value_parser = arguments::name)]
    name: Name,
    /// Keep trying for this long to reach the store, each time anew; 30s if not given.
    #[arg(long, value_name = "DURATION", value_parser = arguments::duration_or_zero, allow_hyphen_values = true)]
    connect_wait: Option<Duration>,
    /// Say nothing about waiting.
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// Where the leader is reached: the note on the lock, which `show` calls the holder's while it leads. The store must keep notes.
    #[arg(long, value_name = "TEXT", value_parser = arguments::address)]
    address: Option<String>,
    #[command(flatten)]
    task: Task,
}

const EXIT_CODES: &str = "\
Exit codes: the command's own (128 + n if signal n ended it), or as `fencelock run --help` lists them. A store
that is out of reach for longer than --connect-wait ends it with 69, also after it has led.";

impl Elect {
    pub(super) async fn run(&self, store: &StoreArguments) -> Outcome<u8> {
        // The candidate starts its command whenever it holds the lock.
        let run = Run {
            names: vec![self.name.clone()],
            waiting: Waiting { wait: None, at_once: false, busy_exit_code: code::BUSY, quiet: self.quiet },
            connect_wait: self.connect_wait,
            // A command that outlives its fencelock would still lead when it should end.
            close: true,
            task: self.task.clone(),
            again: true,
            address: self.address.clone(),
            ..Run::default()
        };
        run.run(store).await
    }
}
