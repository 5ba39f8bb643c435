//! The times of a client: a table of them, and the relations between them.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result, rounded};
use crate::kit::pause::{LONGEST_OF_HOLDERS, pause};
use crate::store::{Grant, Pace, StoreUrl};
use crate::time::Moment;

/// The requested times; `None` means the default, which depends on the ttl.
#[derive(Debug, Clone, Default)]
pub(crate) struct TimingOptions {
    pub(crate) ttl: Option<Duration>,
    pub(crate) renew_interval: Option<Duration>,
    pub(crate) margin: Option<Duration>,
    pub(crate) request_deadline: Option<Duration>,
}

/// The time settings of a client.
///
/// | value | default | allowed |
/// |---|---|---|
/// | ttl | 10 s | 100 ms to 24 h; ZooKeeper: at least 4 ticks |
/// | renew interval | ttl / 4; ZooKeeper: ttl / 6; `file:`: 2 s at most, even if an option says more | at least 1 ms; twice the interval plus the margin fit in the ttl; ZooKeeper: three times (the third one ttl / 6 at least, in which another server is found), plus ttl / 4 |
/// | margin | the larger of ttl / 10 and 500 ms; ZooKeeper: at least one tick too | under the ttl, see above |
/// | request deadline | ttl / 3 | 1 ms to ttl |
///
/// A store's further demands are its [`Pace`]; a tick of ZooKeeper is 2 s unless the URL says otherwise.
///
/// A session is suspect when a renewal stays unanswered for one renew interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timing {
    /// The time that places outlive their client's last confirmed renewal.
    pub ttl: Duration,
    /// The time between two renewals of the session.
    pub renew_interval: Duration,
    /// The safety margin: how long before the ttl runs out a guard stops being valid.
    pub margin: Duration,
    /// The longest time of a single request to the store.
    pub request_deadline: Duration,
}

impl Timing {
    /// The end of the validity of a session with this ttl, which was confirmed at `confirmed`.
    pub(super) fn safe_until(&self, confirmed: Moment, ttl: Option<Duration>) -> Moment {
        ttl.map_or(Moment::NEVER, |ttl| confirmed.after(ttl).before(self.margin))
    }

    /// The end of a grant's own validity.
    pub(super) fn own_end(&self, grant: Grant) -> Moment {
        grant.valid_until.map_or(Moment::NEVER, |end| end.before(self.margin))
    }
}

const TTL: Duration = Duration::from_secs(10);
const TTL_MOST: Duration = Duration::from_secs(24 * 3600);
const SHORTEST: Duration = Duration::from_millis(1);

/// The URL options that every store takes.
pub(crate) const URL_OPTIONS: &[&str] = &["ttl_ms", "renew_interval_ms", "margin_ms", "request_deadline_ms", "owner"];

impl TimingOptions {
    /// Takes the times out of `url` where they were not given explicitly.
    pub(crate) fn fill_from(&mut self, url: &mut StoreUrl) -> Result<()> {
        let places = [&mut self.ttl, &mut self.renew_interval, &mut self.margin, &mut self.request_deadline];
        for (place, option) in places.into_iter().zip(URL_OPTIONS) {
            let given = url.take_ms(option)?;
            *place = place.or(given);
        }
        Ok(())
    }

    /// Fills in the defaults for a store of this pace, and checks the relations.
    pub(crate) fn resolve(&self, pace: &Pace) -> Result<Timing> {
        let ttl = self.ttl.unwrap_or(TTL);
        let renew_interval = self.renew_interval.unwrap_or(ttl / pace.renewals_per_ttl.max(3));
        let timing = Timing {
            ttl,
            renew_interval: renew_interval.min(pace.longest_interval.unwrap_or(Duration::MAX)),
            margin: self.margin.unwrap_or((ttl / 10).max(pace.least_margin)),
            request_deadline: self.request_deadline.unwrap_or(ttl / 3),
        };
        match fault(&timing, pace) {
            None => Ok(timing),
            Some(fault) => Err(Error::new(ErrorKind::Config, "timing", fault)
                .with("ttl allowed", format!("{} to 24h", rounded(pace.least_ttl)))
                .with("ttl", rounded(ttl))
                .with("renew_interval", rounded(timing.renew_interval))
                .with("margin", rounded(timing.margin))
                .with("request_deadline", rounded(timing.request_deadline))),
        }
    }
}

