//! What a waiter must hear of. Hearing more is legal, less is a lost wake-up.

use super::Claim;

/// The one thing that a waiting contender must hear of; positions are indices into the queue, front first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hear {
    /// The departure of the contender at this position.
    Departure(usize),
    /// Any departure ahead: everyone ahead is granted.
    AnyDepartureAhead,
    /// The grant **or** the departure of the contender at this position, the one before.
    GrantOrDeparture(usize),
}

/// What the contender at `position` must hear of, or `None` when it is granted already.
#[must_use]
pub fn hears(queue: &[Claim], position: usize) -> Option<Hear> {
    let _ = (queue, position);
    todo!("written next")
}
