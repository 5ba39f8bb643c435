//! Renewals: whether the tickets of a session's places are all there still.

use super::fault::fault;
use super::session::Core;
use super::sweep::STEP;
use super::ticket::EncodedName;
use crate::error::Result;
use crate::kit::own_places;
use crate::store::{Loss, PlaceId, Renewal};

/// Looks at every place, and lets others go on in between.
pub(super) async fn renew(core: &Core, places: Vec<PlaceId>) -> Result<Renewal> {
    let confirmed = core.clock.now();
    if core.over().is_none() && !core.is_linked()? {
        core.removed();
    }
    if core.over().is_some() {
        return Err(own_places::over("renew"));
    }
    let mut gone = Vec::new();
    for places in places.chunks(STEP) {
        for place in places {
            if !finds(core, place)? {
                gone.push((place.clone(), Loss::Removed));
            }
        }
        tokio::task::yield_now().await;
    }
    if !gone.is_empty() {
        core.leave_to_events(&mut gone);
    }
    core.directory.sweep_with_renewal(confirmed);
    Ok(Renewal { gone, ..Renewal::at(confirmed) })
}

/// Whether the ticket of a place is there still; those who wait for it are told if it is not.
fn finds(core: &Core, place: &PlaceId) -> Result<bool> {
    let (directory, slot) = (&core.directory, EncodedName::of(&place.name));
    let bucket = directory.bucket(slot.bucket);
    let mut state = bucket.lock();
    let ticket = state.line(&slot.encoded).and_then(|line| line.find(core.id, place.request.number));
    let Some(ticket) = ticket else { return Ok(false) };
    let path = bucket.path(&ticket, &slot.encoded);
    let there = directory.exists(&path);
    let there = there.map_err(|errno| fault("renew", format_args!("{}/{path}", directory.path), errno))?;
    if !there {
        state.depart(&slot.encoded, &ticket);
    }
    Ok(there)
}
