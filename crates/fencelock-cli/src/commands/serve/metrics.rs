//! The figures of the store in Prometheus' text format.

use std::fmt::{Display, Write as _};
use std::time::{Duration, SystemTime};

use fencelock::jobs::RunState;

use crate::commands::watch::classes::Classes;
use crate::commands::watch::grants::{BOUNDS, Counts};
use crate::commands::watch::look::{Looked, Seen};

pub(super) const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All figures. Figures by class are left out while the store does not answer: old figures would pass for new ones.
pub(super) fn text(stores: &[Seen], classes: &Classes, viewers: usize) -> String {
    let mut text = Text::default();
    for seen in stores {
        let of = [("store", &*seen.store)];
        of_looks(&mut text, seen, &of);
        for (number, class) in classes.names().enumerate() {
            let of = [of[0], ("class", class)];
            if seen.is_up() {
                by_class(&mut text, seen, number, &of);
            }
            seen.grants.counts.get(number).into_iter().for_each(|counts| counted(&mut text, counts, &of));
        }
        of_jobs(&mut text, seen, of[0]);
    }
    text.put("fencelock_store_viewers", "gauge", "Open streams of events.", &[], viewers);
    text.0.into_iter().map(|(_, lines)| lines).collect()
}

fn of_looks(text: &mut Text, seen: &Seen, of: &[(&str, &str)]) {
    text.put(
        "fencelock_store_up",
        "gauge",
        "Whether the last look at the store succeeded.",
        of,
        u8::from(seen.is_up()),
    );
    let at = seen.at.filter(|_| seen.is_up()).map_or(Duration::ZERO, since_epoch);
    if !at.is_zero() {
        let help = "When the store was read last, in seconds since 1970.";
        text.put("fencelock_store_read_timestamp_seconds", "gauge", help, of, at.as_secs_f64());
        text.put("fencelock_store_locks_left_out", "gauge", "Locks beyond those that are counted.", of, seen.left_out);
    }
    text.put("fencelock_store_look_seconds", "gauge", "How long the last look took.", of, seen.took.as_secs_f64());
    text.put("fencelock_store_looks_total", "counter", "Looks at the store.", of, seen.looks);
    text.put("fencelock_store_failed_looks_total", "counter", "Looks that failed.", of, seen.failed);
}

type Figure = fn(&Looked) -> usize;

const SUMS: [(&str, &str, Figure); 6] = [
    ("fencelock_store_locks", "Locks with holders or waiters.", |_| 1),
    ("fencelock_store_holders", "Grants that are held.", |lock| lock.row.holders),
    ("fencelock_store_waiters", "Contenders that wait.", |lock| lock.row.waiting),
    ("fencelock_store_foreign_contenders", "Contenders of other clients, among the first 100 of each queue.", |lock| {
        lock.foreign
    }),
    (
        "fencelock_store_beside_contenders",
        "Contenders of other clients that may hold a lock together with its holder.",
        |lock| lock.beside,
    ),
    ("fencelock_store_unreadable_locks", "Locks whose queue cannot be read.", |lock| usize::from(lock.whole.is_none())),
];

type Moment = fn(&Looked) -> Option<SystemTime>;

const AGES: [(&str, &str, Moment); 2] = [
    ("fencelock_store_oldest_wait_seconds", "How long the longest waiter has waited; 0 without one.", |lock| {
        lock.oldest_wait
    }),
    ("fencelock_store_oldest_hold_seconds", "How long the longest holder has held; 0 without one.", |lock| {
        lock.oldest_hold
    }),
];

fn by_class(text: &mut Text, seen: &Seen, class: usize, of: &[(&str, &str)]) {
    let locks = || seen.locks.iter().filter(|lock| lock.class == class);
    for (name, help, figure) in SUMS {
        text.put(name, "gauge", help, of, locks().map(figure).sum::<usize>());
    }
    let now = seen.clock.unwrap_or(SystemTime::UNIX_EPOCH);
    for (name, help, moment) in AGES {
        let oldest = locks().filter_map(moment).min().and_then(|since| now.duration_since(since).ok());
        text.put(name, "gauge", help, of, oldest.unwrap_or_default().as_secs_f64());
    }
}

/// The counts since the start, which an outage does not make wrong.
fn counted(text: &mut Text, counts: &Counts, of: &[(&str, &str)]) {
    let help = "Grants that were seen to begin, without grants between two looks.";
    text.put("fencelock_store_grants_total", "counter", help, of, counts.granted);
    let (name, help) = ("fencelock_store_hold_seconds", "How long locks were held, as far as looks tell.");
    let mut sum = 0;
    for (bound, count) in BOUNDS.iter().zip(counts.holds) {
        sum += count;
        text.part(name, "_bucket", "histogram", help, &[of, &[("le", &bound.to_string())]].concat(), sum);
    }
    text.part(name, "_bucket", "histogram", help, &[of, &[("le", "+Inf")]].concat(), counts.ended);
    text.part(name, "_sum", "histogram", help, of, counts.held.as_secs_f64());
    text.part(name, "_count", "histogram", help, of, counts.ended);
}

fn of_jobs(text: &mut Text, seen: &Seen, store: (&str, &str)) {
    for (name, job) in seen.jobs.iter() {
        let of = [store, ("name", name.as_str())];
        let help = "When the last run that succeeded ended, in seconds since 1970; 0 without one.";
        let end = job.succeeded.map_or(0.0, |end| since_epoch(end).as_secs_f64());
        text.put("fencelock_store_job_last_success_timestamp_seconds", "gauge", help, &of, end);
        let has_failed = matches!(job.last.state, RunState::Failed | RunState::Died);
        let help = "Whether the last run of a job failed or died.";
        text.put("fencelock_store_job_failed", "gauge", help, &of, u8::from(has_failed));
    }
}

fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Each metric with its lines, which stand together.
#[derive(Default)]
struct Text(Vec<(&'static str, String)>);

impl Text {
    fn put(&mut self, name: &'static str, kind: &str, help: &str, of: &[(&str, &str)], value: impl Display) {
        self.part(name, "", kind, help, of, value);
    }

    fn part(
        &mut self,
        name: &'static str,
        part: &str,
        kind: &str,
        help: &str,
        of: &[(&str, &str)],
        value: impl Display,
    ) {
        let at = self.0.iter().position(|(other, _)| *other == name).unwrap_or_else(|| {
            let head = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
            self.0.push((name, head));
            self.0.len() - 1
        });
        let escaped = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let labels: Vec<_> = of.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        // Writing to a string does not fail.
        let _ = writeln!(self.0[at].1, "{name}{part}{labels} {value}");
    }
}
