//! What `verify` counted, for people and for programs.

use std::fmt;
use std::io;

use fencelock::capability::{Capability, Order, Tokens};
use serde::Serialize;

use super::crew::Toll;
use super::register::Count;

/// How many examples of what went wrong are kept.
const EXAMPLES: usize = 20;

#[derive(Debug, Serialize)]
pub(super) struct Run {
    pub(super) store: String,
    pub(super) seconds: f64,
    pub(super) processes: u32,
    pub(super) names: u32,
    #[serde(flatten)]
    pub(super) toll: Toll,
}

/// What there was when everybody should have been gone.
pub(super) struct End {
    pub(super) unfinished: u64,
    pub(super) left: u64,
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
        let mut checks = vec![Check::new("one holder at a time", counted(Count::TwoHolders)?, sections)];
        if capability.tokens != Tokens::None {
            let taken = counted(Count::LateTaken)?;
            checks.push(Check::new("tokens rise", counted(Count::NotRising)?, counted(Count::WithToken)?));
            checks.push(Check::new("a late write is refused by its token", taken, taken + refused));
        }
        if capability.order == Order::Fifo {
            let promise = "who is queued is granted before who asks later";
            checks.push(Check::new(promise, counted(Count::OutOfOrder)?, counted(Count::Queued)?));
        }
        let waits = counted(Count::Waits)?;
        checks.push(Check::new("no waiter is stuck", counted(Count::Stuck)? + end.unfinished, waits));
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
            ok: sections > 0 && checks.iter().all(|check| check.broken == 0),
            checks,
            examples: end.examples.lines().take(EXAMPLES).map(str::to_owned).collect(),
        })
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
        let mut capability = Capability::least("x", "y");
        (capability.tokens, capability.order) = (Tokens::Counter, Order::Fifo);
        Report::new(run, &capability, counted, End { unfinished: 0, left, examples: String::new() }).unwrap()
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
