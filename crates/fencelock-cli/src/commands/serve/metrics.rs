//! The figures of the store in Prometheus' text format.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use fencelock::Name;
use fencelock::jobs::{JobStatus, RunState};

use crate::commands::watch::classes::Classes;
use crate::commands::watch::grants::BOUNDS;
use crate::commands::watch::look::{Looked, Seen};

/// What the format is called in `Content-Type`.
pub(super) const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All figures. What is counted by class is left out while the store does not answer: old figures would pass for new ones.
pub(super) fn text(seen: &Seen, classes: &Classes, viewers: usize) -> String {
    let mut text = Text::default();
    text.one("fencelock_store_up", "gauge", "Whether the last look at the store succeeded.", u8::from(seen.is_up()));
    let at = seen.at.filter(|_| seen.is_up()).map_or(Duration::ZERO, since_epoch);
    if !at.is_zero() {
        let help = "When the store was read last, in seconds since 1970.";
        text.one("fencelock_store_read_timestamp_seconds", "gauge", help, at.as_secs_f64());
    }
    text.one("fencelock_store_look_seconds", "gauge", "How long the last look took.", seen.took.as_secs_f64());
    text.one("fencelock_store_looks_total", "counter", "Looks at the store.", seen.looks);
    text.one("fencelock_store_failed_looks_total", "counter", "Looks that failed.", seen.failed);
    text.one("fencelock_store_viewers", "gauge", "Open streams of events.", viewers);
    if seen.is_up() {
        text.one("fencelock_store_locks_left_out", "gauge", "Locks beyond those that are counted.", seen.left_out);
        by_class(&mut text, seen, classes);
    }
    counted(&mut text, seen, classes);
    of_jobs(&mut text, &seen.jobs);
    text.0
}

/// A figure of one lock.
type Figure = fn(&Looked) -> usize;

/// The figures that are sums over the locks of a class.
const SUMS: [(&str, &str, Figure); 6] = [
    ("locks", "Locks that somebody holds or waits for.", |_| 1),
    ("holders", "Grants that are held.", |lock| lock.row.holders),
    ("waiters", "Contenders that wait.", |lock| lock.row.waiting),
    ("foreign_contenders", "Contenders of other clients, among the first 100 of each queue.", |lock| lock.foreign),
    ("beside_contenders", "Contenders of other clients that may hold a lock beside its holder.", |lock| lock.beside),
    ("unreadable_locks", "Locks whose queue cannot be read.", |lock| usize::from(lock.everybody.is_none())),
];

/// The moment that the age of a lock counts from.
type Moment = fn(&Looked) -> Option<SystemTime>;

/// The figures that are the greatest age in a class.
const AGES: [(&str, &str, Moment); 2] = [
    ("oldest_wait_seconds", "How long the longest waiter has waited; 0 without one.", |lock| lock.oldest_wait),
    ("oldest_hold_seconds", "How long the longest holder has held; 0 without one.", |lock| lock.oldest_hold),
];

fn by_class(text: &mut Text, seen: &Seen, classes: &Classes) {
    for (name, help, figure) in SUMS {
        let mut sums = vec![0; classes.names().len()];
        seen.locks.iter().for_each(|lock| sums[lock.class] += figure(lock));
        text.head(&format!("fencelock_store_{name}"), "gauge", help);
        for (class, sum) in classes.names().zip(sums) {
            text.line(&format!("fencelock_store_{name}"), ("class", class), "", sum);
        }
    }
    let now = seen.at.unwrap_or(SystemTime::UNIX_EPOCH);
    for (name, help, moment) in AGES {
        let mut ages = vec![Duration::ZERO; classes.names().len()];
        for lock in seen.locks.iter() {
            let age = moment(lock).and_then(|since| now.duration_since(since).ok()).unwrap_or_default();
            ages[lock.class] = age.max(ages[lock.class]);
        }
        text.head(&format!("fencelock_store_{name}"), "gauge", help);
        for (class, age) in classes.names().zip(ages) {
            text.line(&format!("fencelock_store_{name}"), ("class", class), "", age.as_secs_f64());
        }
    }
}

/// What was counted since the start, which an outage does not make wrong.
fn counted(text: &mut Text, seen: &Seen, classes: &Classes) {
    let counts = || classes.names().zip(&seen.grants.counts);
    let name = "fencelock_store_grants_total";
    text.head(name, "counter", "Grants that were seen to begin; those between two looks are not.");
    for (class, counts) in counts() {
        text.line(name, ("class", class), "", counts.granted);
    }
    let name = "fencelock_store_hold_seconds";
    text.head(name, "histogram", "How long locks were held, as far as looks tell.");
    for (class, counts) in counts() {
        let mut sum = 0;
        for (bound, count) in BOUNDS.iter().zip(counts.holds) {
            sum += count;
            text.line(&format!("{name}_bucket"), ("class", class), &format!(",le=\"{bound}\""), sum);
        }
        text.line(&format!("{name}_bucket"), ("class", class), ",le=\"+Inf\"", counts.ended);
        text.line(&format!("{name}_sum"), ("class", class), "", counts.held.as_secs_f64());
        text.line(&format!("{name}_count"), ("class", class), "", counts.ended);
    }
}

fn of_jobs(text: &mut Text, jobs: &[(Name, JobStatus)]) {
    let (succeeded, failed) = ("fencelock_store_job_last_success_timestamp_seconds", "fencelock_store_job_failed");
    text.head(succeeded, "gauge", "When the last run that succeeded ended, in seconds since 1970; 0 without one.");
    for (name, job) in jobs {
        text.line(
            succeeded,
            ("name", name.as_str()),
            "",
            job.succeeded.map_or(0.0, |end| since_epoch(end).as_secs_f64()),
        );
    }
    text.head(failed, "gauge", "Whether the last run of a job failed or died.");
    for (name, job) in jobs {
        let has_failed = matches!(job.last.state, RunState::Failed | RunState::Died);
        text.line(failed, ("name", name.as_str()), "", u8::from(has_failed));
    }
}

fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        self.head(name, kind, help);
        let _ = writeln!(self.0, "{name} {value}");
    }

    fn line(&mut self, name: &str, (label, of): (&str, &str), labels: &str, value: impl std::fmt::Display) {
        let of = of.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = writeln!(self.0, "{name}{{{label}=\"{of}\"{labels}}} {value}");
    }
}
