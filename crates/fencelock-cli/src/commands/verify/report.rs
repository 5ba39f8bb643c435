//! The counts of `verify`, for people and for programs.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fencelock_lab::Verdict;
use fencelock_lab::history::Laws;
use fencelock_lab::ledger::{BROKEN, Row};
use serde::Serialize;

/// How many examples of what went wrong are kept.
const EXAMPLES: usize = 20;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    row: Row,
    processes: u32,
    names: u32,
    checks: Vec<Check>,
    examples: Vec<String>,
    ok: bool,
}

#[derive(Debug, Serialize)]
struct Check {
    promise: &'static str,
    broken: u64,
    of: u64,
    /// By the rule of three: at 95 %, of all times in fewer.
    fewer_than: Option<f64>,
}

impl Report {
    pub(super) fn new(store: &str, processes: u32, names: u32) -> Self {
        let mut row = Row::new(store, "verify");
        row.commit = env!("CARGO_PKG_VERSION").to_owned();
        row.started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Self { row, processes, names, checks: Vec::new(), examples: Vec::new(), ok: false }
    }

    /// Adds the verdict of a portion, and the time that the portion took.
    pub(super) fn add(&mut self, verdict: &Verdict, took: Duration) {
        let (toll, seconds) = (&verdict.toll, (took.as_secs_f64() * 10.0).round() / 10.0);
        self.row.add(&Row { seconds, ..Row::new("", "").with(verdict, (toll.killed + toll.stopped) as u64) });
        let Laws { order, tokens } = verdict.laws;
        let promised = |name: &str| match name {
            "tokens_fell" | "late_accepted" => tokens,
            "out_of_order" => order,
            // A second judge is not asked here.
            "disputed" => false,
            _ => true,
        };
        let check = |(name, promise, trials): (&str, &'static str, &str)| {
            let (broken, of) = (self.row.counted(name), self.row.counted(trials));
            let fewer_than = (broken == 0 && of > 0).then(|| 3.0 / of as f64);
            promised(name).then_some(Check { promise, broken, of, fewer_than })
        };
        self.checks = BROKEN.into_iter().filter_map(check).collect();
        let said = verdict.to_string();
        self.examples.extend(said.lines().skip(1).map(str::to_owned));
        self.examples.truncate(EXAMPLES);
        self.ok = self.sections() > 0 && self.checks.iter().all(|check| check.broken == 0);
    }

    pub(super) fn row(&self) -> &Row {
        &self.row
    }

    /// How many sections held a lock.
    pub(super) fn sections(&self) -> u64 {
        self.row.counted("grants")
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
        let Self { row, processes, names, .. } = self;
        writeln!(f, "{} sections in {:.1} s: {names} locks, {processes} processes", self.sections(), row.seconds)?;
        writeln!(f, "{} were killed, {} stopped for a while", row.counted("kills"), row.counted("stops"))?;
        for Check { promise, broken, of, fewer_than } in &self.checks {
            let bound = match fewer_than {
                Some(_) => format!(": at 95 % in fewer than 1 of {}", (of / 3).max(1)),
                None if *of == 0 => ": never tried".to_owned(),
                None => ": BROKEN".to_owned(),
            };
            writeln!(f, "{promise:<40} {broken} of {of}{bound}")?;
        }
        let (late, takeover) = (row.counted("late_refused"), row.longest_takeover_seconds);
        writeln!(
            f,
            "late writes refused by their tokens: {late}; longest takeover from a dead holder: {takeover:.1} s"
        )?;
        self.examples.iter().try_for_each(|example| writeln!(f, "  {example}"))
    }
}
