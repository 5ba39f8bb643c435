//! Renewals: whether the tickets of a session's places are all there still.
//!
//! They may be many thousands. So a bucket whose directory has not changed since all of them were seen there is looked at
//! once, and its tickets are not.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::AtFlags;

use super::directory::Directory;
use super::fault::fault;
use super::session::Core;
use super::ticket::EncodedName;
use crate::error::Result;
use crate::kit::own_places;
use crate::name::Name;
use crate::store::{Loss, PlaceId, Renewal};

/// How many places are looked at before others go on.
const AT_ONCE: usize = 64;

/// How old the last change of a directory is before its time stands for its content: file systems count time in steps of up
/// to some milliseconds, and two changes in one step look like one.
const SETTLED: Duration = Duration::from_secs(2);

/// What tells one state of a bucket's directory from any other: which one it is, and when it was changed last. Nobody can set
/// that time but by setting the clock.
type Aspect = (u64, u64, i64, i64);

/// What the renewals of one session have seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    renewals: u32,
    /// The buckets that have looked the same since a renewal, the number of which it is.
    same: HashMap<u16, (Aspect, u32)>,
}

/// Looks at every place, and lets others go on in between.
pub(super) async fn renew(core: &Core, places: Vec<PlaceId>) -> Result<Renewal> {
    let confirmed = core.clock.now();
    if core.over().is_none() && !core.is_linked()? {
        core.removed();
    }
    if core.over().is_some() {
        return Err(own_places::over("renew"));
    }
    let mut round = Round::begin(core);
    let mut gone = Vec::new();
    for places in places.chunks(AT_ONCE) {
        for place in places {
            if !round.finds(place)? {
                gone.push((place.clone(), Loss::Removed));
            }
        }
        tokio::task::yield_now().await;
    }
    round.end();
    if !gone.is_empty() {
        core.leave_to_events(&mut gone);
    }
    core.directory.sweep_with_renewal(confirmed);
    Ok(Renewal { gone, ..Renewal::at(confirmed) })
}

/// One renewal.
struct Round<'a> {
    core: &'a Core,
    number: u32,
    before: HashMap<u16, (Aspect, u32)>,
    /// The buckets of this one so far, and since which renewal each looks as it does; `None` for one that has just changed.
    buckets: HashMap<u16, Option<(Aspect, u32)>>,
    /// Of the place before: many have one name.
    slot: Option<(Name, EncodedName)>,
}

impl<'a> Round<'a> {
    fn begin(core: &'a Core) -> Self {
        let mut seen = core.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // It never comes back to a number within what one process lives.
        seen.renewals = seen.renewals.saturating_add(1);
        let before = std::mem::take(&mut seen.same);
        Self { core, number: seen.renewals, before, buckets: HashMap::new(), slot: None }
    }

    fn end(self) {
        let same = self.buckets.into_iter().filter_map(|(bucket, since)| Some((bucket, since?)));
        let mut seen = self.core.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.renewals == self.number && self.number < u32::MAX {
            seen.same = same.collect();
        }
    }

    /// Whether the ticket of a place is there still; those who wait for it are told if it is not.
    fn finds(&mut self, place: &PlaceId) -> Result<bool> {
        if self.slot.as_ref().is_none_or(|(name, _)| *name != place.name) {
            self.slot = Some((place.name.clone(), EncodedName::of(&place.name)));
        }
        let Some((_, slot)) = &self.slot else { return Ok(false) };
        let (encoded, index) = (Arc::clone(&slot.encoded), slot.bucket);
        let since = self.same_since(index);
        let (core, directory) = (self.core, &self.core.directory);
        let bucket = directory.bucket(index);
        let mut state = bucket.lock();
        let line = state.line(&encoded);
        let known = line.and_then(|line| line.find(core.id, place.request.number).and_then(|it| line.get_mut(&it)));
        let Some(known) = known else { return Ok(false) };
        if since.is_some_and(|since| known.looked_at >= since) {
            return Ok(true);
        }
        let ticket = known.ticket;
        let path = bucket.path(&ticket, &encoded);
        let there = directory.exists(&path);
        if there.map_err(|errno| fault("renew", format_args!("{}/{path}", directory.path), errno))? {
            known.looked_at = self.number;
            return Ok(true);
        }
        state.depart(&encoded, &ticket);
        drop(state);
        core.mail.departed(directory, ticket.key, false);
        Ok(false)
    }

    /// Since which renewal a bucket looks as it does, maybe this one; `None` if it cannot be told from what it may become.
    fn same_since(&mut self, index: u16) -> Option<u32> {
        let (core, number, before) = (self.core, self.number, &self.before);
        let since = self.buckets.entry(index).or_insert_with(|| {
            let aspect = aspect(&core.directory, index, core.clock.wall())?;
            let known = before.get(&index).filter(|(known, _)| *known == aspect);
            Some((aspect, known.map_or(number, |(_, since)| *since)))
        });
        since.map(|(_, since)| since)
    }
}

fn aspect(directory: &Directory, index: u16, wall: SystemTime) -> Option<Aspect> {
    let path = Directory::bucket_path(index);
    let stat = rustix::fs::statat(&directory.root.fd, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let (seconds, nanos) = (stat.st_ctime as i64, stat.st_ctime_nsec as i64);
    let changed = Duration::new(u64::try_from(seconds).ok()?, u32::try_from(nanos).ok()?);
    let age = wall.duration_since(UNIX_EPOCH.checked_add(changed)?).ok()?;
    (age >= SETTLED).then_some((stat.st_dev as u64, stat.st_ino as u64, seconds, nanos))
}
