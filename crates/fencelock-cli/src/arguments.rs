//! Arguments become values: each is checked once, and the error names the argument and the allowed values.

use std::ffi::OsStr;
use std::time::Duration;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Command, Error};
use fencelock::Name;
#[cfg(feature = "serve")]
use fencelock::NamePattern;
use fencelock::inspect::{Contender, Note};
use fencelock::jobs::Slot;
use tracing::level_filters::LevelFilter;

use crate::times;

/// The longest duration that is taken: about a century, so that no sum of times can overflow.
const LONGEST: Duration = Duration::from_secs(36_500 * 86_400);

/// Parses UTF-8 text into a value.
#[derive(Debug)]
pub(crate) struct Text<T> {
    parse: fn(&str) -> Result<T, String>,
    secret: bool,
}

impl<T> Clone for Text<T> {
    fn clone(&self) -> Self {
        Self { parse: self.parse, secret: self.secret }
    }
}

impl<T> Text<T> {
    const fn new(parse: fn(&str) -> Result<T, String>) -> Self {
        Self { parse, secret: false }
    }
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Text<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, Error> {
        let fault = match value.to_str() {
            None => "it is not UTF-8".to_owned(),
            Some(text) => match (self.parse)(text) {
                Ok(parsed) => return Ok(parsed),
                Err(fault) => fault,
            },
        };
        let arg = arg.map_or_else(|| "an argument".to_owned(), ToString::to_string);
        let value = if self.secret { "the value".to_owned() } else { shown(value) };
        Err(Error::raw(ErrorKind::ValueValidation, format!("invalid value {value} for {arg}: {fault}\n"))
            .with_cmd(command))
    }
}

/// The start of a value, by which a user recognises it.
fn shown(value: &OsStr) -> String {
    const ENOUGH: usize = 100;
    let whole = format!("{value:?}");
    match whole.char_indices().nth(ENOUGH) {
        Some((end, _)) => format!("{}…", &whole[..end]),
        None => whole,
    }
}

pub(crate) fn name() -> Text<Name> {
    Text::new(|text| Name::new(text).map_err(|error| error.to_string()))
}

pub(crate) fn slot() -> Text<Slot> {
    Text::new(|text| text.parse::<Slot>().map_err(|error| error.to_string()))
}

pub(crate) fn named_slot() -> Text<Slot> {
    Text::new(|text| Slot::named(text).map_err(|error| error.to_string()))
}

/// A store URL, which is never repeated in an error.
pub(crate) fn store() -> Text<String> {
    Text {
        parse: |text| if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(text.to_owned()) },
        secret: true,
    }
}

pub(crate) fn purpose() -> Text<String> {
    Text::new(|text| purpose_fault(text).map_or_else(|| Ok(text.to_owned()), Err))
}

/// The address of a leader, as the note on its lock has it.
pub(crate) fn address() -> Text<String> {
    Text::new(|text| match text.len() {
        0 => Err("it is empty".to_owned()),
        bytes if bytes > Note::MAX_BYTES => Err(format!("it has {bytes} bytes, and {} are allowed", Note::MAX_BYTES)),
        _ => Ok(text.to_owned()),
    })
}

pub(crate) fn reason() -> Text<String> {
    Text::new(|text| {
        if text.trim().is_empty() {
            return Err("it is empty".to_owned());
        }
        purpose_fault(text).map_or_else(|| Ok(text.to_owned()), Err)
    })
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
pub(crate) fn listen() -> Text<std::net::SocketAddr> {
    Text::new(|text| {
        let allowed =
            "an address is IP:PORT, as in 127.0.0.1:7433, [::1]:7433 or 0.0.0.0:7433; port 0 takes any free one";
        text.parse().map_err(|_| allowed.to_owned())
    })
}

#[cfg(feature = "serve")]
pub(crate) fn class() -> Text<NamePattern> {
    Text::new(|text| match text {
        "other" => Err("the class of all other locks is called so".to_owned()),
        _ => NamePattern::new(text).map_err(|error| error.to_string()),
    })
}

/// `K/N`: K permits of N.
pub(crate) fn permits() -> Text<Permits> {
    Text::new(permits_of)
}

fn permits_of(text: &str) -> Result<Permits, String> {
    const ALLOWED: &str = "permits are K/N, as in 1/3, with K from 1 to N and N up to 4294967294";
    let parsed = text
        .split_once('/')
        .and_then(|(count, capacity)| Some(Permits { count: count.parse().ok()?, capacity: capacity.parse().ok()? }));
    let fits = |permits: &Permits| (1..=permits.capacity).contains(&permits.count) && permits.capacity < u32::MAX;
    parsed.filter(fits).ok_or_else(|| ALLOWED.to_owned())
}

pub(crate) fn level() -> Text<LevelFilter> {
    Text::new(level_of)
}

pub(crate) fn level_of(text: &str) -> Result<LevelFilter, String> {
    text.parse().map_err(|_| format!("{text:?} is no level: off, error, warn, info, debug or trace"))
}

pub(crate) fn duration() -> Text<Duration> {
    Text::new(|text| match any_duration(text)? {
        Duration::ZERO => Err("it must be longer than nothing".to_owned()),
        duration => Ok(duration),
    })
}

pub(crate) fn duration_or_zero() -> Text<Duration> {
    Text::new(any_duration)
}

fn any_duration(text: &str) -> Result<Duration, String> {
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
        assert_eq!(permits_of("2/3"), Ok(Permits { count: 2, capacity: 3 }));
        assert_eq!(permits_of("1/4294967294").map(|permits| permits.capacity), Ok(u32::MAX - 1));
        for bad in ["", "3", "0/3", "4/3", "1/0", "-1/3", "1/4294967295", "1/3/3", "1.5/3", " 1/3"] {
            assert!(permits_of(bad).unwrap_err().contains("K/N"), "{bad}");
        }
    }

    #[test]
    fn durations_carry_units_and_have_bounds() {
        assert_eq!(any_duration("1h 30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(any_duration("0"), Ok(Duration::ZERO));
        assert_eq!(any_duration("250ms"), Ok(Duration::from_millis(250)));
        for bad in ["", "5", "-5s", "101years", "99999999999999999999s", "soon"] {
            let fault = any_duration(bad).unwrap_err();
            assert!(fault.contains("a duration is a number with its unit"), "{bad}: {fault}");
        }
        assert!(any_duration("5").unwrap_err().starts_with("it has no unit: 5s are seconds"));
    }
}
