//! `fencelock elect`: runs a command while this is the leader, and again whenever it is elected again.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use fencelock::recipes::MultiGuard;
use fencelock::{ErrorKind, Name};
use futures_util::future::try_join_all;

use super::StoreArguments;
use super::r#break::holders;
use super::note::spare_a_job;
use super::run::Run;
use super::several::Home;
use crate::arguments;
use crate::output::{Failure, Outcome, code};

/// Run a command only while leading.
///
/// Of all that elect under one name, one leads at a time: it holds the lock of that name. A store must be named: the default is one of
/// this host. The command is started when this one is elected, and told its term, which is the fencing token, in FENCELOCK_TOKEN. It is
/// stopped, as `run` stops a command, before leadership becomes uncertain; then this one is a candidate again. It ends when the command
/// ends by itself, with its exit code, or when it is told to end (TERM, INT, HUP, QUIT).
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Elect {
    /// The election's name: 1 to 512 bytes of UTF-8.
    #[arg(value_parser = arguments::name())]
    pub(super) name: Name,
    /// Keep trying for this long to reach the store, each time anew; 30s if not given.
    #[arg(long, value_name = "DURATION", value_parser = arguments::duration_or_zero(), allow_hyphen_values = true)]
    pub(super) connect_wait: Option<Duration>,
    /// Say nothing about waiting.
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// Where the leader is reached: the note on the lock, which `show` calls the holder's while it leads. The store must keep notes.
    #[arg(long, value_name = "TEXT", value_parser = arguments::address())]
    pub(super) address: Option<String>,
    /// What this is a candidate for, as others see it; the command's name if not given.
    #[arg(long, value_name = "TEXT", value_parser = arguments::purpose())]
    pub(super) purpose: Option<String>,
    /// A command that is stopped is sent TERM, and KILL after this time, or earlier if leadership would expire.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = arguments::duration_or_zero(),
          allow_hyphen_values = true)]
    pub(super) grace: Duration,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(super) command: Vec<OsString>,
}

const EXIT_CODES: &str = "\
Exit codes: the command's own (128 + n if signal n ended it), or as `fencelock run --help` lists them. A store
that is out of reach for longer than --connect-wait ends it with 69, also after it has led.";

impl Elect {
    pub(super) async fn run(&self, store: &StoreArguments) -> Outcome<u8> {
        Run::for_election(self).run(store).await
    }
}

/// Refuses an address where there is no place for one.
pub(super) fn check_notes(homes: &[Home]) -> Outcome<()> {
    match homes.iter().find(|home| !home.client.capability().notes) {
        Some(home) => {
            let message = format!("{} keeps no notes, and so no --address", home.chosen.shown());
            Err(Failure::new(code::USAGE, message))
        }
        None => Ok(()),
    }
}

/// Writes on the lock of `guard` where its holder is reached, or deletes that.
pub(super) async fn write_address(homes: &[Home], guard: &MultiGuard, address: Option<&str>) -> Outcome<()> {
    let write = async |home: &Home, guard: &fencelock::AnyGuard| {
        let (client, name) = (&home.client, guard.name());
        if address.is_some() {
            spare_a_job(client, name).await?;
        }
        let held = holders(client, name).await?;
        let ours = held.iter().find(|holder| holder.owner.as_ref() == Some(client.owner()));
        let Some(ours) = ours else { return Ok(()) };
        match client.write_note_under(name, ours, address.map(str::as_bytes), None).await {
            Err(error) if error.kind() != ErrorKind::Lost => Err(Failure::from(error)),
            _ => Ok(()),
        }
    };
    try_join_all(homes.iter().zip(guard.guards()).map(|(home, guard)| write(home, guard))).await.map(drop)
}
