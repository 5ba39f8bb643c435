//! The check itself: every law, one report.

use std::fmt;

use fencelock::capability::{Capability, Order, Tokens};

use super::section::History;
use super::{busy, cores, register};

/// The law that a violation breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Law {
    /// Two cores of an exclusive lock overlap.
    Exclusion,
    /// A writer's core overlaps a reader's or another writer's.
    Sharing,
    /// Permits of more than the capacity were held at once.
    Permits,
    /// Two holders at once believed in different capacities.
    OneCapacity,
    /// An exclusive grant has no higher token than the one before.
    TokensRise,
    /// A later arrival was served before an earlier one.
    Order,
    /// A `busy` answer, and no contender was in the queue.
    BusyHasAWitness,
    /// The resource accepted an older token after a newer one.
    FencedResource,
}

/// Which laws a store claims to keep; the rest are excused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Laws {
    /// First come, first served.
    pub order: bool,
    /// Grants carry tokens that rise.
    pub tokens: bool,
}

impl Laws {
    /// All laws.
    pub const ALL: Self = Self { order: true, tokens: true };
}

impl From<&Capability> for Laws {
    fn from(capability: &Capability) -> Self {
        Self { order: capability.order == Order::Fifo, tokens: capability.tokens != Tokens::None }
    }
}

/// A violation, with the sections (or writes, for [`Law::FencedResource`]) that show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The broken law.
    pub law: Law,
    /// The lock, an index into [`History::locks`].
    pub lock: u32,
    /// The violator, an index into [`History::sections`] or [`History::writes`].
    pub who: usize,
    /// The other section or write; `None` for a `busy` answer without a witness.
    pub against: Option<usize>,
}

/// The findings of [`check`].
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// How many sections the history has.
    pub sections: usize,
    /// How many sections held the lock.
    pub grants: usize,
    /// How many `busy` answers there are.
    pub busy_answers: usize,
    /// How many writes the resources received, and how many of these they refused.
    pub writes: (usize, usize),
    /// The number of times that conflicting locks were held at once, one granted before a [`Lapse`](super::Lapse) and one after.
    pub excused: usize,
    /// The violations, by law.
    pub violations: Vec<Violation>,
}

impl Report {
    /// First verdict: no two live holders believed in conflicting locks at once. Holds as long as no process is
    /// paused past its deadline and the store's [`Capability::presumes`] comes true.
    #[must_use]
    pub fn live_holders_exclude_each_other(&self) -> bool {
        let exclusion = [Law::Exclusion, Law::Sharing, Law::Permits, Law::OneCapacity];
        !self.violations.iter().any(|violation| exclusion.contains(&violation.law))
    }

    /// Second verdict: no resource accepted an older token after a newer one. Must hold always.
    #[must_use]
    pub fn resource_is_exclusive(&self) -> bool {
        !self.violations.iter().any(|violation| violation.law == Law::FencedResource)
    }

    /// Whether every law holds.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    /// The report in words, with up to ten violations spelled out.
    #[must_use]
    pub fn describe(&self, history: &History) -> String {
        let mut words = self.to_string();
        for violation in self.violations.iter().take(10) {
            words.push_str(&format!("\n{:?} on {:?}: ", violation.law, history.locks[violation.lock as usize]));
            let parties = std::iter::once(violation.who).chain(violation.against);
            for (index, party) in parties.enumerate() {
                words.push_str(if index == 0 { "" } else { "\n    against " });
                words.push_str(&match violation.law {
                    Law::FencedResource => format!("{:?}", history.writes[party]),
                    _ => describe_section(history, party),
                });
            }
        }
        words
    }
}

fn describe_section(history: &History, index: usize) -> String {
    let section = &history.sections[index];
    format!("{} {section:?}, core {:?}", history.clients[section.client as usize], section.core())
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sections, grants, busy_answers, writes: (writes, refused), excused, violations } = self;
        write!(
            f,
            "{sections} sections, {grants} grants, {busy_answers} busy answers, {writes} writes ({refused} refused): {}",
            violations.len()
        )?;
        f.write_str(" violations")?;
        if *excused > 0 { write!(f, ", {excused} overlaps across a lapse of the store") } else { Ok(()) }
    }
}

/// Checks `history` against every law of `laws`. Costs a few sorts: a million sections take about a second.
#[must_use]
pub fn check(history: &History, laws: Laws) -> Report {
    let mut report = Report { sections: history.sections.len(), ..Report::default() };
    cores::check(history, laws, &mut report);
    busy::check(history, &mut report);
    register::check(history, &mut report);
    report.violations.sort_by_key(|violation| (violation.law, violation.lock));
    report
}