fn fault(timing: &Timing, pace: &Pace) -> Option<&'static str> {
    if !(pace.least_ttl..=TTL_MOST).contains(&timing.ttl) {
        return Some("the ttl is too short for this store, or too long");
    }
    if timing.renew_interval < SHORTEST {
        return Some("the renew interval is at least 1 ms");
    }
    if !(SHORTEST..=timing.ttl).contains(&timing.request_deadline) {
        return Some("the request deadline is 1 ms to ttl");
    }
    if pace.needed(timing.ttl, timing.renew_interval, timing.margin) > timing.ttl {
        return Some(
            "two renew intervals and the safety margin (on ZooKeeper another interval, of ttl / 6 at least, and ttl / 4) must fit in the ttl, or one slow renewal or silent server would lose every lock",
        );
    }
    None
}

/// The policy for retries of requests that failed for a passing reason. Between openings of a session all callers share a pause that is
/// five times as long, so that holders get the server's connections first. A renewal that failed is retried after 250 ms at the latest.
///
/// ```
/// use std::time::Duration;
/// use fencelock::{Client, Retry};
///
/// let patient = Retry::default().give_up_after(Duration::from_secs(300));
/// let builder = Client::builder().retry(patient);
/// # drop(builder);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retry {
    /// The pause after the first failure, 1 ms or more; doubles with each further one. Five times that between openings of a session.
    pub shortest_pause: Duration,
    /// The longest pause; not under the shortest.
    pub longest_pause: Duration,
    /// An acquire whose requests failed for this long, without a success in between, reports the error. So does an acquire
    /// whose grants came too late for this long.
    pub give_up_after: Duration,
}

impl Default for Retry {
    /// 20 ms, doubling up to 1 s, for 30 s.
    fn default() -> Self {
        Self {
            shortest_pause: Duration::from_millis(20),
            longest_pause: Duration::from_secs(1),
            give_up_after: Duration::from_secs(30),
        }
    }
}

impl Retry {
    /// Sets the pause after the first failure.
    #[must_use]
    pub const fn shortest_pause(mut self, pause: Duration) -> Self {
        self.shortest_pause = pause;
        self
    }

    /// Sets the longest pause.
    #[must_use]
    pub const fn longest_pause(mut self, pause: Duration) -> Self {
        self.longest_pause = pause;
        self
    }

    /// Sets after how long without a success an acquire gives up.
    #[must_use]
    pub const fn give_up_after(mut self, time: Duration) -> Self {
        self.give_up_after = time;
        self
    }

    /// Refuses pauses under a millisecond: a store that fails at once would receive requests without end.
    pub(crate) fn check(&self) -> Result<()> {
        if self.shortest_pause >= SHORTEST && self.longest_pause >= self.shortest_pause {
            return Ok(());
        }
        let message = "the shortest pause is at least 1 ms, and at most the longest one";
        Err(Error::new(ErrorKind::Config, "retry", message)
            .with("shortest_pause", format!("{:?}", self.shortest_pause))
            .with("longest_pause", rounded(self.longest_pause)))
    }

    /// The pause after this number of fruitless openings of a session in a row (from 1).
    pub(crate) fn opening_pause(&self, in_vain: u32) -> Duration {
        const TIMES: u32 = 5;
        pause(self.shortest_pause.saturating_mul(TIMES), self.longest_pause.saturating_mul(TIMES), in_vain)
    }

    /// The pause after this number of failed renewals in a row.
    pub(crate) fn renewal_pause(&self, failures: u32) -> Duration {
        let longest = self.longest_pause.min(LONGEST_OF_HOLDERS);
        pause(self.shortest_pause.min(longest), longest, failures)
    }

