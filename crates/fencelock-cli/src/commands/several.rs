//! Several locks of one command, as people read them.

use fencelock::recipes::MultiGuard;
use fencelock::{AnyGuard, Client, Name, Timing};

use crate::settings::Chosen;

/// The most locks that one command takes: their names and tokens are in its environment, which has limits.
pub(super) const MOST: usize = 100;

const LISTED: usize = 3;

/// A store that the locks of a command are in, and a client of it. There are two while names move from one store to another.
pub(super) struct Home {
    pub(super) chosen: Chosen,
    pub(super) client: Client,
}

pub(super) fn shown<'a>(stores: impl IntoIterator<Item = &'a Chosen>) -> String {
    stores.into_iter().map(Chosen::shown).collect::<Vec<_>>().join(" and ")
}

/// The times of the store that is renewed most often.
pub(super) fn timing_of(homes: &[Home]) -> Timing {
    let other = homes.iter().skip(1).map(|home| home.client.timing());
    other.fold(
        homes[0].client.timing(),
        |least, timing| {
            if timing.renew_interval < least.renew_interval { timing } else { least }
        },
    )
}

/// The guards of `guard` that messages name: each name has one, in the last of its `homes`.
pub(super) fn named_guards<'a>(guard: &'a MultiGuard, homes: &[Home]) -> impl Iterator<Item = &'a AnyGuard> + Clone {
    guard.guards().iter().skip(homes.len() - 1).step_by(homes.len())
}

/// The names for people: `the lock a`, `the locks a, b, c and 7 more`.
pub(super) fn locks(names: &[Name]) -> String {
    let listed: Vec<_> = names.iter().take(LISTED).map(Name::as_str).collect();
    let word = if names.len() == 1 { "lock" } else { "locks" };
    match names.len().saturating_sub(LISTED) {
        0 => format!("the {word} {}", listed.join(", ")),
        more => format!("the {word} {} and {more} more", listed.join(", ")),
    }
}

/// The locks held by `guard`; of several locks, the one that is lost, if one is.
pub(super) fn locks_of(guard: &MultiGuard) -> String {
    match guard.lost_guard() {
        Some(lost) => format!("the lock {}", lost.name()),
        None => locks(&names(guard)),
    }
}

/// Whether the message about `guard` is about a single lock: the lost one, or the only one.
pub(super) fn is_one(guard: &MultiGuard) -> bool {
    guard.lost_guard().is_some() || names(guard).len() == 1
}

fn names(guard: &MultiGuard) -> Vec<Name> {
    let mut names: Vec<_> = guard.guards().iter().map(|guard| guard.name().clone()).collect();
    names.dedup();
    names
}

pub(super) fn refusal(guard: &MultiGuard) -> Option<String> {
    guard.guards().iter().find_map(AnyGuard::refusal)
}

/// A line for each lock, by `line_of`; `None` if a lock has none.
pub(super) fn lines<'a>(
    guards: impl Iterator<Item = &'a AnyGuard>,
    line_of: impl Fn(&AnyGuard) -> Option<String>,
) -> Option<String> {
    let lines: Option<Vec<_>> = guards.map(line_of).collect();
    Some(lines?.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_names_are_counted() {
        let names: Vec<_> = ["a", "b", "c", "d", "e"].iter().map(|name| Name::new(name).unwrap()).collect();
        assert_eq!(locks(&names[..1]), "the lock a");
        assert_eq!(locks(&names[..3]), "the locks a, b, c");
        assert_eq!(locks(&names), "the locks a, b, c and 2 more");
    }
}
