//! Slots: the stretches of time in each of which a job runs once.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;
use jiff::{RoundMode, Timestamp, Unit, ZonedRound};

use crate::error::{Error, ErrorKind, Result};

/// The schedule of a [`Job`](super::Job): consecutive periods, in each of which it runs once, by the store's clock.
///
/// | made by | as text | slots |
/// |---|---|---|
/// | [`Slot::every`] | `90s`, `5m`, `6h`, `1d`, `1w` | that long each, counted from 1970 in UTC |
/// | [`Slot::hourly`] | `hourly` | hours of UTC |
/// | [`Slot::daily`] | `daily`, `daily@Europe/Berlin` | days of a zone, of 23 to 25 hours; `daily` alone is UTC |
/// | [`Slot::cron`] | `0 3 * * 1-5`, `0 3 * * 1-5@Europe/Berlin` | from each time that the five fields of cron name until the next one |
/// | [`Slot::named`] | | a single slot, with a text of your own |
///
/// A time of cron that a clock skips when summer begins comes at the end of the gap; a time that occurs twice when summer ends comes once,
/// and every hour or minute comes at each occurrence.
///
/// Zones are the machine's, or this release's if the machine has none: hosts whose rules for a zone differ see its days begin at different
/// moments.
///
/// ```
/// use fencelock::jobs::Slot;
///
/// let slot: Slot = "30 2 * * *@Europe/Berlin".parse()?;
/// assert_eq!(slot, Slot::cron("30 2 * * *", "Europe/Berlin")?);
/// assert_eq!(Slot::daily("UTC")?.to_string(), "daily@UTC");
/// assert!("sometimes".parse::<Slot>().is_err());
/// # Ok::<(), fencelock::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Slot {
    kind: SlotKind,
    is_tolerant: bool,
}

#[derive(Debug, Clone)]
enum SlotKind {
    Every(Duration),
    Daily(TimeZone),
    Cron(Arc<Cron>, TimeZone),
    Named(Arc<str>),
}

/// A slot.
pub(super) struct Period {
    /// The slot's text, unique in the schedule.
    pub(super) text: String,
    /// When the slot begins; `None` for a named slot.
    pub(super) start: Option<SystemTime>,
}

impl Slot {
    /// The longest text of a named slot, in bytes.
    pub const MAX_TEXT: usize = 128;
    /// The most slots that are counted as missed: there may be more then.
    pub const MOST_MISSED: u64 = 1000;
    /// How early [`Slot::tolerant`] lets a slot begin at most.
    const EARLY: Duration = Duration::from_secs(30);

    /// Slots of `length`, whole seconds from 1 s to 366 days, counted from the beginning of 1970 in UTC.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for another length.
    pub fn every(length: Duration) -> Result<Self> {
        const LONGEST: Duration = Duration::from_secs(366 * 86_400);
        if length.subsec_nanos() != 0 || length.is_zero() || length > LONGEST {
            return Err(wrong("a slot is whole seconds long, from 1 s to 366 days".to_owned()));
        }
        Ok(Self::of(SlotKind::Every(length)))
    }

    /// The hours of UTC.
    #[must_use]
    pub fn hourly() -> Self {
        Self::of(SlotKind::Every(Duration::from_secs(3600)))
    }

    /// The days of `zone`, as in `Europe/Berlin` or `UTC`, from midnight there, or from the end of the gap where clocks skip it.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a zone that is not known.
    pub fn daily(zone: &str) -> Result<Self> {
        Ok(Self::of(SlotKind::Daily(zone_of(zone)?)))
    }

