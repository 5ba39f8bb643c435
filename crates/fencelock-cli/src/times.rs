//! Times and durations, as users write and read them.

use std::time::{Duration, SystemTime};

use jiff::{SignedDuration, Span, SpanRelativeTo, SpanRound, Timestamp, Unit};

/// A month and a year in a duration, in seconds: 30.44 and 365.25 days.
const MONTH: u64 = 2_630_016;
const YEAR: u64 = 31_557_600;

/// Reads a number with its unit, or several with falling units: 500ms, 1h 30m, 2days.
pub(crate) fn duration_of(text: &str) -> Result<Duration, String> {
    let span: Span = text.parse().map_err(|error: jiff::Error| error.to_string())?;
    if span.is_negative() {
        return Err("it is negative".to_owned());
    }
    let average =
        u64::from(span.get_years().unsigned_abs()) * YEAR + u64::from(span.get_months().unsigned_abs()) * MONTH;
    let rest = span.years(0).months(0).to_duration(SpanRelativeTo::days_are_24_hours()).and_then(Duration::try_from);
    rest.map(|rest| rest + Duration::from_secs(average)).map_err(|error| error.to_string())
}

/// Largest units first: 1d 2h 3m 4s.
pub(crate) fn shown(duration: Duration) -> String {
    let largest = SpanRound::new().largest(Unit::Day).days_are_24_hours();
    let span = SignedDuration::try_from(duration).and_then(Span::try_from).and_then(|span| span.round(largest));
    span.map_or_else(|_| format!("{duration:?}"), |span| format!("{span:#}"))
}

/// UTC to the second: 2026-11-26T20:12:08Z.
pub(crate) fn to_second(time: SystemTime) -> String {
    printed(time, 0)
}

/// UTC to the millisecond: 2026-11-26T20:12:08.123Z.
pub(crate) fn to_millisecond(time: SystemTime) -> String {
    printed(time, 3)
}

/// RFC 3339. A lock has no time outside of the years -9999 to 9999.
fn printed(time: SystemTime, digits: usize) -> String {
    Timestamp::try_from(time).map_or_else(|_| format!("{time:?}"), |time| format!("{time:.digits$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_read_and_means_what_it_meant() {
        for (text, seconds) in [
            ("1s", 1),
            ("2sec", 2),
            ("3 seconds", 3),
            ("1m", 60),
            ("2min 5s", 125),
            ("1h30m", 5400),
            ("1h 30m", 5400),
            ("2hr", 7200),
            ("1day", 86_400),
            ("3d 1h", 262_800),
            ("2weeks", 1_209_600),
            ("1month", MONTH),
            ("1year 2months", YEAR + 2 * MONTH),
            ("100years", 100 * YEAR),
        ] {
            assert_eq!(duration_of(text).ok(), Some(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(duration_of("1500ms").unwrap(), Duration::from_millis(1500));
        assert_eq!(duration_of("7us 9ns").unwrap(), Duration::from_nanos(7009));
        assert!(duration_of("5s ago").is_err() && duration_of("-1month").is_err());
    }

    #[test]
    fn times_and_durations_are_shown_with_the_digits_that_are_asked_for() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_987);
        assert_eq!(to_second(time), "2023-11-14T22:13:20Z");
        assert_eq!(to_millisecond(time), "2023-11-14T22:13:20.987Z");
        assert_eq!(to_millisecond(SystemTime::UNIX_EPOCH), "1970-01-01T00:00:00.000Z");
        assert_eq!(shown(Duration::ZERO), "0s");
        assert_eq!(shown(Duration::from_millis(93_784_005)), "1d 2h 3m 4s 5ms");
        assert_eq!(shown(Duration::from_secs(45 * 86_400)), "45d");
    }
}
