//! The evidence behind [`sync_rule`](crate::sync_rule): the contact that an answered `sync` proves.

use std::collections::VecDeque;
use std::time::Duration;

/// A request or a ping that was answered: when it was sent, and when its answer was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Contact {
    sent: Duration,
    answered: Duration,
}

/// The contacts of one connection that a `sync` may still prove. Never more than [`Contacts::MOST`], however many there were.
#[derive(Debug)]
pub(crate) struct Contacts {
    kept: VecDeque<Contact>,
    /// How long before the `sync` a contact has to be answered.
    gap: Duration,
    /// Contacts answered closer to each other than this are kept as one.
    grain: Duration,
}

impl Contacts {
    /// Contacts fall into grains of a sixteenth of the gap; older contacts share one grain.
    const GRAINS: u32 = 16;
    #[cfg(test)]
    const MOST: usize = Self::GRAINS as usize + 2;

    /// No contacts yet: for a session with this timeout, on a new connection.
    pub(crate) fn new(timeout: Duration) -> Self {
        let gap = timeout / 4;
        Self { kept: VecDeque::new(), gap, grain: gap / Self::GRAINS }
    }

    /// A request that was sent at `sent` has an answer.
    pub(crate) fn answered(&mut self, sent: Duration, now: Duration) {
        // The first contact of a grain is kept: a later one would be proven later; an older sending time only proves less.
        if self.kept.back().is_none_or(|last| now.saturating_sub(last.answered) >= self.grain) {
            self.forget(now);
            self.kept.push_back(Contact { sent, answered: now });
        }
    }

    /// The moment that a `sync` sent at `now` proves if it is answered: the sending time of the newest contact answered early enough.
    pub(crate) fn proven_by_sync(&mut self, now: Duration) -> Option<Duration> {
        self.forget(now);
        self.kept.front().filter(|contact| self.is_old_enough(contact, now)).map(|contact| contact.sent)
    }

    fn is_old_enough(&self, contact: &Contact, now: Duration) -> bool {
        contact.answered.saturating_add(self.gap) <= now
    }

    /// Among moments that are old enough, only the newest is of use, now and later.
    fn forget(&mut self, now: Duration) {
        while self.kept.get(1).is_some_and(|second| self.is_old_enough(second, now)) {
            self.kept.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_sync_proves_the_newest_contact_that_was_answered_a_quarter_before_it() {
        let mut contacts = Contacts::new(ms(4000));
        assert_eq!(contacts.proven_by_sync(ms(10_000)), None);
        contacts.answered(ms(9_990), ms(10_000));
        assert_eq!(contacts.proven_by_sync(ms(10_999)), None);
        assert_eq!(contacts.proven_by_sync(ms(11_000)), Some(ms(9_990)));
        contacts.answered(ms(10_500), ms(11_500));
        assert_eq!(contacts.proven_by_sync(ms(12_499)), Some(ms(9_990)));
        assert_eq!(contacts.proven_by_sync(ms(12_500)), Some(ms(10_500)));
    }

    #[test]
    fn an_answer_that_is_read_late_after_a_pause_proves_nothing_too_early() {
        let mut contacts = Contacts::new(ms(4000));
        // Sent, then the process stood still for a minute with the answer in the socket.
        contacts.answered(ms(1_000), ms(61_000));
        assert_eq!(contacts.proven_by_sync(ms(61_001)), None);
        assert_eq!(contacts.proven_by_sync(ms(62_000)), Some(ms(1_000)));
    }

    proptest! {
        #[test]
        fn the_proven_contact_was_answered_early_enough_and_is_nearly_the_newest(
            steps in proptest::collection::vec((0_u64..400, 0_u64..50, any::<bool>()), 1..400),
        ) {
            let (gap, grain) = (1000, 63);
            let mut contacts = Contacts::new(ms(4 * gap));
            let mut all: Vec<(u64, u64)> = Vec::new();
            let mut now = 0;
            for (pause, trip, is_sync) in steps {
                now += pause;
                if !is_sync {
                    let sent = now;
                    now += trip;
                    contacts.answered(ms(sent), ms(now));
                    all.push((sent, now));
                }
                prop_assert!(contacts.kept.len() <= Contacts::MOST);
                let best = all.iter().filter(|(_, answered)| answered + gap <= now).map(|(sent, _)| *sent).next_back();
                let proven = contacts.proven_by_sync(ms(now));
                if let Some(proven) = proven {
                    prop_assert!(all.iter().any(|(sent, answered)| ms(*sent) == proven && answered + gap <= now));
                }
                let within = |best: u64| proven.is_some_and(|proven| proven + ms(grain + 50) >= ms(best));
                prop_assert!(best.is_none_or(within), "best {best:?}, proven {proven:?} at {now}");
            }
        }
    }
}
