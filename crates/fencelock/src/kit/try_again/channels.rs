//! The channels on which a session receives releases: a channel for each name with waiters of the session.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::name::Name;
use crate::queue::Claim;
use crate::time::Moment;

/// How long a subscription outlives the last waiter of its name. A client that waits for a lock often waits for it again, and to subscribe
/// each time would cost two requests a hand-over. The session repeats a refused subscription after the same time.
const LINGER: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct Channels {
    of: HashMap<Name, Channel>,
    /// Several names may have one channel: `job` and `{job}` are two locks whose keys share the hash tag.
    names: HashMap<String, HashSet<Name>>,
}

struct Channel {
    channel: String,
    /// The claim whose releases this channel publishes.
    claim: Claim,
    /// When a caller last waited for the name. For a channel without a subscription, the time of the request.
    used: Moment,
    reply: Reply,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reply {
    Asked,
    Accepted,
    Refused,
}

impl Channels {
    /// From now on messages of `channel` concern `name`. Returns the name's former channel if no other name needs that.
    pub(super) fn begin(&mut self, name: &Name, channel: &str, claim: Claim, now: Moment) -> Option<String> {
        let is_known = self.of.get(name).is_some_and(|known| known.channel == channel);
        let replaced = if is_known { None } else { self.end(name) };
        let reply = Reply::Asked;
        self.of.insert(name.clone(), Channel { channel: channel.to_owned(), claim, used: now, reply });
        self.names.entry(channel.to_owned()).or_default().insert(name.clone());
        replaced
    }

    /// Records whether the server accepted the subscription for this name.
    pub(super) fn answered(&mut self, name: &Name, is_accepted: bool, now: Moment) {
        if let Some(channel) = self.of.get_mut(name) {
            channel.reply = if is_accepted { Reply::Accepted } else { Reply::Refused };
            channel.used = now;
        }
    }

    /// Whether the session is subscribed to the channel of this name and kind of lock.
    pub(super) fn has(&self, name: &Name, claim: Claim) -> bool {
        self.of.get(name).is_some_and(|channel| channel.is_for(claim) && channel.reply == Reply::Accepted)
    }

    /// Whether a subscription is active, pending or not yet due. Counts as a use by a waiter, now.
    pub(super) fn is_used(&mut self, name: &Name, claim: Claim, now: Moment) -> bool {
        let channel = self.of.get_mut(name).filter(|channel| channel.is_for(claim));
        channel.is_some_and(|channel| {
            if channel.reply == Reply::Refused {
                return channel.used.after(LINGER) > now;
            }
            channel.used = now;
            true
        })
    }

    /// The names that a message on `channel` may concern.
    pub(super) fn names(&self, channel: &[u8]) -> impl Iterator<Item = &Name> {
        std::str::from_utf8(channel).ok().and_then(|channel| self.names.get(channel)).into_iter().flatten()
    }

    /// Forgets idle channels, adds the unneeded channels to `ignored`, and returns when the next channel becomes idle.
    pub(super) fn idle(&mut self, now: Moment, ignored: &mut Vec<String>) -> Moment {
        let mut next = Moment::NEVER;
        let mut idle = Vec::new();
        for (name, channel) in &self.of {
            let until = channel.used.after(LINGER);
            if until > now {
                next = next.min(until);
            } else {
                idle.push(name.clone());
            }
        }
        ignored.extend(idle.iter().filter_map(|name| self.end(name)));
        next
    }

    /// Ends the messages of this name. Returns its channel if no other name needs that.
    fn end(&mut self, name: &Name) -> Option<String> {
        let channel = self.of.remove(name)?.channel;
        let others = self.names.get_mut(&channel)?;
        others.remove(name);
        others.is_empty().then(|| {
            self.names.remove(&channel);
            channel
        })
    }
}

impl Channel {
    fn is_for(&self, claim: Claim) -> bool {
        self.claim.capacity() == claim.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::from_nanos(1);

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn concerned(channels: &Channels, channel: &str) -> Vec<String> {
        let mut names: Vec<_> = channels.names(channel.as_bytes()).map(ToString::to_string).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn a_channel_of_two_names_concerns_both_and_is_subscribed_until_neither_needs_it() {
        let mut channels = Channels::default();
        assert_eq!(channels.begin(&name("job"), "told:{job}", Claim::MUTEX, NOW), None);
        assert_eq!(channels.begin(&name("{job}"), "told:{job}", Claim::MUTEX, NOW), None);
        assert_eq!(concerned(&channels, "told:{job}"), ["job", "{job}"]);
        // As another kind of lock, a name has another channel. The other name keeps the first channel.
        assert_eq!(channels.begin(&name("job"), "rw:{job}", Claim::WRITER, NOW), None);
        assert_eq!(
            (concerned(&channels, "told:{job}"), concerned(&channels, "rw:{job}")),
            (vec!["{job}".into()], vec!["job".into()])
        );
        assert_eq!(channels.begin(&name("{job}"), "rw:{job}", Claim::WRITER, NOW), Some("told:{job}".into()));
        let mut ignored = Vec::new();
        assert_eq!(channels.idle(NOW, &mut ignored), NOW.after(LINGER));
        assert_eq!(channels.idle(NOW.after(LINGER), &mut ignored), Moment::NEVER);
        assert_eq!(ignored, ["rw:{job}"]);
        assert!(concerned(&channels, "rw:{job}").is_empty());
    }

    #[test]
    fn a_channel_that_is_refused_is_not_subscribed_and_is_asked_for_again_after_a_while() {
        let (mut channels, job) = (Channels::default(), name("job"));
        channels.begin(&job, "told", Claim::MUTEX, NOW);
        assert!(!channels.has(&job, Claim::MUTEX) && channels.is_used(&job, Claim::MUTEX, NOW));
        channels.answered(&job, false, NOW);
        assert!(!channels.has(&job, Claim::MUTEX) && channels.is_used(&job, Claim::MUTEX, NOW));
        assert!(!channels.is_used(&job, Claim::MUTEX, NOW.after(LINGER)));
        channels.begin(&job, "told", Claim::MUTEX, NOW);
        channels.answered(&job, true, NOW);
        assert!(channels.has(&job, Claim::MUTEX) && channels.is_used(&job, Claim::MUTEX, NOW.after(LINGER)));
        assert!(!channels.has(&job, Claim::WRITER));
    }
}
