//! Whom a waiting place listens to, and how.

use std::sync::Arc;

use super::bucket::BucketState;
use super::directory::Directory;
use super::line::{KnownContender, KnownQueue};
use super::lives::Reliance;
use super::place::FilePlace;
use super::platform::Interest;
use super::ticket::Ticket;
use super::watch::{Subscription, Watching, watch};
use crate::queue::Hear;
use crate::queue::view::hears_behind;

/// Somebody ahead whom this place listens to.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) ticket: Ticket,
    pub(super) local: bool,
    pub(super) departure: Option<Subscription>,
    session: Option<Subscription>,
}

/// What came of listening.
#[derive(Debug)]
pub(super) enum Heard {
    /// Those whom the rule names are there.
    There(Again),
    /// One of them is gone, so that the rule must be asked again.
    Gone,
    /// The session of one of them is dead; the rule must be asked again.
    Dead(u64),
}

/// When to look again at the latest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Again {
    Linger,
    Poll,
    Repair,
    /// Somebody of this process tells it in memory.
    Told,
}

impl FilePlace {
    /// Listens to those whom the rule names.
    pub(super) fn listen(&mut self, state: &mut BucketState) -> rustix::io::Result<Heard> {
        let Some(line) = state.line(&self.encoded) else { return Ok(Heard::Gone) };
        let (wanted, interest) = wanted(line, &self.ticket);
        self.unlisten_but(line, &wanted);
        let core = Arc::clone(&self.core);
        let mut again = Again::Told;
        for &(ticket, local) in &wanted {
            if local {
                self.target(ticket, local);
                if let Some(known) = line.get_mut(&ticket) {
                    known.tell(&self.bell);
                }
                continue;
            }
            match self.listen_to(&core.directory, ticket, interest)? {
                Heard::There(when) => again = again.min(when),
                Heard::Gone => {
                    // A heavy ticket may have been replaced by a lighter one, which only a listing shows.
                    if ticket.can_lighten() || !self.ticket.claim.is_whole() {
                        state.refresh(&core.directory, &self.bucket, &self.encoded)?;
                    }
                    state.depart(&self.encoded, &ticket);
                    return Ok(Heard::Gone);
                }
                dead @ Heard::Dead(_) => return Ok(dead),
            }
        }
        Ok(Heard::There(again))
    }

    fn target(&mut self, ticket: Ticket, local: bool) -> &mut Target {
        let at = self.targets.iter().position(|target| target.ticket == ticket).unwrap_or_else(|| {
            // A mutex has one.
            self.targets.reserve_exact(1);
            self.targets.push(Target { ticket, local, departure: None, session: None });
            self.targets.len() - 1
        });
        &mut self.targets[at]
    }

    /// Listens to a place of another process.
    fn listen_to(&mut self, directory: &Directory, ticket: Ticket, interest: Interest) -> rustix::io::Result<Heard> {
        let path = self.path(&ticket);
        // The first time it is most likely there, and a watch tells; later it is most likely gone.
        let mut certain = self.looks > 1;
        let links = if certain { directory.links(&path)? } else { 1 };
        if links == 0 {
            return Ok(Heard::Gone);
        }
        // Of a ticket with a note the kernel tells once, and that a moment before its name is gone.
        let mut again = if self.is_rung && links > 1 { Again::Linger } else { Again::Repair };
        let is_unwatched = self.target(ticket, false).departure.as_ref().is_none_or(Subscription::is_blind);
        if is_unwatched {
            match watch(&format!("{}/{path}", directory.path), interest, &self.bell) {
                Watching::On(subscription) => {
                    self.target(ticket, false).departure = Some(subscription);
                    certain = true;
                }
                // The path may only have been moved: what counts is what the open directory says.
                Watching::Gone => certain = false,
                Watching::Blind => again = Again::Poll,
            }
        }
        if !certain && !directory.exists(&path)? {
            return Ok(Heard::Gone);
        }
        let when = self.rely_on_session(directory, ticket)?;
        Ok(when.map_or(Heard::Dead(ticket.key.session), |when| Heard::There(again.min(when))))
    }

    /// Makes sure that the session of `ticket` lives, and that its end will be noticed; `None` when it is dead.
    fn rely_on_session(&mut self, directory: &Directory, ticket: Ticket) -> rustix::io::Result<Option<Again>> {
        let session = ticket.key.session;
        if self.is_repair && !directory.is_alive(session)? {
            return Ok(None);
        }
        let (subscription, again) = match directory.lives.rely_on(directory, session, &self.bell) {
            Reliance::Told(subscription) => (Some(subscription), Again::Repair),
            Reliance::Doubtful(subscription) => (subscription, Again::Linger),
            Reliance::Dead => return Ok(None),
        };
        self.target(ticket, false).session = subscription;
        Ok(Some(again))
    }

    /// Stops listening to everybody but those `wanted`.
    pub(super) fn unlisten_but(&mut self, line: &mut KnownQueue, wanted: &[(Ticket, bool)]) {
        let bell = &self.bell;
        self.targets.retain(|target| {
            let keep = wanted.contains(&(target.ticket, target.local));
            if !keep && let Some(known) = line.get_mut(&target.ticket) {
                known.forget(bell);
            }
            keep
        });
    }
}

/// Whom to listen to, whether they are of this process, and for what.
///
/// For grants only where they matter: the mark of a writer's grant must not wake the readers behind it.
fn wanted(line: &KnownQueue, mine: &Ticket) -> (Vec<(Ticket, bool)>, Interest) {
    let as_wanted = |known: &KnownContender| (known.ticket, known.local);
    let mut ahead = line.ahead(mine.key);
    let claims = ahead.clone().map(|known| known.ticket.claim);
    let mut at = |at| ahead.nth(at).map(as_wanted).into_iter().collect();
    match hears_behind(claims, mine.claim) {
        Some(Hear::Departure(position)) => (at(position), Interest::Departure),
        Some(Hear::GrantOrDeparture(position)) => (at(position), Interest::GrantOrDeparture),
        Some(Hear::AnyDepartureAhead) | None => (ahead.map(as_wanted).collect(), Interest::Departure),
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
