//! The ledger: a row for each drill, as one line of JSON, and sums over the rows of many runs and machines.
//!
//! A row has texts and numbers about the drill, and counts that add up. [`BROKEN`] names the counts that are to be zero. A zero in n trials
//! bounds the rate at 95 % confidence by 3/n (the rule of three).

use std::collections::{BTreeMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use fencelock::inspect::Claim;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::history::{Answer, History, Law, Section};
use crate::{Fault, Verdict};

/// The value of `format` in each row.
const FORMAT: &str = "fencelock-ledger 1";

/// The counts of broken promises: the name, the heading, and the count of the trials.
pub const BROKEN: [(&str, &str, &str); 10] = [
    ("believers", "pairs of believers", "grants"),
    ("unnotified", "holders not notified", "grants"),
    ("foreign_releases", "releases that freed another's lock", "grants"),
    ("tokens_fell", "tokens that fell", "grants_with_token"),
    ("late_accepted", "late writes accepted", "writes"),
    ("out_of_order", "grants out of order", "grants_in_order"),
    ("left_behind", "places left behind", "drills"),
    ("stuck", "waiters stuck", "drills"),
    ("disputed", "verdicts that the second judge disputes", "judged_twice"),
    ("other", "other faults", "drills"),
];

/// A drill, or the sum of several.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The format of the row.
    pub format: String,
    /// The store and its topology.
    pub store: String,
    /// The strategy of the drill; empty in a sum.
    pub fault: String,
    /// Why the drill was not played.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub not_run: Option<String>,
    /// The commit of the library; a `+` says that files were changed.
    pub commit: String,
    /// The versions of the servers.
    pub versions: String,
    /// Decides the schedule.
    pub seed: u64,
    /// When the drill began, in seconds of Unix time.
    pub started: u64,
    /// How long the drill took.
    pub seconds: f64,
    /// How long the machine slept meanwhile. Takeovers of such a drill are not counted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub slept_seconds: Option<f64>,
    /// The longest time from the death of a holder to the next grant.
    pub longest_takeover_seconds: f64,
    /// The directory with the logs of a drill that was not clean.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub logs: Option<String>,
    /// The counts, by name.
    #[serde(flatten)]
    pub counts: BTreeMap<String, u64>,
}

impl Row {
    /// A row without counts.
    #[must_use]
    pub fn new(store: &str, fault: &str) -> Self {
        Self { format: FORMAT.to_owned(), store: store.to_owned(), fault: fault.to_owned(), ..Self::default() }
    }

    /// Counts the outcome of a drill in which this number of faults took effect.
    #[must_use]
    pub fn with(mut self, verdict: &Verdict, faults: u64) -> Self {
        let (report, history) = (&verdict.report, &verdict.history);
        let of = |laws: &[Law]| report.violations.iter().filter(|found| laws.contains(&found.law)).count();
        let exclusion = [Law::Exclusion, Law::Sharing, Law::Permits, Law::OneCapacity];
        let overlaps = || report.violations.iter().filter(|found| exclusion.contains(&found.law));
        let pairs = || overlaps().filter_map(|found| Some((found.against?, found.who)));
        // A grant tries only the laws that its store claims.
        let tried = |is_claimed: bool| if is_claimed { report.grants } else { 0 };
        let among = |is_it: fn(&Fault) -> bool| verdict.faults.iter().filter(|fault| is_it(fault)).count();
        let counts = [
            ("drills", 1),
            ("sections", report.sections),
            ("grants", report.grants),
            ("grants_with_token", tried(verdict.laws.tokens)),
            ("grants_in_order", tried(verdict.laws.order)),
            ("writes", report.writes.0),
            ("late_refused", report.writes.1),
            ("excused", report.excused),
            ("believers", overlaps().count()),
            ("unnotified", pairs().map(|(earlier, _)| earlier).collect::<HashSet<_>>().len()),
            ("foreign_releases", pairs().filter(|pair| is_freed_by_another(history, *pair)).count()),
            ("tokens_fell", of(&[Law::TokensRise])),
            ("late_accepted", of(&[Law::FencedResource])),
            ("left_behind", among(|fault| matches!(fault, Fault::LeftBehind(_)))),
            ("stuck", among(|fault| matches!(fault, Fault::Stuck(_)))),
            ("out_of_order", of(&[Law::Order])),
            ("other", among(|fault| matches!(fault, Fault::Failed(_))) + of(&[Law::BusyHasAWitness])),
            ("kills", verdict.toll.killed),
            ("stops", verdict.toll.stopped),
        ];
        self.counts.extend(counts.map(|(name, count)| (name.to_owned(), count as u64)));
        self.count("faults", faults);
        self.longest_takeover_seconds = longest_takeover(history) as f64 / 1e9;
        self
    }

    /// Adds to a count.
    pub fn count(&mut self, name: &str, count: u64) {
        *self.counts.entry(name.to_owned()).or_default() += count;
    }

    /// The value of a count.
    #[must_use]
    pub fn counted(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// Whether no promise was broken.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        BROKEN.iter().all(|(name, ..)| self.counted(name) == 0)
    }

    /// Adds the counts of another row.
    pub fn add(&mut self, other: &Self) {
        other.counts.iter().for_each(|(name, count)| self.count(name, *count));
        self.seconds += other.seconds;
        if other.slept_seconds.is_none() {
            self.longest_takeover_seconds = self.longest_takeover_seconds.max(other.longest_takeover_seconds);
        }
    }
}