    /// Slots by cron: from each time that `text` names until the next such time, by the clocks of `zone`: five fields of cron, minute,
    /// hour, day of the month, month and day of the week.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for another text, for fields that name no time at all, and for an unknown zone.
    pub fn cron(text: &str, zone: &str) -> Result<Self> {
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let unknown = |error| wrong(format!("{text:?} is no text of cron with five fields: {error}"));
        let slot = Self::of(SlotKind::Cron(Arc::new(parser.parse(text).map_err(unknown)?), zone_of(zone)?));
        // An impossible time is found now, not at the first run.
        slot.at(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000))?;
        Ok(slot)
    }

    /// A single slot with this `text`: 1 to 128 bytes without control characters, such as the date of a report.
    ///
    /// A job that runs for several named slots in turn remembers the latest of them: at least 10 of the longest texts, or a hundred
    /// dates. A slot that returns after more than that many other slots runs again.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for another text.
    pub fn named(text: &str) -> Result<Self> {
        if text.is_empty() || text.len() > Self::MAX_TEXT || text.contains(char::is_control) {
            return Err(wrong("a slot is called by 1 to 128 bytes without control characters".to_owned()));
        }
        Ok(Self::of(SlotKind::Named(text.into())))
    }

    /// Counts a run that begins up to a tenth of a slot early, 30 s at most, for the coming slot. For programs that another clock starts,
    /// such as cron's, which may be ahead of the store's clock.
    #[must_use]
    pub fn tolerant(self) -> Self {
        Self { is_tolerant: true, ..self }
    }

    const fn of(kind: SlotKind) -> Self {
        Self { kind, is_tolerant: false }
    }

    /// The schedule as text, from which it can be parsed; `None` for a named slot.
    pub(super) fn schedule(&self) -> Option<String> {
        (!self.is_named()).then(|| self.to_string())
    }

    pub(super) fn is_named(&self) -> bool {
        matches!(self.kind, SlotKind::Named(_))
    }

    /// The slot that is at `now`, by the store's clock.
    pub(super) fn at(&self, now: SystemTime) -> Result<Period> {
        let period = self.exactly_at(now)?;
        let (Some(start), true) = (period.start, self.is_tolerant) else { return Ok(period) };
        let next = self.after(start)?;
        let length = next.duration_since(start).unwrap_or_default();
        let left = next.duration_since(now).unwrap_or_default();
        if left <= (length / 10).min(Self::EARLY) { self.exactly_at(next) } else { Ok(period) }
    }

    fn exactly_at(&self, now: SystemTime) -> Result<Period> {
        let (text, start) = match &self.kind {
            SlotKind::Named(text) => return Ok(Period { text: text.to_string(), start: None }),
            SlotKind::Every(length) => {
                let length = i64::try_from(length.as_secs()).unwrap_or(i64::MAX);
                let second = timestamp(now)?.as_second();
                let start = Timestamp::from_second(second - second.rem_euclid(length)).map_err(no_time)?;
                (start.to_string(), start)
            }
            SlotKind::Daily(zone) => {
                let start = timestamp(now)?.to_zoned(zone.clone()).start_of_day().map_err(no_time)?;
                (start.date().to_string(), start.timestamp())
            }
            SlotKind::Cron(cron, zone) => {
                let down = ZonedRound::new().smallest(Unit::Second).mode(RoundMode::Floor);
                let now = timestamp(now)?.to_zoned(zone.clone()).round(down).map_err(no_time)?;
                let start = cron.find_previous_occurrence(&now, true).map_err(never)?;
                // The text has the distance from UTC: a local time that occurs twice has two texts.
                (start.timestamp().display_with_offset(start.offset()).to_string(), start.timestamp())
            }
        };
        Ok(Period { text, start: Some(start.into()) })
    }

    /// The beginning of the first slot after `moment`.
    fn after(&self, moment: SystemTime) -> Result<SystemTime> {
        match &self.kind {
            SlotKind::Named(_) => Err(wrong("a slot that was named has no next one".to_owned())),
            SlotKind::Every(length) => {
                let start = self.exactly_at(moment)?.start.unwrap_or(moment);
                start.checked_add(*length).ok_or_else(|| no_time("the end of time"))
            }
            SlotKind::Daily(zone) => {
                let day = timestamp(moment)?.to_zoned(zone.clone()).date().tomorrow().map_err(no_time)?;
                let midnight = zone.to_zoned(day.at(0, 0, 0, 0)).map_err(no_time)?;
                Ok(midnight.start_of_day().map_err(no_time)?.timestamp().into())
            }
            SlotKind::Cron(cron, zone) => {
                let moment = timestamp(moment)?.to_zoned(zone.clone());
                Ok(cron.find_next_occurrence(&moment, false).map_err(never)?.timestamp().into())
            }
        }
    }

    /// How many slots begin after `past` and before `end`; [`Slot::MOST_MISSED`] at most.
    pub(super) fn between(&self, past: SystemTime, end: SystemTime) -> Result<u64> {
        let (mut count, mut at) = (0, past);
        while count < Self::MOST_MISSED {
            at = self.after(at)?;
            if at >= end {
                break;
            }
            count += 1;
        }
        Ok(count)
    }
}

