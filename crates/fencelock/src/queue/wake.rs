//! What a waiter must hear of. Hearing more is legal, less is a lost wake-up.
//!
//! | waiter | must hear |
//! |---|---|
//! | one that asks for the whole capacity (mutex, writer) | the departure of the last one ahead |
//! | a reader behind a writer | the departure of the nearest writer ahead |
//! | the first that waits, for a part of the capacity | any departure ahead |
//! | a later one that waits for a part | the grant or the departure of the one before |
//!
//! Three facts make this enough, and each is a test in `tests/laws/queue.rs`: a contender that becomes admitted is told; one that
//! is not told would be given the same answer if it asked again, so it need not; and in a queue of one kind of lock a
//! departing holder wakes at most one contender more than it lets in. A departing *waiting* writer wakes the readers directly behind it, whether or
//! not that lets them in.

use super::view::hears_behind;
use super::{Claim, granted};

/// The one thing that a waiting contender must hear of; positions are indices into the queue, front first.
///
/// A place that takes a lighter claim counts as a departure, although it stays where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hear {
    /// The departure of the contender at this position.
    Departure(usize),
    /// Any departure ahead: everyone ahead is granted.
    AnyDepartureAhead,
    /// The grant **or** the departure of the contender at this position, the one before.
    GrantOrDeparture(usize),
}

impl Hear {
    /// Whether this is heard when the contender at `departed`, which is ahead, departs.
    const fn of_departure(self, departed: usize) -> bool {
        match self {
            Self::Departure(position) | Self::GrantOrDeparture(position) => position == departed,
            Self::AnyDepartureAhead => true,
        }
    }
}

/// What the contender at `position` must hear of, or `None` when it is granted already.
///
/// Presumes that the queue has one capacity: a conflicting claim never gets into a queue. Costs one step for a claim to
/// the whole capacity, the distance to the writer for a reader behind one, else a step for each holder.
///
/// # Panics
/// When nobody is at `position`.
#[must_use]
pub fn hears(queue: &[Claim], position: usize) -> Option<Hear> {
    hears_behind(queue[..position].iter().copied(), queue[position])
}

/// [`hears`] for callers that know the nearest writer ahead, or how many are granted, or can find it out if asked.
pub(super) fn hears_with(
    mine: Claim,
    position: usize,
    nearest_writer: impl FnOnce() -> Option<usize>,
    granted: impl FnOnce() -> usize,
) -> Option<Hear> {
    let before = position.checked_sub(1)?;
    if mine.is_whole() {
        return Some(Hear::Departure(before));
    }
    if mine.is_reader()
        && let Some(writer) = nearest_writer()
    {
        return Some(Hear::Departure(writer));
    }
    let granted = granted();
    match position {
        _ if position < granted => None,
        _ if position == granted => Some(Hear::AnyDepartureAhead),
        _ => Some(Hear::GrantOrDeparture(before)),
    }
}

/// Who hears when the contender at `departed` leaves `queue`: positions in `queue` as it was before, front first.
///
/// Includes those who hear of it through the grants that it leads to. Everybody who becomes admitted is among them;
/// the others need not be asked. Costs a step for each holder and each one told; on a queue of mutexes
/// that is a constant, however many wait.
///
/// # Panics
/// When nobody is at `departed`.
#[must_use]
pub fn told(queue: &[Claim], departed: usize) -> Vec<usize> {
    told_of(queue, departed, None)
}

/// Who hears when the holder at `position` takes the claim `lighter` and stays; see [`told`].
///
/// # Panics
/// When nobody is at `position`.
#[must_use]
pub fn told_of_lightening(queue: &[Claim], position: usize, lighter: Claim) -> Vec<usize> {
    told_of(queue, position, Some(lighter))
}

fn told_of(queue: &[Claim], departed: usize, stays_as: Option<Claim>) -> Vec<usize> {
    let granted_before = granted(queue);
    let admitted_after = admitted_after(queue, departed, stays_as);
    let let_in = |before: usize| before != departed && before < admitted_after;
    // Readers hear of the writer over each other's heads, up to the next writer. All others are told in a chain.
    let mut over_heads = queue[departed] == Claim::WRITER;
    let mut told = Vec::new();
    for position in granted_before.max(departed + 1)..queue.len() {
        let nearest_writer = || match over_heads {
            true => Some(departed),
            false => queue[..position].iter().rposition(|claim| claim.is_whole()),
        };
        let is_told = match hears_with(queue[position], position, nearest_writer, || granted_before) {
            Some(Hear::GrantOrDeparture(before)) if told.last() == Some(&before) && let_in(before) => true,
            Some(hears) => hears.of_departure(departed),
            None => false,
        };
        if is_told {
            told.push(position);
        }
        over_heads &= !queue[position].is_whole();
        if !is_told && !over_heads {
            break;
        }
    }
    told
}

/// How far the granted prefix reaches after the departure, counted in positions before it.
fn admitted_after(queue: &[Claim], departed: usize, stays_as: Option<Claim>) -> usize {
    let mut taken = 0_u64;
    for (position, claim) in queue.iter().enumerate() {
        let claim = if position == departed { stays_as } else { Some(*claim) };
        taken += claim.map_or(0, |claim| u64::from(claim.weight()));
        if taken > u64::from(queue[0].capacity()) {
            return position;
        }
    }
    queue.len()
}
