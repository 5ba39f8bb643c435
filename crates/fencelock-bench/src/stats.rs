//! Percentiles and medians.

use anyhow::{Result, bail, ensure};

use crate::protocol::Section;

/// The p50 and the p99 of a set of times, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Times {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

impl Times {
    /// Computes both from times in any order.
    pub(crate) fn of(mut nanos: Vec<u64>) -> Result<Self> {
        ensure!(!nanos.is_empty(), "nothing was measured");
        nanos.sort_unstable();
        Ok(Self { p50: percentile(&nanos, 50), p99: percentile(&nanos, 99) })
    }
}

/// The value that `percent` of the sorted `values` do not exceed.
fn percentile(sorted: &[u64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted[rank - 1] as f64
}

/// The median: the middle value, or the mean of the two middle values; NaN without values.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

/// The time of each hand-over: from just before a release until the next waiter has the lock. Sorts the sections by
/// time; fails when two of them overlap.
pub(crate) fn hand_overs(sections: &mut [Section]) -> Result<Vec<u64>> {
    sections.sort_unstable_by_key(|section| section.acquired);
    let mut times = Vec::with_capacity(sections.len());
    for pair in sections.windows(2) {
        let Some(time) = pair[1].acquired.checked_sub(pair[0].releasing) else {
            bail!("two held the lock at once: {:?} and {:?}", pair[0], pair[1]);
        };
        times.push(time);
    }
    Ok(times)
}

/// How many of the neighbours in `sections`, which are sorted by time, came in the order of their numbers: from 0 to 1,
/// and 0.5 by pure chance.
pub(crate) fn in_order(sections: &[Section]) -> f64 {
    let pairs = sections.len().saturating_sub(1).max(1);
    let kept = sections.windows(2).filter(|pair| pair[0].who < pair[1].who).count();
    kept as f64 / pairs as f64
}

/// How often the least served and the most served of `waiters` contenders had the lock.
pub(crate) fn least_and_most(sections: &[Section], waiters: u64) -> (u64, u64) {
    let mut served = vec![0u64; usize::try_from(waiters).unwrap_or(usize::MAX)];
    for section in sections {
        if let Some(times) = usize::try_from(section.who).ok().and_then(|who| served.get_mut(who)) {
            *times += 1;
        }
    }
    (served.iter().copied().min().unwrap_or(0), served.iter().copied().max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(who: u64, acquired: u64, releasing: u64) -> Section {
        Section { who, acquired, releasing }
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let times = Times::of((1..=200).rev().collect()).unwrap();
        assert_eq!((times.p50, times.p99), (100.0, 198.0));
        let one = Times::of(vec![7]).unwrap();
        assert_eq!((one.p50, one.p99), (7.0, 7.0));
        assert!(Times::of(Vec::new()).is_err());
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!((median([3.0, 1.0, 2.0]), median([1.0, 2.0])), (2.0, 1.5));
    }

    #[test]
    fn a_hand_over_runs_from_a_release_to_the_next_acquisition() {
        let mut sections = [section(2, 15, 16), section(1, 3, 10), section(0, 20, 20)];
        assert_eq!(hand_overs(&mut sections).unwrap(), [5, 4]);
        assert_eq!(in_order(&sections), 0.5);
        assert_eq!(least_and_most(&sections, 4), (0, 1));
    }

    #[test]
    fn two_holders_at_once_are_noticed() {
        assert!(hand_overs(&mut [section(0, 1, 10), section(1, 9, 12)]).is_err());
    }
}
