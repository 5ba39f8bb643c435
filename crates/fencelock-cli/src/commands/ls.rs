//! `fencelock ls`: which locks are held or waited for.

use clap::Args;
use fencelock::{Client, Name, Queue};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::StoreArguments;
use crate::arguments;
use crate::say::Outcome;
use crate::show::{Lock, print_json, print_store, print_table};

/// How many names are asked for at a time.
const PAGE: usize = 1000;
/// How many queues are read at a time.
const READS: usize = 16;

/// List the locks that somebody holds or waits for.
///
/// With --json: an array of objects with `name`, `kind` ("mutex", "read-write" or "semaphore"), of a semaphore the
/// `permits` that are held and its `capacity` (else null), `holders` (as `show` gives contenders) and `waiting` (how
/// many wait).
#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Only names that start with this.
    #[arg(default_value = "", hide_default_value = true, value_parser = arguments::prefix())]
    prefix: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Ls {
    pub(super) async fn run(&self, store: &StoreArguments) -> Outcome<u8> {
        let mut locks = Vec::new();
        let (chosen, client) = store.connect_to_look().await?;
        if let Some(client) = client {
            let found = all_locks(&client, &self.prefix).await;
            super::farewell(&client).await;
            locks = found?;
        }
        if self.json {
            print_json(&locks)?;
        } else {
            let heads = ["NAME", "HELD AS", "HOLDER", "SINCE", "PURPOSE", "WAITING"];
            print_table(&heads, locks.iter().map(Lock::row))?;
            print_store(&chosen)?;
        }
        Ok(0)
    }
}

async fn all_locks(client: &Client, prefix: &str) -> Outcome<Vec<Lock>> {
    let mut locks = Vec::new();
    let mut from: Option<Name> = None;
    loop {
        let names = client.names(prefix, from.as_ref(), PAGE).await?;
        let queues: Vec<Queue> =
            stream::iter(&names).map(|name| client.queue(name)).buffered(READS).try_collect().await?;
        // Whoever was there may have gone since the names were listed.
        locks.extend(queues.iter().filter(|queue| !queue.contenders.is_empty()).map(Lock::new));
        match names.into_iter().next_back() {
            Some(last) => from = Some(last),
            None => return Ok(locks),
        }
    }
}
