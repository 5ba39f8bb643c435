//! Several locks of one command, as people read them.

use fencelock::recipes::MultiGuard;
use fencelock::{AnyGuard, Name};

/// The most locks that one command takes: their names and tokens are in its environment, which has limits.
pub(super) const MOST: usize = 100;

/// How many names a line lists.
const LISTED: usize = 3;

/// The names for people: `the lock a`, `the locks a, b, c and 7 more`.
pub(super) fn locks(names: &[Name]) -> String {
    let listed: Vec<_> = names.iter().take(LISTED).map(Name::as_str).collect();
    let word = if names.len() == 1 { "lock" } else { "locks" };
    match names.len().saturating_sub(LISTED) {
        0 => format!("the {word} {}", listed.join(", ")),
        more => format!("the {word} {} and {more} more", listed.join(", ")),
    }
}

/// What is held by `guard`; of several locks, the one that is lost, if one is.
pub(super) fn locks_of(guard: &MultiGuard) -> String {
    match guard.lost_guard() {
        Some(lost) => format!("the lock {}", lost.name()),
        None => locks(&guard.guards().iter().map(|guard| guard.name().clone()).collect::<Vec<_>>()),
    }
}

/// Why one of the locks cannot be renewed any more.
pub(super) fn refusal(guard: &MultiGuard) -> Option<String> {
    guard.guards().iter().find_map(AnyGuard::refusal)
}

/// One line for each lock: `told` of it, if that is known of all.
pub(super) fn lines(guard: &MultiGuard, told: impl Fn(&AnyGuard) -> Option<String>) -> Option<String> {
    let told: Option<Vec<_>> = guard.guards().iter().map(told).collect();
    Some(told?.join("\n"))
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
