//! `fencelock show`: all contenders of a queue.

use std::io::{self, Write as _};
use std::time::SystemTime;

use clap::Args;
use fencelock::Name;
use fencelock::inspect::{Page, Queue};

use super::r#break::records;
use super::{BESIDE, StoreArguments};
use crate::arguments;
use crate::output::{Outcome, chain, harmless, say};
use crate::show::{Broken, Noted, QUEUE_HEADS, Shown, WholeQueue, print_json, print_store, print_table};

/// How many broken grants the table shows, the last ones.
const BREAKS: usize = 5;

/// Show who holds a lock, and who waits for it in which order.
///
/// Exits with 1 if another client's contender does not wait, or perhaps does not, for the contenders ahead of it, so
/// that the lock can be held twice: its row and a warning say so.
///
/// With --json: an object with `name`, `store`, `queued` (how many are in the queue), `contenders` (those on the page), `beside` (locks of
/// other clients that may be held at the same time: `what`, `contenders`, and `waits`, "no" or "perhaps"), `strangers` (things in the store
/// that only look like contenders), `closed` (until when the store grants no lock, and why, or null), `note` (only where there is one:
/// `value`, null if it is not UTF-8, and the `token` of who wrote it) and `breaks` (grants that `fencelock break` ended, as far as the store
/// keeps them: `at`, `token`, `claim`, `host`, `pid`, `by_host`, `by_pid`, `reason`). A contender has `position` (from 1), `state` ("holder",
/// "waiter", or of another client "holds too" or "waits or holds too"), `kind` ("mutex", "reader", "writer" or "permits"), `permits` and
/// `capacity` (numbers, of permits), `claim` (all of that in words), `host` (or what another client calls itself), `pid`, `client`,
/// `request`, `purpose`, `since` (RFC 3339, by the store's clock), `token` (a string, as it does not fit a double), `foreign` (which lock of
/// which other client it is), and on `file:` `process` ("stopped" or "gone", if its process is) and `kept_by` (the processes that keep the
/// session of one that is gone); a value that the store does not keep is null.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The lock's name.
    #[arg(value_parser = arguments::name)]
    name: Name,
    /// Leave out this number of contenders at the front.
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip: usize,
    /// Show this number of contenders at most.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: usize,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(super) async fn run(&self, store: &StoreArguments) -> Outcome<u8> {
        let (chosen, client) = store.connect_to_look(true, std::slice::from_ref(&self.name)).await?;
        let page = Page { skip: self.skip, limit: self.limit };
        let (queue, breaks, note, now) = match client {
            Some(client) => {
                let queue = client.queue_page(&self.name, page).await;
                let queue = queue.map_err(|error| error.with("store from", &chosen.origin));
                let breaks = records(&client, &self.name).await;
                let (note, now) = match client.capability().notes && queue.is_ok() {
                    // The holder is shown without its note, too.
                    true => client.note(&self.name).await.map(|read| (read.note, read.now)).unwrap_or_else(|error| {
                        say(format_args!("the note is not shown: {}", chain(&error)));
                        (None, SystemTime::now())
                    }),
                    false => (None, SystemTime::now()),
                };
                super::farewell(&client, queue.is_err() || breaks.is_err()).await;
                (queue?, breaks?, note, now)
            }
            None => (Queue::page_of(self.name.clone(), Vec::new(), Page::ALL), Vec::new(), None, SystemTime::now()),
        };
        let mut shown = WholeQueue::new(&queue, self.skip, &chosen, now);
        shown.breaks = breaks.iter().map(Broken::new).collect();
        shown.note = note.map(|note| Noted::new(&note, &queue));
        if self.json {
            print_json(&shown)?;
        } else {
            self.print(&shown)?;
            print_store(&chosen)?;
            shown.strangers.iter().for_each(|stranger| say(format_args!("not part of the queue: {stranger}")));
        }
        shown.closed.iter().for_each(say);
        shown.beside.iter().for_each(|beside| say(beside.warning(self.name.as_str())));
        Ok(if shown.beside.is_empty() { 0 } else { BESIDE })
    }

    fn print(&self, shown: &WholeQueue) -> Outcome<()> {
        let name = harmless(self.name.as_str(), false);
        if shown.queued == 0 && !shown.beside.is_empty() {
            writeln!(
                io::stdout().lock(),
                "no client is in the queue of {name}, and other clients lock it in another way"
            )?;
        } else if shown.queued == 0 {
            writeln!(io::stdout().lock(), "no client holds or waits for {name}")?;
        } else {
            print_table(&QUEUE_HEADS, shown.contenders.iter().map(Shown::row))?;
            for contender in &shown.contenders {
                contender.print_trouble(&format!("position {}", contender.position))?;
            }
        }
        let end = self.skip.saturating_add(shown.contenders.len());
        if end < shown.queued {
            writeln!(io::stdout().lock(), "{} in the queue; --skip {end} shows those behind", shown.queued)?;
        }
        if let Some(note) = &shown.note {
            writeln!(io::stdout().lock(), "{}", harmless(&note.sentence(), false))?;
        }
        let skipped = shown.breaks.len().saturating_sub(BREAKS);
        for broken in &shown.breaks[skipped..] {
            writeln!(io::stdout().lock(), "{}", harmless(&broken.sentence(), false))?;
        }
        Ok(())
    }
}
