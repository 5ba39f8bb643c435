//! The counts of `verify`, for people and for programs.

use std::fmt;
use std::io;
use std::time::Duration;

use fencelock::capability::{Capability, Order, Tokens};
use fencelock_lab::Count;
use serde::Serialize;

use super::crew::Toll;

/// How many examples of what went wrong are kept.
const EXAMPLES: usize = 20;

const ONE_HOLDER: &str = "one holder at a time";
const TOKENS: &str = "tokens rise";
const LATE_WRITES: &str = "a late write is refused by its token";
const NOT_STUCK: &str = "no waiter is stuck";

#[derive(Debug, Serialize)]
pub(super) struct Run {
    pub(super) store: String,
    pub(super) seconds: f64,
    pub(super) processes: u32,
    pub(super) names: u32,
    #[serde(flatten)]
    pub(super) toll: Toll,
}

/// The remains when all workers should have been gone.
pub(super) struct End {
    pub(super) unfinished: u64,
    pub(super) left: u64,
    /// From a kill of a holder, or the end of its validity, to the next holder.
    pub(super) longest_takeover: Duration,
    pub(super) examples: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    run: Run,
    sections: u64,
    lost: u64,
    failed: u64,
    overtaken: u64,
    late_writes: LateWrites,
    longest_takeover_seconds: f64,
    checks: Vec<Check>,
    examples: Vec<String>,
    ok: bool,
}

#[derive(Debug, Serialize)]
struct LateWrites {
    refused: u64,
    alone: u64,
    unfenced: u64,
}

#[derive(Debug, Serialize)]
struct Check {
    promise: &'static str,
    broken: u64,
    of: u64,
    /// By the rule of three: at 95 %, of all times in fewer.
    fewer_than: Option<f64>,
}

impl Check {
    fn new(promise: &'static str, broken: u64, of: u64) -> Self {
        Self { promise, broken, of, fewer_than: (broken == 0 && of > 0).then(|| 3.0 / of as f64) }
    }
}

impl Report {
    pub(super) fn new(
        run: Run,
        capability: &Capability,
        counted: impl Fn(Count) -> io::Result<u64>,
        end: End,
    ) -> io::Result<Self> {
        let sections = counted(Count::Sections)?;
        let refused = counted(Count::LateRefused)?;
        let mut checks = vec![Check::new(ONE_HOLDER, counted(Count::TwoHolders)?, sections)];
        if capability.tokens != Tokens::None {
            let taken = counted(Count::LateTaken)?;
            checks.push(Check::new(TOKENS, counted(Count::NotRising)?, counted(Count::WithToken)?));
            checks.push(Check::new(LATE_WRITES, taken, taken + refused));
        }
        if capability.order == Order::Fifo {
            let promise = "who is queued is granted before who asks later";
            checks.push(Check::new(promise, counted(Count::OutOfOrder)?, counted(Count::Queued)?));
        }
        let waits = counted(Count::Waits)?;
        checks.push(Check::new(NOT_STUCK, counted(Count::Stuck)? + end.unfinished, waits));
        checks.push(Check::new("nothing is left in the queues", end.left, waits));
        Ok(Self {
            run,
            sections,
            lost: counted(Count::Lost)?,
            failed: counted(Count::Failed)?,
            overtaken: counted(Count::Overtaken)?,
            late_writes: LateWrites {
                refused,
                alone: counted(Count::LateAlone)?,
                unfenced: counted(Count::LateUnfenced)?,
            },
            longest_takeover_seconds: (end.longest_takeover.as_secs_f64() * 1e3).round() / 1e3,
            ok: sections > 0 && checks.iter().all(|check| check.broken == 0),
            checks,
            examples: end.examples.lines().take(EXAMPLES).map(str::to_owned).collect(),
        })
    }

    /// A table of one row, in Markdown: each zero with its bound, and a dash for what the store does not promise.
    pub(super) fn row(&self) -> String {
        let broken = |promise| match self.checks.iter().find(|check| check.promise == promise) {
            Some(Check { broken: 0, of: 0, .. }) => "never tried".to_owned(),
            Some(Check { broken: 0, of, .. }) => format!("0 (< 3/{of})"),
            Some(check) => format!("**{}** of {}", check.broken, check.of),
            None => "–".to_owned(),
        };
        let cells = [
            ("store", self.run.store.clone()),
            ("sections", self.sections.to_string()),
            ("kills", self.run.toll.kills.to_string()),
            ("stops", self.run.toll.pauses.to_string()),
            ("pairs of believers", broken(ONE_HOLDER)),
            ("late writes refused", self.late_writes.refused.to_string()),
            ("late writes accepted", broken(LATE_WRITES)),
            ("tokens that fell", broken(TOKENS)),
            ("waiters stuck", broken(NOT_STUCK)),
            ("longest takeover, s", self.longest_takeover_seconds.to_string()),
        ];
        let [heads, row] = [cells.clone().map(|(head, _)| head.to_owned()), cells.map(|(_, cell)| cell)];
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        line(&heads) + &line(&heads.clone().map(|_| "---".to_owned())) + &line(&row)
    }

