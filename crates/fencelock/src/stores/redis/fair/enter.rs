//! Joining a queue: one script.

use std::sync::Arc;

use super::place::RedisPlace;
use super::push::{Over, due};
use super::scripts::{self, Enter};
use super::session::Core;
use crate::error::{Error, ErrorKind, Outcome, Result};
use crate::kit::own_places::over;
use crate::store::{Entered, Entry, Loss};

/// How often a request is sent that was overtaken by the withdrawal of another one.
const TRIES: usize = 8;

pub(super) async fn enter(core: &Arc<Core>, entry: Arc<Entry>) -> Result<Entered> {
    core.alive("enter")?;
    let slot = core.member.hub.begin(&entry.name, entry.id, core.member.layout.bucket_of(&entry.name));
    let mut overtaken = 0;
    while overtaken < TRIES {
        let reply = match ask(core, &entry).await {
            Ok(reply) => reply,
            Err(error) => {
                // A request that certainly did nothing need not be withdrawn.
                if error.outcome() == Outcome::NotApplied && slot.seq().is_none() {
                    core.member.hub.forget(entry.id);
                }
                return Err(error);
            }
        };
        match reply {
            Enter::Granted(grant) => core.member.hub.granted(&slot, grant),
            Enter::Waiting { seq, ahead, look_in } => {
                let due = due(core.link.clock.now(), look_in);
                core.member.hub.waits(&slot, seq, ahead, due);
            }
            Enter::Busy => {
                core.member.hub.forget(entry.id);
                return Ok(Entered::Busy);
            }
            Enter::Conflict(claim) => {
                core.member.hub.forget(entry.id);
                return Ok(Entered::Conflict(claim));
            }
            // Each time a thousand of the dead are gone, so this ends.
            Enter::Again => continue,
            Enter::Stale(epoch) => {
                core.member.raise(epoch);
                overtaken += 1;
                continue;
            }
            Enter::Gone => {
                core.member.hub.end(Over::There, Loss::Expired);
                return Err(over("enter"));
            }
        }
        return Ok(Entered::In(Box::new(RedisPlace::new(core, slot))));
    }
    let message = "withdrawals of other requests keep coming in between";
    Err(Error::new(ErrorKind::Unreachable, "enter", message).retryable())
}

async fn ask(core: &Core, entry: &Entry) -> Result<Enter> {
    let connection = core.link.connection().await?;
    // Connecting may have told that it is over.
    core.alive("enter")?;
    let call = scripts::enter(&core.member.layout, core.member.session, core.member.epoch(), entry);
    connection.run("enter", &call).await
}