    /// The pause after `failures` failures in a row (from 1), with up to a quarter less so that clients spread out.
    pub(crate) fn pause(&self, failures: u32) -> Duration {
        pause(self.shortest_pause, self.longest_pause, failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Option<Duration> {
        Some(Duration::from_millis(ms))
    }

    #[test]
    fn the_defaults_follow_the_ttl() {
        let timing = TimingOptions::default().resolve(&Pace::DEFAULT).unwrap();
        assert_eq!((timing.ttl, timing.renew_interval, timing.margin), (TTL, TTL / 4, TTL / 10));
        let timing = TimingOptions { ttl: ms(1000), ..Default::default() }.resolve(&Pace::DEFAULT).unwrap();
        assert_eq!((timing.renew_interval, timing.margin), (Duration::from_millis(250), Duration::from_millis(500)));
    }

    #[test]
    fn a_client_with_a_session_retries_soon_and_one_without_leaves_it_the_connections() {
        let spread = |longest: u64, pause: Duration| {
            let longest = Duration::from_millis(longest);
            assert!(longest * 3 / 4 <= pause && pause <= longest, "{pause:?}, {longest:?}");
        };
        let retry = Retry::default();
        for (failures, renewal, opening) in [(1, 20, 100), (2, 40, 200), (4, 160, 800), (5, 250, 1600), (20, 250, 5000)]
        {
            spread(renewal, retry.renewal_pause(failures));
            spread(opening, retry.opening_pause(failures));
        }
        spread(
            250,
            retry.longest_pause(Duration::from_secs(9)).shortest_pause(Duration::from_secs(1)).renewal_pause(1),
        );
    }

    #[test]
    fn a_store_may_ask_for_more_time() {
        let pace = Pace {
            renewals_per_ttl: 6,
            least_margin: TTL / 5,
            least_ttl: TTL / 2,
            proof_lag: Some(4),
            failover: Some(6),
            longest_interval: None,
        };
        let timing = TimingOptions::default().resolve(&pace).unwrap();
        assert_eq!((timing.renew_interval, timing.margin), (TTL / 6, TTL / 5));
        let short = TimingOptions { ttl: Some(TTL / 3), ..Default::default() };
        let slow = TimingOptions { renew_interval: Some(TTL / 5), ..Default::default() };
        assert!(slow.resolve(&pace).is_err() && slow.resolve(&Pace::DEFAULT).is_ok());
        // Also with frequent renewals: leaving a silent server takes a part of the ttl.
        let often = TimingOptions { renew_interval: Some(TTL / 50), margin: Some(TTL * 11 / 20), ..Default::default() };
        assert!(often.resolve(&pace).is_err() && often.resolve(&Pace { failover: None, ..pace }).is_ok());
        assert!(short.resolve(&pace).unwrap_err().to_string().contains("ttl allowed 5s to 24h"));
    }

    #[test]
    fn a_store_may_be_renewed_more_often_than_its_ttl_asks_for() {
        let pace = Pace { longest_interval: Some(Duration::from_secs(2)), ..Pace::DEFAULT };
        for renew_interval in [None, ms(20_000)] {
            let options = TimingOptions { ttl: Some(TTL_MOST), renew_interval, ..Default::default() };
            assert_eq!(options.resolve(&pace).unwrap().renew_interval, Duration::from_secs(2));
        }
        let short = TimingOptions { ttl: ms(1000), ..Default::default() };
        assert_eq!(short.resolve(&pace).unwrap().renew_interval, Duration::from_millis(250));
    }

    #[test]
    fn violated_relations_are_refused() {
        for options in [
            TimingOptions { ttl: ms(0), ..Default::default() },
            TimingOptions { ttl: ms(99), ..Default::default() },
            TimingOptions { ttl: Some(Duration::MAX), ..Default::default() },
            TimingOptions { margin: ms(6000), ..Default::default() },
            TimingOptions { renew_interval: ms(0), ..Default::default() },
            TimingOptions { renew_interval: ms(5000), ..Default::default() },
            TimingOptions { request_deadline: ms(0), ..Default::default() },
            TimingOptions { request_deadline: ms(10_001), ..Default::default() },
        ] {
            assert_eq!(options.resolve(&Pace::DEFAULT).unwrap_err().kind(), ErrorKind::Config, "{options:?}");
        }
    }

    #[test]
    fn options_of_the_code_win_over_the_url() {
        let mut url = StoreUrl::parse("memory:?ttl_ms=5000&margin_ms=700").unwrap();
        let mut options = TimingOptions { ttl: ms(8000), ..Default::default() };
        options.fill_from(&mut url).unwrap();
        assert_eq!((options.ttl, options.margin), (ms(8000), ms(700)));
        url.refuse_other_options(&[]).unwrap();
    }
}
