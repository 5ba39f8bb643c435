//! Joins a queue with a single request.

use std::sync::Arc;

use super::places::due;
use super::{Enter, Served};
use crate::error::{Error, ErrorKind, Outcome, Result};
use crate::kit::own_places::over;
use crate::kit::server::{AskedPlace, Core, ServerSession};
use crate::store::{Entered, Entry, Loss};

/// The most sendings of a request that the withdrawal of another request overtook.
const TRIES: usize = 8;
/// How often a request without an effect is repeated at once: each time, a thousand dead contenders are removed, or a holder is leaving.
const REPEATS: usize = 64;

pub(crate) async fn enter<S: Served>(core: &Arc<Core<S>>, entry: Arc<Entry>) -> Result<Entered> {
    core.session.alive("enter")?;
    let (slot, was_sent_before) =
        core.session.places().begin(&entry.name, entry.id, core.session.bucket_of(&entry.name));
    let (mut again, mut overtaken, mut repeats) = (was_sent_before, 0, 0);
    while overtaken < TRIES && repeats < REPEATS {
        let reply = match ask(core, &entry, std::mem::replace(&mut again, true)).await {
            Ok(reply) => reply,
            Err(error) => {
                // A request that certainly changed nothing need not be withdrawn. An error of this try says nothing of an earlier try.
                if !was_sent_before && error.outcome() == Outcome::NotApplied && slot.seq().is_none() {
                    core.session.places().forget(entry.id);
                }
                return Err(error);
            }
        };
        match reply {
            Enter::Granted(grant) => core.session.places().granted(&slot, grant),
            Enter::Waiting { seq, ahead, look_in } => {
                let due = due(core.link.clock.now(), look_in);
                core.session.places().waits(&slot, seq, ahead, due);
            }
            Enter::Busy | Enter::Conflict(_) => {
                core.session.places().forget(entry.id);
                return Ok(if let Enter::Conflict(claim) = reply { Entered::Conflict(claim) } else { Entered::Busy });
            }
            Enter::Again => {
                repeats += 1;
                continue;
            }
            Enter::Stale(epoch) => {
                core.session.places().raise(epoch);
                overtaken += 1;
                continue;
            }
            Enter::Gone => {
                core.session.places().end(Loss::Expired);
                return Err(over("enter"));
            }
        }
        return Ok(Entered::In(Box::new(AskedPlace::new(core, slot))));
    }
    if !was_sent_before {
        core.session.places().forget(entry.id);
    }
    let message = "withdrawals and departures of other requests keep coming in between";
    Err(Error::new(ErrorKind::Busy, "enter", message).retryable())
}

async fn ask<S: Served>(core: &Core<S>, entry: &Entry, again: bool) -> Result<Enter> {
    let connection = core.link.connection().await?;
    // Connecting may have found that the session has ended.
    core.session.alive("enter")?;
    Served::enter(&*core.session, &connection, entry, again).await
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures_core::future::BoxFuture;
    use tokio::sync::mpsc;

    use super::super::{Connection, Places};
    use super::*;
    use crate::kit::reconnect::{Dial, Reconnect};
    use crate::name::Name;
    use crate::queue::Claim;
    use crate::store::{PlaceId, RequestId};
    use crate::time::SystemClock;

    struct Near;

    impl Dial for Near {
        type Connection = ();

        fn dial(&self, _: u64) -> BoxFuture<'_, Result<Arc<()>>> {
            Box::pin(async { Ok(Arc::default()) })
        }

        fn too_slow(&self, within: Duration) -> Error {
            panic!("no connection within {within:?}")
        }

        fn is_alive((): &()) -> bool {
            true
        }
    }

    /// A session whose server gives each request this answer.
    struct Fixed {
        places: Arc<Places>,
        answer: fn() -> Enter,
        asked: AtomicUsize,
    }

    impl Served for Fixed {
        type Dial = Near;

        fn places(&self) -> &Arc<Places> {
            &self.places
        }

        fn bucket_of(&self, _: &Name) -> u16 {
            0
        }

        async fn enter(&self, _: &Connection<Self>, _: &Entry, again: bool) -> Result<Enter> {
            let before = self.asked.fetch_add(1, Ordering::Relaxed);
            assert!(again == (before > 0) && before < 1000, "request {before}");
            Ok((self.answer)())
        }

        async fn leave(&self, _: &Connection<Self>, _: &PlaceId, _: Option<u64>) -> Result<bool> {
            Ok(false)
        }

        async fn lighten(&self, _: &Connection<Self>, _: &PlaceId, _: u64, _: Claim) -> Result<bool> {
            Ok(false)
        }

        async fn withdraw(&self, _: &Connection<Self>, _: &PlaceId) -> Result<Option<u64>> {
            Ok(None)
        }

        async fn renew(&self, _: &Connection<Self>, _: &[(PlaceId, u64)]) -> Result<bool> {
            Ok(true)
        }

        fn tidy_up(&self) {}

        async fn close(&self, _: &Connection<Self>) -> Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_request_that_never_has_an_effect_ends_with_an_error_that_allows_another_try_and_keeps_no_place() {
        for (answer, most) in [((|| Enter::Again) as fn() -> Enter, REPEATS), (|| Enter::Stale(9), TRIES)] {
            let places = Arc::new(Places::new(mpsc::unbounded_channel().0));
            let session = Arc::new(Fixed { places, answer, asked: AtomicUsize::new(0) });
            let link = Reconnect::new(Near, Arc::new(SystemClock), Duration::from_secs(180));
            let core = Arc::new(Core { link, session, waited: tokio::sync::Mutex::default() });
            let (name, id) = (Name::new("job").unwrap(), RequestId { client: 1, number: 1 });
            let entry = Entry { name, claim: Claim::MUTEX, id, wait: true, purpose: None };
            let error = enter(&core, Arc::new(entry)).await.map(drop).unwrap_err();
            assert!(error.kind() == ErrorKind::Busy && error.is_retryable(), "{error}");
            assert_eq!(core.session.asked.load(Ordering::Relaxed), most);
            assert!(!core.session.places.has_places());
        }
    }
}
