//! Arguments become values: each is checked once, and the error names the argument and the allowed values.

use std::time::Duration;

use fencelock::Name;
#[cfg(feature = "serve")]
use fencelock::NamePattern;
use fencelock::inspect::{Contender, Note};
use fencelock::jobs::Slot;
use tracing::level_filters::LevelFilter;

use crate::times;

/// The longest accepted duration: about a century, so that no sum of times can overflow.
const LONGEST: Duration = Duration::from_secs(36_500 * 86_400);

pub(crate) fn name(text: &str) -> Result<Name, String> {
    Name::new(text).map_err(|error| error.to_string())
}

pub(crate) fn slot(text: &str) -> Result<Slot, String> {
    text.parse::<Slot>().map_err(|error| error.to_string())
}

pub(crate) fn named_slot(text: &str) -> Result<Slot, String> {
    Slot::named(text).map_err(|error| error.to_string())
}

/// A store URL. An error would repeat its value, so only an empty value is refused here.
pub(crate) fn store(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(text.to_owned()) }
}

pub(crate) fn purpose(text: &str) -> Result<String, String> {
    purpose_fault(text).map_or_else(|| Ok(text.to_owned()), Err)
}

/// The address of a leader, as the note on its lock has it.
pub(crate) fn address(text: &str) -> Result<String, String> {
    match text.len() {
        0 => Err("it is empty".to_owned()),
        bytes if bytes > Note::MAX_BYTES => Err(format!("it has {bytes} bytes, and {} are allowed", Note::MAX_BYTES)),
        _ => Ok(text.to_owned()),
    }
}

pub(crate) fn reason(text: &str) -> Result<String, String> {
    if text.trim().is_empty() { Err("it is empty".to_owned()) } else { purpose(text) }
}

/// The fault of a purpose or a reason, if any.
pub(crate) fn purpose_fault(text: &str) -> Option<String> {
    if text.len() > Contender::MAX_PURPOSE {
        return Some(format!("it has {} bytes, and {} are allowed", text.len(), Contender::MAX_PURPOSE));
    }
    text.contains(char::is_control).then(|| "it holds control characters".to_owned())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Permits {
    pub(crate) count: u32,
    pub(crate) capacity: u32,
}

#[cfg(feature = "serve")]
pub(crate) fn listen(text: &str) -> Result<std::net::SocketAddr, &'static str> {
    text.parse().map_err(
        |_| "an address is IP:PORT, as in 127.0.0.1:7433, [::1]:7433 or 0.0.0.0:7433; port 0 takes any free one",
    )
}

#[cfg(feature = "serve")]
pub(crate) fn class(text: &str) -> Result<NamePattern, String> {
    match text {
        "other" => Err("the class of all other locks is called so".to_owned()),
        _ => NamePattern::new(text).map_err(|error| error.to_string()),
    }
}

/// `K/N`: K permits of N.
pub(crate) fn permits(text: &str) -> Result<Permits, String> {
    const ALLOWED: &str = "permits are K/N, as in 1/3, with K from 1 to N and N up to 4294967294";
    let parsed = text
        .split_once('/')
        .and_then(|(count, capacity)| Some(Permits { count: count.parse().ok()?, capacity: capacity.parse().ok()? }));
    let fits = |permits: &Permits| (1..=permits.capacity).contains(&permits.count) && permits.capacity < u32::MAX;
    parsed.filter(fits).ok_or_else(|| ALLOWED.to_owned())
}

pub(crate) fn level(text: &str) -> Result<LevelFilter, String> {
    text.parse().map_err(|_| format!("{text:?} is no level: off, error, warn, info, debug or trace"))
}

pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    match duration_or_zero(text)? {
        Duration::ZERO => Err("it must be longer than nothing".to_owned()),
        duration => Ok(duration),
    }
}

pub(crate) fn duration_or_zero(text: &str) -> Result<Duration, String> {
    const ALLOWED: &str = "a duration is a number with its unit, as in 500ms, 30s, 5m, 1h 30m, up to 100 years";
    if text.trim_start().starts_with('-') {
        return Err(format!("it is negative; {ALLOWED}"));
    }
    if text.trim() == "0" {
        return Ok(Duration::ZERO);
    }
    if let Ok(number) = text.trim().parse::<u64>() {
        return Err(format!(
            "it has no unit: {number}s are seconds, {number}ms milliseconds, {number}m minutes; {ALLOWED}"
        ));
    }
    let duration = times::duration_of(text).map_err(|error| format!("{error}; {ALLOWED}"))?;
    if duration > LONGEST { Err(format!("it is too long; {ALLOWED}")) } else { Ok(duration) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_some_of_all() {
        assert_eq!(permits("2/3"), Ok(Permits { count: 2, capacity: 3 }));
        assert_eq!(permits("1/4294967294").map(|permits| permits.capacity), Ok(u32::MAX - 1));
        for bad in ["", "3", "0/3", "4/3", "1/0", "-1/3", "1/4294967295", "1/3/3", "1.5/3", " 1/3"] {
            assert!(permits(bad).unwrap_err().contains("K/N"), "{bad}");
        }
    }

    #[test]
    fn durations_carry_units_and_have_bounds() {
        assert_eq!(duration_or_zero("1h 30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration_or_zero("0"), Ok(Duration::ZERO));
        assert_eq!(duration_or_zero("250ms"), Ok(Duration::from_millis(250)));
        for bad in ["", "5", "-5s", "101years", "99999999999999999999s", "soon"] {
            let fault = duration_or_zero(bad).unwrap_err();
            assert!(fault.contains("a duration is a number with its unit"), "{bad}: {fault}");
        }
        assert!(duration_or_zero("5").unwrap_err().starts_with("it has no unit: 5s are seconds"));
    }
}
