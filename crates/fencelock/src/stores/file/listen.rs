//! The contenders that a waiting place listens to, and the watches for them.

use std::sync::Arc;

use super::bucket::BucketState;
use super::directory::Directory;
use super::layout::SESSIONS;
use super::line::{KnownContender, KnownQueue};
use super::linux::Interest;
use super::place::{FilePlace, LINGER, NOTIFIED, POLL, Pauses, REPAIR};
use super::sessions::session_name;
use super::ticket::Ticket;
use super::watch::{PathWatch, watch};
use crate::queue::WakeOn;
use crate::queue::view::wake_condition_behind;

/// A contender ahead whose events this place receives.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) ticket: Ticket,
    pub(super) local: bool,
    /// For a place of another process: the watches on its ticket and session file, which ring at their deletion. `None` without watches.
    watches: Option<(PathWatch, PathWatch)>,
}

/// The outcome of `listen`.
#[derive(Debug)]
pub(super) enum Listened {
    /// The contenders that the rule names are there; the time of the next look.
    There(Pauses),
    /// A contender is gone, so that the rule must be asked again.
    Gone,
    /// A contender's session is dead; the rule must be asked again.
    Dead(u64),
}

impl FilePlace {
    /// Listens to the contenders that the rule names.
    pub(super) fn listen(&mut self, state: &mut BucketState) -> rustix::io::Result<Listened> {
        let Some(line) = state.line(&self.encoded) else { return Ok(Listened::Gone) };
        let (wanted, interest) = wanted(line, &self.ticket);
        let known = self.targets.len();
        self.targets.retain(|target| wanted.contains(&(target.ticket, target.local)));
        self.is_rung &= self.targets.len() == known;
        let core = Arc::clone(&self.core);
        let mut again = NOTIFIED;
        for &(ticket, local) in &wanted {
            if local {
                self.target(ticket, local);
                if let Some(known) = line.get_mut(&ticket) {
                    known.tell(&self.bell);
                }
                continue;
            }
            match self.listen_to(&core.directory, ticket, interest)? {
                Listened::There(pauses) => again = again.min(pauses),
                Listened::Gone => {
                    // A heavy ticket may have been replaced by a lighter one, which only a listing shows.
                    let needs_listing = ticket.can_lighten() || !self.ticket.claim.is_whole();
                    if needs_listing && !self.bucket.relist(&core.directory, state)? {
                        return Ok(Listened::There(LINGER));
                    }
                    state.depart(&self.encoded, &ticket);
                    return Ok(Listened::Gone);
                }
                dead @ Listened::Dead(_) => return Ok(dead),
            }
        }
        Ok(Listened::There(again))
    }

    fn target(&mut self, ticket: Ticket, local: bool) -> &mut Target {
        let at = self.targets.iter().position(|target| target.ticket == ticket).unwrap_or_else(|| {
            // A mutex has a single target.
            self.targets.reserve_exact(1);
            self.targets.push(Target { ticket, local, watches: None });
            self.targets.len() - 1
        });
        &mut self.targets[at]
    }

    /// Listens to a place of another process, and looks whether it is there and its session alive.
    fn listen_to(&mut self, directory: &Directory, ticket: Ticket, interest: Interest) -> rustix::io::Result<Listened> {
        let (path, session) = (self.path(&ticket), ticket.key.session);
        let bell = Arc::clone(&self.bell);
        let watches = &mut self.target(ticket, false).watches;
        let is_new = watches.as_ref().is_none_or(|(ticket, _)| ticket.is_blind());
        if is_new {
            let of_ticket = watch(&format!("{}/{path}", directory.path), interest, &bell);
            let file = format!("{}/{SESSIONS}/{}", directory.path, session_name(session));
            *watches = of_ticket.and_then(|ticket| Some((ticket, watch(&file, Interest::SessionEnd, &bell)?)));
        }
        let is_blind = watches.is_none();
        if !directory.exists(&path)? {
            return Ok(Listened::Gone);
        }
        // After an error the session counts as alive, and the next look asks again.
        if (is_new || self.is_rung || self.is_repair) && !directory.is_alive(session).unwrap_or(true) {
            return Ok(Listened::Dead(session));
        }
        // The kernel may send an event a moment before its effect can be seen, and only once.
        Ok(Listened::There(if is_blind {
            POLL
        } else if self.is_rung {
            LINGER
        } else {
            REPAIR
        }))
    }
}

/// The contenders to listen to, whether they are of this process, and the events of interest.
///
/// Only a waiter that a grant can let in listens to grants: the mark of a writer's grant must not wake the readers behind it.
fn wanted(line: &KnownQueue, mine: &Ticket) -> (Vec<(Ticket, bool)>, Interest) {
    let as_wanted = |known: &KnownContender| (known.ticket, known.local);
    let mut ahead = line.ahead(mine.key);
    let claims = ahead.clone().map(|known| known.ticket.claim);
    let mut at = |at| ahead.nth(at).map(as_wanted).into_iter().collect();
    match wake_condition_behind(claims, mine.claim) {
        Some(WakeOn::Departure(position)) => (at(position), Interest::Departure),
        Some(WakeOn::GrantOrDeparture(position)) => (at(position), Interest::GrantOrDeparture),
        Some(WakeOn::AnyDepartureAhead) | None => (ahead.map(as_wanted).collect(), Interest::Departure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Claim;
    use crate::stores::file::ticket::Key;

    fn ticket(seq: u64, claim: Claim) -> Ticket {
        Ticket { key: Key { seq, session: 1, number: seq }, claim }
    }

    fn line(tickets: &[Ticket]) -> KnownQueue {
        let mut line = KnownQueue::default();
        tickets.iter().for_each(|ticket| line.insert(KnownContender::new(*ticket, true)));
        line
    }

    #[test]
    fn behind_a_half_made_downgrade_a_reader_listens_to_the_heavier_ticket() {
        let (heavy, light, mine) = (ticket(1, Claim::WRITER), ticket(1, Claim::READER), ticket(2, Claim::READER));
        let line = line(&[heavy, light, mine]);
        assert_eq!(wanted(&line, &mine).0, [(heavy, true)]);
    }
}
