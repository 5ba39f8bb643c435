//! The outcome of an experiment, in counts.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;

use super::contestants::Lock;
use super::experiment::Experiment;

/// The outcome of a round; nothing where no second client was granted the lock.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Round {
    /// From what happened to the second grant.
    pub(super) waited: Option<Duration>,
    /// How long both believed, if both did.
    pub(super) both: Option<Duration>,
    /// Whether the older one's write was accepted after the newer one's.
    pub(super) late_write: Option<bool>,
    /// Whether the second token was higher, where there are any.
    pub(super) risen: Option<bool>,
}

/// The outcome of an experiment.
#[derive(Debug, Clone)]
pub struct Findings {
    experiment: Experiment,
    lock: Lock,
    rounds: Vec<Round>,
}

impl Findings {
    pub(super) fn new(experiment: Experiment, lock: Lock) -> Self {
        Self { experiment, lock, rounds: Vec::new() }
    }

    pub(super) fn add(&mut self, round: Round) {
        self.rounds.push(round);
    }

    /// In how many rounds two believed in the lock at once.
    #[must_use]
    pub fn overlaps(&self) -> usize {
        self.rounds.iter().filter(|round| round.both.is_some()).count()
    }

    /// How many grants there were besides the first one of each round.
    #[must_use]
    pub fn second_grants(&self) -> usize {
        self.rounds.iter().filter(|round| round.waited.is_some()).count()
    }

    /// How many writes of the older holder were accepted after one of the newer.
    #[must_use]
    pub fn late_writes(&self) -> usize {
        self.rounds.iter().filter(|round| round.late_write == Some(true)).count()
    }

    /// Whether every second token was higher than the first.
    #[must_use]
    pub fn tokens_rise(&self) -> bool {
        self.rounds.iter().all(|round| round.risen != Some(false))
    }
}

impl fmt::Display for Findings {
    /// A row of a table in Markdown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.experiment.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
        let n = self.second_grants();
        let waited = spread(self.rounds.iter().filter_map(|round| round.waited));
        let both = spread(self.rounds.iter().filter_map(|round| round.both));
        let lock = self.lock.title(self.experiment.is_of_quorum());
        write!(f, "| `{name}` | {lock} | {} | {n} | {waited} | ", self.rounds.len())?;
        write!(f, "{} | {both} | {} of {n} |", self.overlaps(), self.late_writes())?;
        if self.tokens_rise() { Ok(()) } else { f.write_str(" A TOKEN FELL") }
    }
}

/// Median and most, in milliseconds.
fn spread(durations: impl Iterator<Item = Duration>) -> String {
    let mut durations: Vec<Duration> = durations.collect();
    durations.sort();
    match (durations.get(durations.len() / 2), durations.last()) {
        (Some(median), Some(most)) => format!("{} / {} ms", median.as_millis(), most.as_millis()),
        _ => "-".to_owned(),
    }
}

/// The columns of [`Findings`].
pub const HEAD: &str = "| experiment | lock | rounds | granted to a second one | after (median / most) | both believed | for (median / most) | late writes accepted |\n|---|---|---|---|---|---|---|---|";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_counts_rounds_overlaps_and_late_writes() {
        let mut findings = Findings::new(Experiment::ClockAhead, Lock::Fair);
        let ms = Duration::from_millis;
        findings.add(Round::default());
        for (both, accepted) in [(Some(ms(5)), false), (None, true), (Some(ms(7)), false)] {
            findings.add(Round { waited: Some(ms(3)), both, late_write: Some(accepted), risen: Some(true) });
        }
        let row = findings.to_string();
        assert_eq!(row, "| `clock-ahead` | `fair` | 4 | 3 | 3 / 3 ms | 2 | 7 / 7 ms | 1 of 3 |");
        findings.add(Round { risen: Some(false), ..Round::default() });
        assert!(findings.to_string().ends_with("FELL"));
    }
}
