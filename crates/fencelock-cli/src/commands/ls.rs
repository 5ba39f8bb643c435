//! `fencelock ls`: which locks are held or waited for.

use clap::Args;
use fencelock::Client;

use super::{BESIDE, Failures, StoreArguments, look_at};
use crate::locks::{self, Lock};
use crate::output::{Failure, Outcome, say};
use crate::settings::Chosen;
use crate::show::{print_json, print_store, print_table};

/// List the locks with holders or waiters, in all stores where the configuration has routes.
///
/// A lock whose queue cannot be read is a row of its own, and the exit code is that of the first such fault; the list ends when
/// the store can no longer be reached. Exits with 1 if another client's contender does not wait, or perhaps does not, for the
/// contenders ahead of it: the lock can be held twice.
///
/// With --json: an array of objects with `name`, `store`, `kind` ("mutex", "read-write" or "semaphore"), of a semaphore the
/// `permits` that are held and its `capacity` (else null), `holders` (the first of them, as `show` gives contenders),
/// `waiting` (how many wait), `beside` (as `show` gives it) and `error` (why the queue cannot be read, else null).
#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Only names that start with this.
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Ls {
    pub(super) async fn run(&self, store: &StoreArguments) -> Outcome<u8> {
        let stores = store.choose_every()?;
        let (mut locks, mut failures) = (Vec::new(), Failures::default());
        for chosen in &stores {
            match look_at(chosen).await {
                Ok(Some(client)) => {
                    self.look(&client, chosen, &mut locks, &mut failures).await;
                    super::farewell(&client, failures.0.is_some()).await;
                }
                Ok(None) => {}
                Err(failure) if stores.len() == 1 => return Err(failure),
                Err(failure) => drop(failures.note::<()>(Err(failure))),
            }
        }
        // An empty list would claim that no lock is held.
        if locks.is_empty()
            && let Some(failure) = failures.0
        {
            return Err(failure);
        }
        if self.json {
            print_json(&locks)?;
        } else {
            let heads = ["NAME", "HELD AS", "HOLDER", "SINCE", "PURPOSE", "WAITING", "STORE"];
            let shown = heads.len() - usize::from(stores.len() == 1);
            let rows = locks.iter().map(|lock| lock.row().into_iter().take(shown).collect());
            print_table(&heads[..shown], rows)?;
            for lock in &locks {
                lock.holders.iter().try_for_each(|holder| holder.print_trouble(&lock.name))?;
            }
            stores.iter().try_for_each(print_store)?;
        }
        for lock in &locks {
            lock.beside.iter().for_each(|beside| say(beside.warning(&lock.name)));
        }
        match failures.0 {
            Some(failure) => Err(failure),
            None if locks.iter().any(|lock| !lock.beside.is_empty()) => Ok(BESIDE),
            None => Ok(0),
        }
    }

    async fn look(&self, client: &Client, chosen: &Chosen, locks: &mut Vec<Lock>, failures: &mut Failures) {
        let (store, now) = (chosen.name(), locks::now(client, chosen).await);
        let mut unread = None;
        let look = locks::heads(client, (chosen, &self.prefix, usize::MAX), |name, head| match head {
            Ok((queue, holders)) => locks.push(Lock::new(&queue, holders, &store, now)),
            Err(failure) => {
                locks.push(Lock::unread(name, &store, &failure));
                let message = format!("not every lock can be read, {name} for one");
                unread.get_or_insert(Failure::new(failure.code, message));
            }
        });
        failures.note(look.await.and(unread.map_or(Ok(()), Err)));
    }
}
