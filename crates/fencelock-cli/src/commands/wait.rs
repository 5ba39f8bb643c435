//! `fencelock wait`: until the lock is free.

use std::time::Duration;

use clap::Args;
use fencelock::inspect::Contention;
use fencelock::{Client, Name};

use super::{StoreArguments, farewell, said_already};
use crate::arguments;
use crate::nested::{Around, Mode};
use crate::output::{Failure, Outcome, code};
use crate::settings::Chosen;

/// The first pause between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// The longest pause between two looks.
const LOOK_LATER: Duration = Duration::from_secs(1);

/// Wait until a lock is free.
///
/// Looks every second at most, and holds nothing when it ends: another client may hold the lock by then. A sticky lock that an idle client
/// keeps, and any lock while the store grants none, is acquired through its queue, and released at once. Exits with 75 when the limit has
/// passed, and stderr names the holder. Without a limit, a wait for a lock that this command runs under exits with 73.
#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// The lock's name.
    #[arg(value_parser = arguments::name)]
    name: Name,
    /// Give up after this long (as in 500ms, 30s, 1h 30m); 0 looks once.
    #[arg(long, value_name = "DURATION", value_parser = arguments::duration_or_zero, allow_hyphen_values = true)]
    timeout: Option<Duration>,
}

impl Wait {
    pub(super) async fn run(&self, store: &StoreArguments) -> Outcome<u8> {
        // A success prints no store, so the notice of the default has to name it.
        let (chosen, client) = store.connect_to_look(false, std::slice::from_ref(&self.name)).await?;
        let Some(client) = client else { return Ok(0) };
        let waited = said_already(self.wait(&client, &chosen).await);
        farewell(&client, waited.is_err()).await;
        waited
    }

    async fn wait(&self, client: &Client, chosen: &Chosen) -> Outcome<u8> {
        if self.timeout.is_none() {
            let (around, locks) = (Around::this_process()?, chosen.locks());
            around.sharing(&locks, &self.name, Mode::Exclusive)?;
            around.refuse_unlike(&locks, client, std::slice::from_ref(&self.name), Mode::Exclusive).await?;
        }
        match self.until_it_is_free(client).await {
            Ok(None) => Ok(0),
            Ok(Some(held)) => Err(Failure::new(code::BUSY, format!("{} in {}: {held}", self.name, chosen.shown()))),
            Err(error) => Err(error.with("store from", &chosen.origin).into()),
        }
    }

    /// The holder when the limit has passed, if there is one.
    async fn until_it_is_free(&self, client: &Client) -> fencelock::Result<Option<Contention>> {
        let limit = self.timeout.map(|limit| tokio::time::Instant::now() + limit);
        let mut pause = LOOK;
        loop {
            let seen = client.contention(&self.name).await?;
            let ends_for_a_waiter = match &seen.holder {
                Some(holder) => holder.purpose.as_deref().is_some_and(|purpose| purpose.contains("(sticky, kept for ")),
                // The store grants nothing, because it may lack a holder that is still at work.
                None if seen.closed.is_some() => true,
                None => return Ok(None),
            };
            if ends_for_a_waiter && pause != LOOK_LATER {
                let rest = limit.map_or(Duration::MAX, |limit| limit - tokio::time::Instant::now());
                let lock = client.mutex(&self.name)?.purpose("fencelock wait");
                match lock.acquire_within(rest).await {
                    Ok(guard) => return guard.release().await.map(|()| None),
                    Err(error) if error.is_contention() => return client.contention(&self.name).await.map(Some),
                    // A user who may only look.
                    Err(_) => pause = LOOK_LATER,
                }
            }
            let again = tokio::time::Instant::now() + pause;
            if limit.is_some_and(|limit| limit <= tokio::time::Instant::now()) {
                return Ok(Some(seen));
            }
            tokio::time::sleep_until(limit.map_or(again, |limit| again.min(limit))).await;
            pause = (pause * 2).min(LOOK_LATER);
        }
    }
}
