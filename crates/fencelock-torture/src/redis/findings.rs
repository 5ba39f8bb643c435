//! The outcome of an experiment, in counts.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

use clap::ValueEnum;

use super::contestants::Held;
use super::experiment::Experiment;
use crate::writers::on_threads;

/// The outcome of a round; `None` without a second grant.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Round {
    /// The time from the event to the second grant.
    pub(super) waited: Option<Duration>,
    /// How long both clients believed in their locks, if both did.
    pub(super) both: Option<Duration>,
    /// Whether the second token was higher, if the lock has tokens. A resource without tokens accepts the older one's write after the newer one's.
    pub(super) risen: Option<bool>,
}

impl Round {
    /// The outcome once a second client has the lock, which was granted `waited` after the event. Watches both for `most` at the longest, and runs
    /// `meanwhile` with the time since the second grant.
    pub(super) fn of(
        (first, second): (&Held, &Held),
        (waited, most): (Duration, Duration),
        mut meanwhile: impl FnMut(Duration) -> io::Result<()>,
    ) -> io::Result<Self> {
        let granted = Instant::now();
        let both = first.believes();
        let risen = second.token().zip(first.token()).map(|(second, first)| second > first);
        while first.believes() && granted.elapsed() < most {
            meanwhile(granted.elapsed())?;
            thread::sleep(Duration::from_millis(1));
        }
        let both = both.then(|| granted.elapsed());
        Ok(Self { waited: Some(waited), both, risen })
    }
}

/// The outcome of an experiment.
#[derive(Debug, Clone)]
pub struct Findings {
    experiment: Experiment,
    lock: String,
    rounds: Vec<Round>,
}

impl Findings {
    /// Counts this number of rounds with the lock of this title, several at a time, and prints each as a row of its own.
    pub(super) fn count(
        (experiment, lock): (Experiment, String),
        (times, at_once): (usize, usize),
        round: impl Fn() -> io::Result<Round> + Sync,
    ) -> io::Result<Self> {
        let (begun, rounds) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        on_threads(at_once, |_| {
            while begun.fetch_add(1, Ordering::Relaxed) < times {
                let round = round()?;
                println!("{ROUND}{}", Self { experiment, lock: lock.clone(), rounds: vec![round] });
                rounds.lock().unwrap_or_else(PoisonError::into_inner).push(round);
            }
            Ok(())
        })?;
        Ok(Self { experiment, lock, rounds: rounds.into_inner().unwrap_or_else(PoisonError::into_inner) })
    }

    /// Adds up the rounds that earlier runs printed, even of runs that were stopped.
    #[must_use]
    pub fn sum(output: &str) -> Vec<Self> {
        let mut sums: Vec<Self> = Vec::new();
        for row in output.lines().filter_map(|line| line.strip_prefix(ROUND)) {
            let cells: Vec<&str> = row.split(" | ").collect();
            let [name, lock, _, _, waited, _, both, late, ..] = cells[..] else { continue };
            let name = name.trim_matches(['|', ' ', '`']);
            let Ok(experiment) = Experiment::from_str(name, false) else { continue };
            let time = |text: &str| text.split(' ').next()?.parse().ok().map(Duration::from_millis);
            let risen = if row.ends_with(FELL) { Some(false) } else { late.starts_with('0').then_some(true) };
            let round = Round { waited: time(waited), both: time(both), risen };
            match sums.iter_mut().find(|sum| sum.experiment == experiment && sum.lock == lock) {
                Some(sum) => sum.rounds.push(round),
                None => sums.push(Self { experiment, lock: lock.to_owned(), rounds: vec![round] }),
            }
        }
        sums
    }

    /// The number of rounds in which two clients believed in the lock at once.
    #[must_use]
    pub fn overlaps(&self) -> usize {
        self.rounds.iter().filter(|round| round.both.is_some()).count()
    }

    /// How many grants there were besides the first one of each round.
    #[must_use]
    pub fn second_grants(&self) -> usize {
        self.rounds.iter().filter(|round| round.waited.is_some()).count()
    }

    /// How many writes of the older holder were accepted after a write of the newer holder.
    #[must_use]
    pub fn late_writes(&self) -> usize {
        self.rounds.iter().filter(|round| round.waited.is_some() && round.risen != Some(true)).count()
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
        write!(f, "| `{name}` | {} | {} | {n} | {waited} | ", self.lock, self.rounds.len())?;
        write!(f, "{} | {both} | {} of {n} |", self.overlaps(), self.late_writes())?;
        f.write_str(if self.tokens_rise() { "" } else { FELL })
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

const FELL: &str = " A TOKEN FELL";

/// The beginning of a line for one round.
const ROUND: &str = "round: ";

/// The columns of [`Findings`].
pub const HEAD: &str = "| experiment | lock | rounds | granted to a second one | after (median / most) | both believed | for (median / most) | late writes accepted |\n|---|---|---|---|---|---|---|---|";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_counts_rounds_overlaps_and_late_writes() {
        let (experiment, lock) = (Experiment::ClockAhead, "`fair`".to_owned());
        let mut findings = Findings { experiment, lock, rounds: vec![Round::default()] };
        let ms = Duration::from_millis;
        for (both, risen) in [(Some(ms(5)), Some(true)), (None, None), (Some(ms(7)), Some(true))] {
            findings.rounds.push(Round { waited: Some(ms(3)), both, risen });
        }
        let row = findings.to_string();
        assert_eq!(row, "| `clock-ahead` | `fair` | 4 | 3 | 3 / 3 ms | 2 | 7 / 7 ms | 1 of 3 |");
        findings.rounds.push(Round { risen: Some(false), ..Round::default() });
        assert!(findings.to_string().ends_with("FELL"));
    }

    #[test]
    fn the_rounds_of_several_runs_are_added_up_by_experiment_and_lock() {
        let round = |lock: &str, both: Option<u64>, risen| {
            let waited = Some(Duration::from_millis(30));
            let rounds = vec![Round { waited, both: both.map(Duration::from_millis), risen }];
            format!("{ROUND}{}\n", Findings { experiment: Experiment::Split, lock: lock.to_owned(), rounds })
        };
        let none =
            Findings { experiment: Experiment::Split, lock: "`fair`".to_owned(), rounds: vec![Round::default()] };
        let output = [
            format!("{HEAD}\n"),
            round("`fair`", Some(5), Some(true)),
            round("`plain`", None, None),
            round("old", None, Some(false)),
            round("`fair`", None, Some(true)),
            format!("{ROUND}{none}\n{none}\nround: | `spl"),
        ]
        .concat();
        let sums: Vec<_> = Findings::sum(&output).iter().map(ToString::to_string).collect();
        let fair = "| `split` | `fair` | 3 | 2 | 30 / 30 ms | 1 | 5 / 5 ms | 0 of 2 |";
        let plain = "| `split` | `plain` | 1 | 1 | 30 / 30 ms | 0 | - | 1 of 1 |";
        assert_eq!(sums, [fair, plain, "| `split` | old | 1 | 1 | 30 / 30 ms | 0 | - | 1 of 1 | A TOKEN FELL"]);
    }
}