/// Slots with the same source are equal.
impl PartialEq for Slot {
    fn eq(&self, other: &Self) -> bool {
        let same = (self.is_named(), self.is_tolerant) == (other.is_named(), other.is_tolerant);
        same && self.to_string() == other.to_string()
    }
}

impl Eq for Slot {}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name_of = |zone: &TimeZone| zone.iana_name().unwrap_or("UTC").to_owned();
        match &self.kind {
            SlotKind::Every(length) => {
                let seconds = length.as_secs();
                let (each, unit) = UNITS.iter().find(|(each, _)| seconds % each == 0).unwrap_or(&(1, "s"));
                write!(f, "{}{unit}", seconds / each)
            }
            SlotKind::Daily(zone) => write!(f, "daily@{}", name_of(zone)),
            SlotKind::Cron(cron, zone) => write!(f, "{}@{}", cron.as_str(), name_of(zone)),
            SlotKind::Named(text) => f.write_str(text),
        }
    }
}

/// The text forms of the [table](Slot).
impl FromStr for Slot {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim();
        let (schedule, zone) = text.rsplit_once('@').map_or((text, "UTC"), |(schedule, zone)| (schedule.trim(), zone));
        let has_zone = schedule.len() < text.len();
        match schedule {
            "daily" => Self::daily(zone),
            "hourly" if !has_zone => Ok(Self::hourly()),
            schedule if schedule.contains(' ') => Self::cron(schedule, zone),
            schedule if !has_zone && schedule.starts_with(|c: char| c.is_ascii_digit()) => {
                let digits = schedule.trim_end_matches(|c: char| c.is_ascii_alphabetic());
                let unit = UNITS.iter().find(|(_, unit)| *unit == &schedule[digits.len()..]);
                let seconds = unit.and_then(|(each, _)| digits.parse::<u64>().ok()?.checked_mul(*each));
                Self::every(Duration::from_secs(seconds.ok_or_else(|| unknown(text))?))
            }
            _ => Err(unknown(text)),
        }
    }
}

