//! The event that wakes a waiter. A store may wake waiters more often. A missing notice is a lost wake-up.
//!
//! | waiter | wake condition |
//! |---|---|
//! | a claim to the whole capacity (mutex, writer) | the departure of the last contender ahead |
//! | a reader behind a writer | the departure of the nearest writer ahead |
//! | the first waiter, for a part of the capacity | any departure ahead |
//! | a later waiter for a part | the grant or the departure of the contender before |
//!
//! Three facts make this enough, and each is a test in `tests/laws/queue.rs`: a contender that becomes admitted is woken; a contender
//! that is not woken would get the same answer again, so it need not ask; and in a queue of one kind of lock a
//! departing holder wakes at most one contender more than it lets in. A departing *waiting* writer wakes the readers directly behind it, whether or
//! not that lets them in.

use super::view::wake_condition_behind;
use super::{Claim, granted};

/// The event that must wake a waiting contender; positions are indices into the queue, front first.
///
/// A place that takes a lighter claim counts as a departure, although the place stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeOn {
    /// The departure of the contender at this position.
    Departure(usize),
    /// Any departure ahead: all contenders ahead are granted.
    AnyDepartureAhead,
    /// The grant **or** the departure of the contender at this position, the one before.
    GrantOrDeparture(usize),
}

impl WakeOn {
    /// Whether the departure of the contender at `departed`, which is ahead, meets the condition.
    const fn is_met_by(self, departed: usize) -> bool {
        match self {
            Self::Departure(position) | Self::GrantOrDeparture(position) => position == departed,
            Self::AnyDepartureAhead => true,
        }
    }
}

/// The event that must wake the contender at `position`, or `None` if the contender is granted already.
///
/// All claims of the queue must have one capacity: a conflicting claim never gets into a queue. Costs one step for a claim to
/// the whole capacity, the distance to the writer for a reader behind one, else a step for each holder.
///
/// # Panics
/// If the queue has no contender at `position`.
#[must_use]
pub fn wake_condition(queue: &[Claim], position: usize) -> Option<WakeOn> {
    wake_condition_behind(queue[..position].iter().copied(), queue[position])
}

/// [`wake_condition`] for callers that find the nearest writer ahead, and the number of granted contenders, themselves.
pub(super) fn wake_condition_with(
    mine: Claim,
    position: usize,
    nearest_writer: impl FnOnce() -> Option<usize>,
    granted: impl FnOnce() -> usize,
) -> Option<WakeOn> {
    let before = position.checked_sub(1)?;
    if mine.is_whole() {
        return Some(WakeOn::Departure(before));
    }
    if mine.is_reader()
        && let Some(writer) = nearest_writer()
    {
        return Some(WakeOn::Departure(writer));
    }
    let granted = granted();
    match position {
        _ if position < granted => None,
        _ if position == granted => Some(WakeOn::AnyDepartureAhead),
        _ => Some(WakeOn::GrantOrDeparture(before)),
    }
}

/// The contenders that wake when the contender at `departed` leaves `queue`: positions in `queue` before the departure, front first.
///
/// Includes waiters that the resulting grants wake, and so every contender that becomes admitted. No other contender
/// has to look. Costs a step for each holder and each woken waiter; on a queue of mutexes that is a constant,
/// however many wait.
///
/// # Panics
/// If the queue has no contender at `departed`.
#[must_use]
pub fn woken_by_departure(queue: &[Claim], departed: usize) -> Vec<usize> {
    woken(queue, departed, None)
}

/// The contenders that wake when the holder at `position` takes the claim `lighter` and stays; see [`woken_by_departure`].
///
/// # Panics
/// If the queue has no contender at `position`.
#[must_use]
pub fn woken_by_lightening(queue: &[Claim], position: usize, lighter: Claim) -> Vec<usize> {
    woken(queue, position, Some(lighter))
}

fn woken(queue: &[Claim], departed: usize, stays_as: Option<Claim>) -> Vec<usize> {
    let granted_before = granted(queue);
    let admitted_after = admitted_after(queue, departed, stays_as);
    let let_in = |before: usize| before != departed && before < admitted_after;
    // A departing writer wakes all readers behind it, up to the next writer. Each other waiter wakes by the waiter before it.
    let mut over_heads = queue[departed] == Claim::WRITER;
    let mut woken = Vec::new();
    for position in granted_before.max(departed + 1)..queue.len() {
        let nearest_writer = || match over_heads {
            true => Some(departed),
            false => queue[..position].iter().rposition(|claim| claim.is_whole()),
        };
        let is_woken = match wake_condition_with(queue[position], position, nearest_writer, || granted_before) {
            Some(WakeOn::GrantOrDeparture(before)) if woken.last() == Some(&before) && let_in(before) => true,
            Some(condition) => condition.is_met_by(departed),
            None => false,
        };
        if is_woken {
            woken.push(position);
        }
        over_heads &= !queue[position].is_whole();
        if !is_woken && !over_heads {
            break;
        }
    }
    woken
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
