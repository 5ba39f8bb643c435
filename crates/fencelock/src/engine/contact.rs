//! The last answer of the store, and how long the client has waited for one.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::time::Moment;

/// Whether the store answers a client, on any session, connection and request.
#[derive(Debug)]
pub(super) struct Contact {
    /// When the last answer arrived.
    answered: AtomicU64,
    /// The time of sending of the first request since then that failed without an answer; [`Moment::NEVER`] if none has.
    failed: AtomicU64,
}

impl Default for Contact {
    fn default() -> Self {
        Self { answered: AtomicU64::new(Moment::ORIGIN.as_nanos()), failed: AtomicU64::new(Moment::NEVER.as_nanos()) }
    }
}

impl Contact {
    pub(super) fn answered(&self, now: Moment) {
        self.answered.fetch_max(now.as_nanos(), Ordering::AcqRel);
        self.failed.store(Moment::NEVER.as_nanos(), Ordering::Release);
    }

    /// A request that was sent at `sent` has failed without an answer.
    pub(super) fn failed(&self, sent: Moment) {
        self.failed.fetch_min(sent.as_nanos(), Ordering::AcqRel);
    }

    /// When the last answer arrived.
    pub(super) fn last_answer(&self) -> Moment {
        Moment::from_nanos(self.answered.load(Ordering::Acquire))
    }

    /// The time since which the store has sent no answer; `NEVER` if every request has one. The caller's request, sent at `own`, has none.
    pub(super) fn silent_since(&self, own: Moment) -> Moment {
        Moment::from_nanos(self.failed.load(Ordering::Acquire)).min(own).max(self.last_answer())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_silent_since_the_first_request_without_an_answer_and_since_its_last_answer() {
        let (at, contact) = (Moment::from_nanos, Contact::default());
        assert_eq!(contact.silent_since(Moment::NEVER), Moment::NEVER);
        contact.failed(at(5));
        contact.failed(at(7));
        assert_eq!((contact.silent_since(Moment::NEVER), contact.silent_since(at(3))), (at(5), at(3)));
        contact.answered(at(8));
        assert_eq!((contact.silent_since(Moment::NEVER), contact.silent_since(at(7))), (Moment::NEVER, at(8)));
    }
}
