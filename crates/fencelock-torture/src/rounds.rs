//! Storms, one after the other, for as long as one likes.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fencelock_lab::history::Law;
use fencelock_lab::{Drill, Site, Strategy, Toll, Uses, Verdict};

/// How long the storms last, and what takes part in them.
#[derive(Debug, Clone)]
pub struct Rounds {
    /// The worker binary.
    pub worker: PathBuf,
    /// No new round starts after this.
    pub lasting: Duration,
    /// Decides every schedule.
    pub seed: u64,
    /// How many processes there are, each with a way to the store of its own.
    pub processes: usize,
    /// How many tasks each of them runs.
    pub tasks: usize,
    /// How many locks they take.
    pub locks: usize,
    /// The use of the locks.
    pub uses: Uses,
    /// How often each round strikes.
    pub strikes: usize,
}

impl Rounds {
    /// A hundred workers in four processes, over four locks.
    #[must_use]
    pub fn new(worker: PathBuf, lasting: Duration, seed: u64) -> Self {
        Self { worker, lasting, seed, processes: 4, tasks: 25, locks: 4, uses: Uses::Mutexes, strikes: 10 }
    }

    /// Runs round after round, each at the site that `site` makes of its number; `heard` receives each verdict. The logs
    /// of a round that is not clean are kept, and named in the tally.
    ///
    /// # Errors
    /// When the machine refuses; names the logs of the round that could not continue.
    pub fn run(
        &self,
        mut site: impl FnMut(u64) -> io::Result<Arc<dyn Site>>,
        mut heard: impl FnMut(&Verdict),
    ) -> io::Result<Tally> {
        let start = Instant::now();
        let mut tally = Tally::default();
        while tally.rounds == 0 || start.elapsed() < self.lasting {
            let verdict = self.round(tally.rounds, site(tally.rounds)?, &mut tally)?;
            tally.add(&verdict);
            heard(&verdict);
        }
        tally.took = start.elapsed();
        Ok(tally)
    }

    fn round(&self, number: u64, site: Arc<dyn Site>, tally: &mut Tally) -> io::Result<Verdict> {
        let logs = tempfile::Builder::new().prefix("fencelock-torture-").tempdir()?;
        let seed = self.seed.wrapping_add(number);
        let drill = Drill::at(site, logs.path(), &self.worker, Strategy::Storm, seed);
        let Self { processes, tasks, locks, uses, strikes, .. } = *self;
        match (Drill { processes, tasks, locks, uses, strikes, ..drill }).run() {
            Ok(verdict) => {
                if !verdict.is_clean() {
                    tally.kept.push(logs.keep());
                }
                Ok(verdict)
            }
            Err(error) => {
                let kept = logs.keep();
                Err(io::Error::new(error.kind(), format!("seed {seed}: {error}\nlogs: {}", kept.display())))
            }
        }
    }
}

/// The outcome of all rounds together.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// How many rounds there were.
    pub rounds: u64,
    /// How long they took.
    pub took: Duration,
    /// The faults that were made.
    pub toll: Toll,
    /// Attempts to take a lock.
    pub sections: usize,
    /// Attempts that were granted.
    pub grants: usize,
    /// Attempts that were answered with a contender ahead.
    pub busy_answers: usize,
    /// Writes to fenced resources, and how many of them were refused.
    pub writes: (usize, usize),
    /// Two that held an exclusive lock at once.
    pub overlaps: usize,
    /// The same, across a lapse of the store that its certainty excludes.
    pub excused: usize,
    /// Everything else that is against a law, stuck or left behind.
    pub others: usize,
    /// Repairs at the servers without a fault of ours.
    pub remarks: usize,
    /// The logs of rounds that were not clean.
    pub kept: Vec<PathBuf>,
}

impl Tally {
    fn add(&mut self, verdict: &Verdict) {
        let report = &verdict.report;
        let overlaps = report.violations.iter().filter(|violation| violation.law == Law::Exclusion).count();
        self.rounds += 1;
        self.toll.add(&verdict.toll);
        self.sections += report.sections;
        self.grants += report.grants;
        self.busy_answers += report.busy_answers;
        self.writes.0 += report.writes.0;
        self.writes.1 += report.writes.1;
        self.overlaps += overlaps;
        self.excused += report.excused;
        self.others += report.violations.len() - overlaps + verdict.faults.len();
        self.remarks += verdict.remarks.len();
    }

    /// Whether nothing was wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.overlaps == 0 && self.others == 0
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, took, toll, sections, grants, busy_answers, writes: (writes, refused), .. } = self;
        writeln!(f, "{rounds} rounds in {:.0} s: {toll}", took.as_secs_f64())?;
        writeln!(f, "{sections} sections, {grants} grants, {busy_answers} busy answers")?;
        writeln!(f, "{writes} writes, {refused} of them refused")?;
        write!(f, "{} overlaps, {} other faults", self.overlaps, self.others)?;
        if self.overlaps == 0 && self.grants > 0 {
            // The rule of three: an event that never happened in n trials has, with 95 % confidence, a rate below 3/n.
            write!(f, "; with 95 % confidence fewer than {:.1e} overlaps a grant (3/n)", 3.0 / self.grants as f64)?;
        }
        if self.excused > 0 {
            write!(f, "\n{} overlaps across a loss of memory or a jump of the clock", self.excused)?;
        }
        if self.remarks > 0 {
            write!(f, "\n{} remarks on servers, see the rounds", self.remarks)?;
        }
        self.kept.iter().try_for_each(|logs| write!(f, "\nlogs: {}", logs.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_says_how_little_zero_overlaps_prove_and_nothing_once_there_is_one() {
        let clean = Tally { grants: 3_000, ..Tally::default() };
        assert!(clean.is_clean() && clean.to_string().contains("fewer than 1.0e-3 overlaps a grant"), "{clean}");
        let broken = Tally { overlaps: 1, ..clean };
        assert!(!broken.is_clean() && !broken.to_string().contains("95 %"), "{broken}");
    }
}
