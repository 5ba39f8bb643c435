//! The channels on which a session hears of releases: one for each name that it waits for, however many wait.

use std::collections::HashMap;
use std::time::Duration;

use crate::name::Name;
use crate::queue::Claim;
use crate::time::Moment;

/// How long a channel is heard after the last one waited for its name. Whoever waits for a lock often waits for it again, and to
/// subscribe each time would cost two requests a hand-over.
const LINGER: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct Channels {
    of: HashMap<Name, Channel>,
    names: HashMap<String, Name>,
}

struct Channel {
    channel: String,
    /// The claim's, for which releases are told there.
    claim: Claim,
    /// When somebody waited for the name last.
    used: Moment,
}

impl Channels {
    /// From now on messages of `channel` concern `name`, where those wait who claim it so. Says which channel concerned it before: a name
    /// is one kind of lock at a time.
    pub(super) fn begin(&mut self, name: &Name, channel: &str, claim: Claim, now: Moment) -> Option<String> {
        self.names.insert(channel.to_owned(), name.clone());
        let before = self.of.insert(name.clone(), Channel { channel: channel.to_owned(), claim, used: now });
        let replaced = before.map(|before| before.channel).filter(|before| before != channel)?;
        self.names.remove(&replaced);
        Some(replaced)
    }

    /// Whether the channel of this name and kind of lock is heard, or soon will be.
    pub(super) fn has(&self, name: &Name, claim: Claim) -> bool {
        self.of.get(name).is_some_and(|channel| channel.claim.capacity() == claim.capacity())
    }

    /// The same, for somebody who waits for it now.
    pub(super) fn is_used(&mut self, name: &Name, claim: Claim, now: Moment) -> bool {
        let channel = self.of.get_mut(name).filter(|channel| channel.claim.capacity() == claim.capacity());
        channel.is_some_and(|channel| {
            channel.used = now;
            true
        })
    }

    /// Whose release a message on `channel` tells.
    pub(super) fn name(&self, channel: &[u8]) -> Option<Name> {
        self.names.get(std::str::from_utf8(channel).ok()?).cloned()
    }

    /// Forgets the channels that nobody used for a while, adds them to `ignored`, and says when the next one will be idle for as long.
    pub(super) fn idle(&mut self, now: Moment, ignored: &mut Vec<String>) -> Moment {
        let mut next = Moment::NEVER;
        let names = &mut self.names;
        self.of.retain(|_, channel| {
            let until = channel.used.after(LINGER);
            if until > now {
                next = next.min(until);
                return true;
            }
            names.remove(&channel.channel);
            ignored.push(std::mem::take(&mut channel.channel));
            false
        });
        next
    }
}