    pub(super) fn fault(&self) -> Option<String> {
        let broken: Vec<_> = self.checks.iter().filter(|check| check.broken > 0).collect();
        match broken.as_slice() {
            [] if self.ok => None,
            [] => Some("no lock was had, so that nothing was verified".to_owned()),
            broken => {
                let promises: Vec<_> = broken.iter().map(|check| format!("\"{}\"", check.promise)).collect();
                Some(format!("broken: {}", promises.join(", ")))
            }
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Run { seconds, processes, names, toll, .. }, sections) = (&self.run, self.sections);
        let Toll { kills, pauses, long_pauses } = toll;
        writeln!(f, "{sections} sections in {seconds} s: {names} locks, {processes} processes")?;
        writeln!(f, "{kills} were killed, {pauses} stopped for a while, {long_pauses} of these beyond the ttl")?;
        for Check { promise, broken, of, fewer_than } in &self.checks {
            let bound = match fewer_than {
                Some(_) => format!(": at 95 % in fewer than 1 of {}", (of / 3).max(1)),
                None if *of == 0 => ": never tried".to_owned(),
                None => ": BROKEN".to_owned(),
            };
            writeln!(f, "{promise:<48} broken {broken} of {of}{bound}")?;
        }
        let (overtaken, late) = (self.overtaken, &self.late_writes);
        writeln!(
            f,
            "stopped past their ttl and overtaken: {overtaken}; their late writes: {} refused, {} with nobody in between, {} in a store without tokens",
            late.refused, late.alone, late.unfenced
        )?;
        writeln!(f, "guards that said they are lost: {}; requests that failed: {}", self.lost, self.failed)?;
        self.examples.iter().try_for_each(|example| writeln!(f, "  {example}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(broken: Option<Count>, left: u64) -> Report {
        let run = Run { store: "x:".to_owned(), seconds: 1.0, processes: 2, names: 1, toll: Toll::default() };
        let counted = |what: Count| {
            let usual = matches!(what, Count::Sections | Count::Waits | Count::WithToken | Count::Queued);
            Ok(if usual { 300 } else { u64::from(broken == Some(what)) })
        };
        let end = End { unfinished: 0, left, longest_takeover: Duration::from_millis(250), examples: String::new() };
        let mut capability = Capability::least("x", "y");
        (capability.tokens, capability.order) = (Tokens::Counter, Order::Fifo);
        Report::new(run, &capability, counted, end).unwrap()
    }

    #[test]
    fn the_row_has_a_bound_for_each_zero_and_marks_what_was_broken() {
        let row = report(None, 0).row();
        assert!(
            row.ends_with("| x: | 300 | 0 | 0 | 0 (< 3/300) | 0 | never tried | 0 (< 3/300) | 0 (< 3/300) | 0.25 |\n"),
            "{row}"
        );
        assert!(report(Some(Count::TwoHolders), 0).row().contains("**1** of 300"));
    }

    #[test]
    fn nothing_in_three_hundred_is_fewer_than_one_in_a_hundred() {
        let report = report(None, 0);
        assert_eq!((report.fault(), report.checks[0].fewer_than), (None, Some(0.01)));
        assert!(report.to_string().contains("broken 0 of 300: at 95 % in fewer than 1 of 100"), "{report}");
    }

    #[test]
    fn every_planted_fault_is_told() {
        for what in [Count::TwoHolders, Count::NotRising, Count::LateTaken, Count::OutOfOrder, Count::Stuck] {
            assert!(report(Some(what), 0).fault().unwrap().contains("broken"), "{what:?}");
        }
        assert!(report(None, 1).fault().unwrap().contains("nothing is left"));
        for expected in [Count::LateRefused, Count::Overtaken, Count::Lost, Count::LateAlone] {
            assert_eq!(report(Some(expected), 0).fault(), None, "{expected:?}");
        }
    }
}