/// The units of a length, the longest first.
const UNITS: [(u64, &str); 5] = [(604_800, "w"), (86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];

fn unknown(text: &str) -> Error {
    wrong(format!(
        "{text:?} is no slot; there are 90s, 5m, 6h, 1d, 1w, hourly, daily, daily@Europe/Berlin, and texts of cron as in \"0 3 * * 1-5\" or \"0 3 * * 1-5@Europe/Berlin\""
    ))
}

fn wrong(message: String) -> Error {
    Error::new(ErrorKind::Config, "slot", message)
}

fn no_time(error: impl fmt::Display) -> Error {
    wrong(format!("the store's time is none of the calendar: {error}"))
}

fn never(error: impl fmt::Display) -> Error {
    wrong(format!("this text of cron names no time: {error}"))
}

fn zone_of(zone: &str) -> Result<TimeZone> {
    let unknown = || wrong(format!("the zone {zone:?} is not known everywhere; zones are called as in Europe/Berlin"));
    TimeZone::get(zone).ok().filter(|_| !zone.eq_ignore_ascii_case("localtime")).ok_or_else(unknown)
}

pub(super) fn timestamp(time: SystemTime) -> Result<Timestamp> {
    Timestamp::try_from(time).map_err(no_time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> SystemTime {
        text.parse::<Timestamp>().unwrap().into()
    }

    fn slot(text: &str) -> Slot {
        text.parse().unwrap()
    }

    /// The slots that are at `moments`: their texts, and when they begin.
    fn at(slot: &Slot, moments: &[&str]) -> Vec<(String, String)> {
        let of = |moment: &&str| {
            let period = slot.at(time(moment)).unwrap();
            (period.text, Timestamp::try_from(period.start.unwrap()).unwrap().to_string())
        };
        moments.iter().map(of).collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(text, start)| ((*text).to_owned(), (*start).to_owned())).collect()
    }

    #[test]
    fn a_day_begins_at_its_own_midnight_and_may_have_23_or_25_hours() {
        let berlin = slot("daily@Europe/Berlin");
        let spring = ["2026-03-28T22:59:59Z", "2026-03-28T23:00:00Z", "2026-03-29T21:59:59Z", "2026-03-29T22:00:00Z"];
        let days = [
            ("2026-03-28", "2026-03-27T23:00:00Z"),
            ("2026-03-29", "2026-03-28T23:00:00Z"),
            ("2026-03-29", "2026-03-28T23:00:00Z"),
            ("2026-03-30", "2026-03-29T22:00:00Z"),
        ];
        assert_eq!(at(&berlin, &spring), pairs(&days));
        let autumn = ["2026-10-24T22:00:00Z", "2026-10-25T22:59:59Z", "2026-10-25T23:00:00Z"];
        let days = [
            ("2026-10-25", "2026-10-24T22:00:00Z"),
            ("2026-10-25", "2026-10-24T22:00:00Z"),
            ("2026-10-26", "2026-10-25T23:00:00Z"),
        ];
        assert_eq!(at(&berlin, &autumn), pairs(&days));
        // A zone whose clocks skip midnight.
        let beirut = ["2026-03-28T21:59:59Z", "2026-03-28T22:00:00Z"];
        let days = [("2026-03-28", "2026-03-27T22:00:00Z"), ("2026-03-29", "2026-03-28T22:00:00Z")];
        assert_eq!(at(&slot("daily@Asia/Beirut"), &beirut), pairs(&days));
    }

    #[test]
    fn a_time_that_clocks_skip_comes_at_the_end_of_the_gap_and_one_that_is_there_twice_comes_once() {
        let nightly = slot("30 2 * * *@Europe/Berlin");
        let spring = ["2026-03-29T00:59:59Z", "2026-03-29T01:00:00Z", "2026-03-30T00:29:59Z", "2026-03-30T00:30:00Z"];
        let slots = [
            ("2026-03-28T02:30:00+01:00", "2026-03-28T01:30:00Z"),
            ("2026-03-29T03:00:00+02:00", "2026-03-29T01:00:00Z"),
            ("2026-03-29T03:00:00+02:00", "2026-03-29T01:00:00Z"),
            ("2026-03-30T02:30:00+02:00", "2026-03-30T00:30:00Z"),
        ];
        assert_eq!(at(&nightly, &spring), pairs(&slots));
        assert_eq!(nightly.between(time("2026-03-28T01:30:00Z"), time("2026-03-30T00:30:00Z")).unwrap(), 1);
        let autumn = ["2026-10-25T00:29:59Z", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:29:59Z"];
        let slots = [
            ("2026-10-24T02:30:00+02:00", "2026-10-24T00:30:00Z"),
            ("2026-10-25T02:30:00+02:00", "2026-10-25T00:30:00Z"),
            ("2026-10-25T02:30:00+02:00", "2026-10-25T00:30:00Z"),
            ("2026-10-25T02:30:00+02:00", "2026-10-25T00:30:00Z"),
        ];
        assert_eq!(at(&nightly, &autumn), pairs(&slots));
        assert_eq!(nightly.between(time("2026-10-24T00:30:00Z"), time("2026-10-26T01:30:00Z")).unwrap(), 1);
    }

    #[test]
    fn every_hour_comes_as_often_as_the_clocks_show_it_and_each_has_a_text_of_its_own() {
        let hours = slot("0 * * * *@Europe/Berlin");
        let autumn = ["2026-10-24T23:59:59Z", "2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"];
        let slots = [
            ("2026-10-25T01:00:00+02:00", "2026-10-24T23:00:00Z"),
            ("2026-10-25T02:00:00+02:00", "2026-10-25T00:00:00Z"),
            ("2026-10-25T02:00:00+01:00", "2026-10-25T01:00:00Z"),
            ("2026-10-25T03:00:00+01:00", "2026-10-25T02:00:00Z"),
        ];
        assert_eq!(at(&hours, &autumn), pairs(&slots));
        assert_eq!(hours.between(time("2026-10-24T22:00:00Z"), time("2026-10-25T02:00:00Z")).unwrap(), 3);
        assert_eq!(hours.between(time("2026-03-29T00:00:00Z"), time("2026-03-29T02:00:00Z")).unwrap(), 1);
    }

    #[test]
    fn slots_of_a_length_are_counted_from_1970_and_those_that_were_missed_up_to_a_limit() {
        let slots =
            [("2026-11-25T14:00:00Z", "2026-11-25T14:00:00Z"), ("2026-11-25T14:05:00Z", "2026-11-25T14:05:00Z")];
        assert_eq!(at(&slot("5m"), &["2026-11-25T14:04:59.999Z", "2026-11-25T14:05:00Z"]), pairs(&slots));
        assert_eq!(at(&slot("hourly"), &["2026-11-25T14:04:59Z"]), pairs(&slots[..1]));
        let week = [("2026-11-19T00:00:00Z", "2026-11-19T00:00:00Z")];
        assert_eq!(at(&slot("1w"), &["2026-11-25T14:04:59Z"]), pairs(&week));
        let (past, now) = (time("2026-11-25T14:00:00Z"), time("2026-11-25T15:00:00Z"));
        assert_eq!((slot("5m").between(past, now).unwrap(), slot("1s").between(past, now).unwrap()), (11, 1000));
        assert_eq!(slot("1h").between(past, now).unwrap(), 0);
    }

    #[test]
    fn a_run_that_is_a_little_early_gets_the_next_slot() {
        let nightly = slot("0 3 * * *").tolerant();
        let moments = ["2026-11-25T02:59:29Z", "2026-11-25T02:59:31Z", "2026-11-25T03:00:00Z"];
        let slots = [
            ("2026-11-24T03:00:00+00:00", "2026-11-24T03:00:00Z"),
            ("2026-11-25T03:00:00+00:00", "2026-11-25T03:00:00Z"),
            ("2026-11-25T03:00:00+00:00", "2026-11-25T03:00:00Z"),
        ];
        assert_eq!(at(&nightly, &moments), pairs(&slots));
        // A tenth of a minute is six seconds.
        let minutes = at(&slot("1m").tolerant(), &["2026-11-25T02:59:53Z", "2026-11-25T02:59:55Z"]);
        assert_eq!([&*minutes[0].0, &*minutes[1].0], ["2026-11-25T02:59:00Z", "2026-11-25T03:00:00Z"]);
    }

    #[test]
    fn a_schedule_is_the_text_that_it_is_parsed_from() {
        for (text, shown) in [
            ("90s", "90s"),
            ("60m", "1h"),
            (" 1d ", "1d"),
            ("hourly", "1h"),
            ("daily", "daily@UTC"),
            ("daily@europe/berlin", "daily@Europe/Berlin"),
            ("*/5 * * * *", "*/5 * * * *@UTC"),
            ("0 3 * * 1-5 @Europe/Berlin", "0 3 * * 1-5@Europe/Berlin"),
        ] {
            assert_eq!((slot(text).to_string(), slot(shown)), (shown.to_owned(), slot(text)), "{text}");
        }
        assert_ne!(slot("1d"), Slot::named("1d").unwrap());
    }

    #[test]
    fn an_unusable_slot_is_refused_with_the_allowed_ones() {
        for text in
            ["", "1", "s", "1y", "0s", "400d", "1h30m", "-1h", "hourly@UTC", "1d@UTC", "@daily", "daily@", "weekly"]
        {
            assert_eq!(text.parse::<Slot>().unwrap_err().kind(), ErrorKind::Config, "{text}");
        }
        for text in ["* * * *", "* * * * * *", "61 * * * *", "0 0 30 2 *", "daily@Europe/Atlantis", "daily@localtime"] {
            assert_eq!(text.parse::<Slot>().unwrap_err().kind(), ErrorKind::Config, "{text}");
        }
        assert!("sometimes".parse::<Slot>().unwrap_err().to_string().contains("daily@Europe/Berlin"));
        for text in ["", "a\nb", &"x".repeat(129)] {
            assert_eq!(Slot::named(text).unwrap_err().kind(), ErrorKind::Config);
        }
        assert!(Slot::every(Duration::from_millis(1500)).is_err());
    }
}
