//! The figures from the logs of a drill.

use std::fmt;

use serde::Serialize;

use super::log::{Log, Section};

#[derive(Debug, Serialize)]
pub(super) struct Figures {
    workers: u32,
    processes: u32,
    sections: u64,
    /// The number in the counter file; null when it holds none.
    counter: Option<u64>,
    exact: bool,
    /// Sections that began before the one before had ended.
    overlaps: u64,
    /// Grants whose token was not above the one before; 0 where the store has no tokens.
    tokens_not_rising: u64,
    seconds: f64,
    sections_per_second: f64,
    hand_over_us: Spread,
    wait_us: Spread,
    least_served: u64,
    most_served: u64,
    /// The sections of the worker with the fewest, divided by those of the worker with the most.
    least_to_most: f64,
    wakes_per_release: f64,
    /// Sections that were granted before one that asked earlier, and by how much at most.
    overtakes: u64,
    overtake_most_us: f64,
}

/// How samples spread, in microseconds; zeros without samples.
#[derive(Debug, Default, Serialize)]
struct Spread {
    samples: usize,
    p50: f64,
    p99: f64,
    most: f64,
}

impl Spread {
    fn of(mut nanos: Vec<u64>) -> Self {
        nanos.sort_unstable();
        let at = |share: usize| nanos.get((nanos.len() * share / 100).min(nanos.len().saturating_sub(1)));
        let us = |nanos: Option<&u64>| nanos.map_or(0.0, |nanos| micros(*nanos));
        Self { samples: nanos.len(), p50: us(at(50)), p99: us(at(99)), most: us(nanos.last()) }
    }
}

fn micros(nanos: u64) -> f64 {
    (nanos as f64 / 100.0).round() / 10.0
}

impl Figures {
    pub(super) fn new(logs: &[Log], workers: u32, processes: u32, counter: Option<u64>) -> Self {
        let sections = in_order(logs);
        let count = sections.len() as u64;
        let woken: u64 = logs.iter().map(|log| log.woken).sum();
        let served = served(&sections, workers);
        let least_served = served.iter().copied().min().unwrap_or_default();
        let most_served = served.iter().copied().max().unwrap_or_default();
        let (overtakes, overtake_most) = overtakes(&sections);
        let seconds = duration(&sections);
        Self {
            workers,
            processes,
            sections: count,
            counter,
            exact: counter == Some(count),
            overlaps: pairs(&sections).filter(|(before, after)| after.granted < before.releasing).count() as u64,
            tokens_not_rising: tokens_not_rising(&sections),
            seconds,
            sections_per_second: if seconds > 0.0 { count as f64 / seconds } else { 0.0 },
            hand_over_us: Spread::of(hand_overs(&sections)),
            wait_us: Spread::of(sections.iter().map(|section| section.granted - section.asked).collect()),
            least_served,
            most_served,
            least_to_most: least_served as f64 / most_served.max(1) as f64,
            wakes_per_release: woken as f64 / count.max(1) as f64,
            overtakes,
            overtake_most_us: micros(overtake_most),
        }
    }

    pub(super) fn workers(&self) -> u32 {
        self.workers
    }

    pub(super) fn fault(&self) -> Option<String> {
        if !self.exact {
            let counter = self.counter.map_or_else(|| "no number".to_owned(), |counter| counter.to_string());
            return Some(format!("the counter is not exact: it holds {counter} after {} sections", self.sections));
        }
        if self.overlaps > 0 {
            return Some(format!("{} sections began before the one before had ended", self.overlaps));
        }
        (self.tokens_not_rising > 0).then(|| format!("{} tokens did not rise", self.tokens_not_rising))
    }
}

pub(super) fn in_order(logs: &[Log]) -> Vec<Section> {
    let mut sections: Vec<Section> = logs.iter().flat_map(|log| &log.sections).copied().collect();
    sections.sort_unstable_by_key(|section| section.granted);
    sections
}

fn pairs(sections: &[Section]) -> impl Iterator<Item = (&Section, &Section)> {
    sections.iter().zip(sections.iter().skip(1))
}

