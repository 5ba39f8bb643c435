//! Numbers from the clock, which rise without a record of idle names. `vectors/clock_numbers.tsv` pins them for other languages.

use std::time::{SystemTime, UNIX_EPOCH};

/// Numbers per second: the clock is read in 1/128 ms.
pub(crate) const PER_SECOND: u64 = 128_000;

/// The wall clock as a number, rounded down; 0 before 1970.
pub(crate) fn clock_number(wall: SystemTime) -> u64 {
    let since = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs().saturating_mul(PER_SECOND).saturating_add(u64::from(since.subsec_nanos()) * 16 / 125_000)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn numbers_of_the_clock_are_those_of_the_vectors() {
        let vectors = include_str!("../../vectors/clock_numbers.tsv");
        for row in vectors.lines().filter(|line| !line.starts_with('#')) {
            let (time, number) = row.split_once('\t').unwrap();
            let (seconds, micros) = time.split_once('.').unwrap();
            let since = Duration::from_secs(seconds.parse().unwrap()) + Duration::from_micros(micros.parse().unwrap());
            assert_eq!(clock_number(UNIX_EPOCH + since), number.parse::<u64>().unwrap(), "{time}");
        }
        assert_eq!(clock_number(UNIX_EPOCH - Duration::from_secs(1)), 0);
    }
}
