//! `fencelock ls`: which locks are held or waited for.

use std::time::Duration;

use clap::Args;
use fencelock::{Client, Name};
use futures_util::{StreamExt as _, stream};

use super::{BESIDE, SILENCE, StoreArguments};
use crate::arguments;
use crate::locks::{self, Lock, READS};
use crate::output::{Failure, Outcome, code, say};
use crate::settings::Chosen;
use crate::show::{print_json, print_store, print_table};

/// List the locks that somebody holds or waits for.
///
/// A lock whose queue cannot be read is a row of its own, and the exit code is that of the first such fault; a store that cannot
/// be reached any more ends the list. Exits with 1
/// if another client's contender does not wait for those ahead of it, or may not, so that the lock can be held twice.
///
/// With --json: an array of objects with `name`, `store`, `kind` ("mutex", "read-write" or "semaphore"), of a semaphore the
/// `permits` that are held and its `capacity` (else null), `holders` (the first of them, as `show` gives contenders),
/// `waiting` (how many wait), `beside` (as `show` gives it) and `error` (why the queue cannot be read, else null).
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
        let mut found = Found::default();
        let (chosen, client) = store.connect_to_look(true, &[]).await?;
        if let Some(client) = client {
            let look = found.look(&client, &self.prefix, &chosen);
            let kept = if chosen.url.starts_with("redis") { "keys" } else { "names" };
            slowly(look, SILENCE, || say(format_args!("going through all {kept} of {}", chosen.name()))).await;
            super::farewell(&client, found.failure.is_some()).await;
        }
        let Found { locks, failure } = found;
        if self.json {
            print_json(&locks)?;
        } else {
            let heads = ["NAME", "HELD AS", "HOLDER", "SINCE", "PURPOSE", "WAITING"];
            print_table(&heads, locks.iter().map(Lock::row))?;
            for lock in &locks {
                lock.holders.iter().try_for_each(|holder| holder.print_trouble(&lock.name))?;
            }
            print_store(&chosen)?;
        }
        for lock in &locks {
            lock.beside.iter().for_each(|beside| say(beside.warning(&lock.name)));
        }
        match failure {
            Some(failure) => Err(failure),
            None if locks.iter().any(|lock| !lock.beside.is_empty()) => Ok(BESIDE),
            None => Ok(0),
        }
    }
}

/// Does `work`, and says a `word` when that takes longer than `silence`.
async fn slowly<T>(work: impl Future<Output = T>, silence: Duration, word: impl FnOnce()) -> T {
    tokio::pin!(work);
    tokio::select! {
        biased;
        done = &mut work => return done,
        () = tokio::time::sleep(silence) => word(),
    }
    work.await
}

/// What was found, and the first thing that went wrong.
#[derive(Default)]
struct Found {
    locks: Vec<Lock>,
    failure: Option<Failure>,
}

impl Found {
    async fn look(&mut self, client: &Client, prefix: &str, chosen: &Chosen) {
        let names = match client.names(prefix, None, usize::MAX).await {
            Ok(names) => names,
            Err(error) => {
                self.failure.get_or_insert(error.with("store from", &chosen.origin).into());
                return;
            }
        };
        let looks = stream::iter(&names).map(|name| async move { (name, look(client, name, chosen).await) });
        let mut looks = looks.buffered(READS);
        while let Some((name, lock)) = looks.next().await {
            match lock {
                Ok(lock) => self.locks.extend(lock),
                // The others would take as long to say the same.
                Err(failure) if failure.code == code::UNAVAILABLE => {
                    self.failure = Some(failure);
                    return;
                }
                Err(failure) => {
                    self.locks.push(Lock::unread(name, &chosen.name(), &failure));
                    let message = format!("not every lock can be read, {name} for one");
                    self.failure.get_or_insert(Failure::new(failure.code, message));
                }
            }
        }
    }
}

/// The lock `name`; `None` when all contenders have gone since the names were listed.
async fn look(client: &Client, name: &Name, chosen: &Chosen) -> Outcome<Option<Lock>> {
    let head = locks::head(client, name).await?;
    Ok(head.map(|(queue, holders)| Lock::new(&queue, holders, &chosen.name())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_takes_long_says_so_once_and_goes_on() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (said, is_said) = tokio::sync::oneshot::channel();
        let slow = async { is_said.await.map(|()| "done") };
        let word = || said.send(()).unwrap();
        assert_eq!(runtime.block_on(slowly(slow, Duration::from_millis(1), word)), Ok("done"));
        let quick = slowly(async { "done" }, Duration::ZERO, || unreachable!("it was not slow"));
        assert_eq!(runtime.block_on(quick), "done");
    }
}