/// Whether a third section released between the grants of two holders that believed at once: a release must end its own grant alone.
fn is_freed_by_another(history: &History, (earlier, later): (usize, usize)) -> bool {
    let (first, second) = (&history.sections[earlier], &history.sections[later]);
    let (Some(from), Some(until)) = (granted(first), granted(second)) else { return false };
    let mut others = history.sections.iter().filter(|other| other.lock == first.lock && *other != first);
    others.any(|other| other.released.is_some_and(|released| (from..until).contains(&released)))
}

fn granted(section: &Section) -> Option<u64> {
    if let Answer::Granted { at, .. } = section.answer { Some(at) } else { None }
}

/// The longest time from the death of a holder of a whole lock, or from the next contender's call if that came later, to the next grant,
/// in nanoseconds.
fn longest_takeover(history: &History) -> u64 {
    let is_whole = |section: &&Section| section.claim.is_whole() && section.claim != Claim::READER;
    let died = |section: &Section| {
        let is_left = section.released.is_some() || section.belief_end.is_some();
        history.deaths.get(&section.client).filter(|died| !is_left && granted(section) <= Some(**died)).copied()
    };
    let mut grants: Vec<(u32, u64, u64, Option<u64>)> = (history.sections.iter().filter(is_whole))
        .filter_map(|section| Some((section.lock, granted(section)?, section.called, died(section))))
        .collect();
    grants.sort_unstable();
    let pairs = grants.windows(2).filter(|pair| pair[0].0 == pair[1].0);
    pairs.filter_map(|pair| Some(pair[1].1.saturating_sub(pair[0].3?.max(pair[1].2)))).max().unwrap_or(0)
}

/// A file of rows, written by this process alone.
#[derive(Debug)]
pub struct Ledger {
    file: File,
    rows: Vec<Row>,
}

impl Ledger {
    /// Opens a file to append to, and makes it when it is not there. A last line without an end, which a stop left, is cut off.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when another process writes the file; [`io::ErrorKind::InvalidData`] for a line that is no row; errors
    /// of the file system.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let (mut text, mut rows) = (String::new(), Vec::new());
        file.read_to_string(&mut text)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64)?;
        parse(&text[..whole], &path.display().to_string(), &mut rows)?;
        Ok(Self { file, rows })
    }

    /// The rows so far.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Appends a row.
    ///
    /// # Errors
    /// Errors of the file system. The next [`Ledger::open`] cuts off what a full disk left of the row.
    pub fn add(&mut self, row: Row) -> io::Result<()> {
        self.file.write_all(format!("{}\n", serde_json::to_string(&row)?).as_bytes())?;
        self.rows.push(row);
        Ok(())
    }
}

/// The rows of a file. A last line without an end is left out.
///
/// # Errors
/// As [`Ledger::open`].
pub fn read(path: &Path) -> io::Result<Vec<Row>> {
    let (text, mut rows) = (std::fs::read_to_string(path)?, Vec::new());
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    parse(&text[..whole], &path.display().to_string(), &mut rows)?;
    Ok(rows)
}

fn parse(text: &str, path: &str, rows: &mut Vec<Row>) -> io::Result<()> {
    for (index, line) in text.lines().enumerate() {
        let row: Option<Row> = serde_json::from_str(line).ok().filter(|row: &Row| row.format == FORMAT);
        let fault = || format!("{path}:{}: no row of {FORMAT}", index + 1);
        rows.push(row.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, fault()))?);
    }
    Ok(())
}

/// The sum of each store, in the order in which they first occur, and at last the sum of all.
#[must_use]
pub fn sum(rows: &[Row]) -> Vec<Row> {
    let (mut sums, mut all): (Vec<Row>, _) = (Vec::new(), Row::new("all", ""));
    for row in rows.iter().filter(|row| row.not_run.is_none()) {
        let known = sums.iter().position(|sum| sum.store == row.store);
        let at = known.unwrap_or(sums.len());
        if known.is_none() {
            sums.push(Row { versions: row.versions.clone(), ..Row::new(&row.store, "") });
        }
        sums[at].add(row);
        all.add(row);
    }
    sums.push(all);
    sums
}

/// Two tables in Markdown: a row for each sum, and a row with a bound for each promise, by the last sum, which is that of all.
#[must_use]
pub fn table(sums: &[Row]) -> String {
    let heads =
        "store | sections | faults | late writes refused | pairs excused | promises broken | longest takeover, s";
    let mut table = format!("| {heads} |\n|---|{}\n", "---:|".repeat(6));
    for sum in sums {
        let counts = ["sections", "faults", "late_refused", "excused"].map(|name| sum.counted(name).to_string());
        let broken: u64 = BROKEN.iter().map(|(name, ..)| sum.counted(name)).sum();
        let takeover = sum.longest_takeover_seconds;
        table.push_str(&format!("| {} | {} | {broken} | {takeover:.1} |\n", sum.store, counts.join(" | ")));
    }
    table.push_str("\n| broken promise | times | rate below |\n|---|---:|---:|\n");
    for (name, head, trials) in BROKEN {
        let row = sums.last().map(|all| match (all.counted(name), all.counted(trials)) {
            (0, 0) => "– | never tried".to_owned(),
            (0, n) => format!("0 | 3/{n}"),
            (count, _) => format!("**{count}** | –"),
        });
        table.push_str(&format!("| {head} | {} |\n", row.unwrap_or_default()));
    }
    table
}
