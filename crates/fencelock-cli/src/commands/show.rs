//! `fencelock show`: everybody in one queue.

use std::io::{self, Write as _};

use clap::Args;
use fencelock::{Name, Page, Queue};

use super::StoreArguments;
use super::r#break::records;
use crate::arguments;
use crate::say::{Outcome, harmless, say};
use crate::show::{Everybody, Shown, print_json, print_store, print_table};

/// How many broken grants the table shows, the last ones.
const BREAKS: usize = 5;

/// Show who holds a lock, and who waits for it in which order.
///
/// With --json: an object with `name`, `contenders`, `strangers` (things in the store that only look like contenders) and
/// `breaks` (grants that `fencelock break` ended, as far as the store keeps them: `at`, `token`, `claim`, `host`, `pid`,
/// `by_host`, `by_pid`, `reason`). A contender has `position` (from 1), `state` ("holder" or "waiter"), `kind` ("mutex", "reader",
/// "writer" or "permits"), `permits` and `capacity` (numbers, of permits), `claim` (all of that in words), `host`,
/// `pid`, `client`, `request`, `purpose`, `since` (RFC 3339, by the store's clock) and `token` (a string, as it does not
/// fit a double); what the store does not tell is null.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The lock's name.
    #[arg(value_parser = arguments::name())]
    name: Name,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(super) async fn run(&self, store: &StoreArguments) -> Outcome<u8> {
        let (chosen, client) = store.connect_to_look().await?;
        let (queue, breaks) = match client {
            Some(client) => {
                let (queue, breaks) = (client.queue(&self.name).await, records(&client, &self.name).await);
                super::farewell(&client).await;
                (queue?, breaks?)
            }
            None => (Queue::page_of(self.name.clone(), Vec::new(), Page::ALL), Vec::new()),
        };
        let shown = Everybody::new(&queue, &breaks);
        if self.json {
            print_json(&shown)?;
            return Ok(0);
        }
        if shown.contenders.is_empty() {
            writeln!(io::stdout().lock(), "nobody holds or waits for {}", harmless(self.name.as_str(), false))?;
        } else {
            let heads = ["POSITION", "STATE", "CLAIM", "HOST", "PID", "SINCE", "PURPOSE", "TOKEN"];
            print_table(&heads, shown.contenders.iter().map(Shown::row))?;
        }
        let skipped = shown.breaks.len().saturating_sub(BREAKS);
        for broken in &shown.breaks[skipped..] {
            writeln!(io::stdout().lock(), "{}", harmless(&broken.sentence(), false))?;
        }
        print_store(&chosen)?;
        for stranger in &shown.strangers {
            say(format_args!("not part of the queue: {stranger}"));
        }
        Ok(0)
    }
}