fn tokens_not_rising(sections: &[Section]) -> u64 {
    pairs(sections).filter(|(before, after)| before.token != 0 && after.token <= before.token).count() as u64
}

fn duration(sections: &[Section]) -> f64 {
    let end = sections.iter().map(|section| section.releasing).max().unwrap_or_default();
    sections.first().map_or(0.0, |first| end.saturating_sub(first.granted) as f64 / 1e9)
}

/// From just before the release to the next grant, if the next waiter waited already.
pub(super) fn hand_overs(sections: &[Section]) -> Vec<u64> {
    pairs(sections)
        .filter(|(before, after)| after.asked < before.releasing)
        .map(|(before, after)| after.granted.saturating_sub(before.releasing))
        .collect()
}

pub(super) fn served(sections: &[Section], workers: u32) -> Vec<u64> {
    let mut counts = vec![0_u64; workers as usize];
    for section in sections {
        if let Some(count) = counts.get_mut(section.worker as usize) {
            *count += 1;
        }
    }
    counts
}

/// How many grants overtook an earlier request, and the largest lead of such a request, in nanoseconds.
fn overtakes(sections: &[Section]) -> (u64, u64) {
    let (mut count, mut most, mut earliest) = (0, 0, u64::MAX);
    for section in sections.iter().rev() {
        if section.asked > earliest {
            count += 1;
            most = most.max(section.asked - earliest);
        }
        earliest = earliest.min(section.asked);
    }
    (count, most)
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spread = |f: &mut fmt::Formatter<'_>, what, spread: &Spread| {
            writeln!(f, "{what} p50 {} µs, p99 {} µs, most {} µs", spread.p50, spread.p99, spread.most)
        };
        let exact = if self.exact { "exact" } else { "NOT EXACT" };
        writeln!(f, "workers     {} in {} processes", self.workers, self.processes)?;
        writeln!(f, "sections    {} in {:.2} s, counter {exact}", self.sections, self.seconds)?;
        writeln!(f, "throughput  {:.0} sections/s", self.sections_per_second)?;
        spread(f, "hand-over  ", &self.hand_over_us)?;
        spread(f, "wait       ", &self.wait_us)?;
        let (least, most) = (self.least_served, self.most_served);
        writeln!(f, "served      least {least}, most {most} (ratio {:.3})", self.least_to_most)?;
        writeln!(f, "wakes       {:.3} per release", self.wakes_per_release)?;
        writeln!(f, "overtakes   {} (by {} µs at most)", self.overtakes, self.overtake_most_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(worker: u32, asked: u64, granted: u64, releasing: u64, token: i64) -> Section {
        Section { worker, asked, granted, releasing, token }
    }

    fn figures(sections: Vec<Section>, counter: u64) -> Figures {
        Figures::new(&[Log { woken: 2, sections }], 2, 1, Some(counter))
    }

    #[test]
    fn a_clean_drill_has_no_fault() {
        let figures = figures(vec![section(1, 5_000, 30_000, 40_000, 2), section(0, 0, 1_000, 20_000, 1)], 2);
        assert_eq!(figures.fault(), None);
        assert_eq!((figures.hand_over_us.samples, figures.hand_over_us.p50), (1, 10.0));
        assert_eq!((figures.least_served, figures.most_served, figures.overtakes), (1, 1, 0));
        assert_eq!(figures.wakes_per_release, 1.0);
    }

    #[test]
    fn every_planted_fault_is_found() {
        let clean = [section(0, 0, 1, 2, 1), section(1, 0, 3, 4, 2)];
        assert!(figures(clean.to_vec(), 1).fault().unwrap().contains("not exact"));
        let overlap = vec![clean[0], section(1, 0, 1, 4, 2)];
        assert!(figures(overlap, 2).fault().unwrap().contains("began before"));
        let token = vec![clean[0], section(1, 0, 3, 4, 1)];
        assert!(figures(token, 2).fault().unwrap().contains("did not rise"));
        let overtaken = figures(vec![section(0, 9_000, 10_000, 11_000, 1), section(1, 1_000, 12_000, 13_000, 2)], 2);
        assert_eq!((overtaken.overtakes, overtaken.overtake_most_us), (1, 8.0));
    }
}
