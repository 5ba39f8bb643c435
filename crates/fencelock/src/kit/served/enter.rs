//! Joins a queue with a single request.

use std::sync::Arc;

use super::places::due;
use super::{Enter, Served};
use crate::error::{Error, ErrorKind, Outcome, Result};
use crate::kit::own_places::over;
use crate::kit::server::{AskedPlace, Core, ServerSession};
use crate::store::{Entered, Entry, Loss};

/// How often the client sends a request that the withdrawal of another one overtook.
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
            Enter::Busy => {
                core.session.places().forget(entry.id);
                return Ok(Entered::Busy);
            }
            Enter::Conflict(claim) => {
                core.session.places().forget(entry.id);
                return Ok(Entered::Conflict(claim));
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
    let message = "withdrawals and departures of other requests keep coming in between";
    Err(Error::new(ErrorKind::Busy, "enter", message).retryable())
}

async fn ask<S: Served>(core: &Core<S>, entry: &Entry, again: bool) -> Result<Enter> {
    let connection = core.link.connection().await?;
    // Connecting may have found that the session has ended.
    core.session.alive("enter")?;
    Served::enter(&*core.session, &connection, entry, again).await
}
