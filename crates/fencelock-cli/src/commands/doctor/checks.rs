//! A check: a judgement over facts, with the reason and the remedy.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::Serialize;

/// How bad a finding is, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// The finding can cost a lock, or keeps locks from being taken.
    Problem,
    /// The finding can cost a lock when something else goes wrong as well.
    Warning,
    /// Worth knowing.
    Note,
}

impl Severity {
    pub(super) fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    pub(super) server: Option<String>,
    pub(super) what: String,
    pub(super) why: &'static str,
    pub(super) set: &'static str,
}

pub(super) struct Check {
    pub(super) severity: Severity,
    pub(super) judge: fn(&Facts) -> Option<String>,
    pub(super) why: &'static str,
    pub(super) set: &'static str,
}

/// The table of a store: `Severity, what is wrong if anything, why that matters, what to set`.
macro_rules! checks {
    ($($severity:ident, $judge:expr, $why:literal, $set:literal;)*) => {
        pub(super) const CHECKS: &[Check] = &[
            $(Check { severity: Severity::$severity, judge: $judge, why: $why, set: $set }),*
        ];
    };
}

pub(super) use checks;

/// The questions to the servers of one store, and the checks of their answers.
#[derive(Clone, Copy)]
pub(super) struct Room {
    /// In the language of the server.
    pub(super) questions: &'static [&'static str],
    /// Reads answers other than lines of a name and a value. An error says that the server does not answer as such a server does.
    pub(super) read: fn(&mut Facts, &[fencelock::Result<String>]) -> Result<(), String>,
    pub(super) checks: &'static [Check],
}

#[derive(Debug, Default)]
pub(super) struct Facts(BTreeMap<String, String>);

impl Facts {
    /// The answers of a server to the questions of `room`, the time at which the first one was sent, and the facts of the URL.
    pub(super) fn of(
        about: &[(String, String)],
        room: Room,
        server: &str,
        answers: &[fencelock::Result<String>],
        asked: SystemTime,
    ) -> Result<Self, String> {
        let mut facts = Self(about.iter().cloned().collect());
        facts.set("server", server);
        answers.iter().flatten().for_each(|answer| facts.read(answer));
        if let Some(Err(error)) = answers.first() {
            return Err(error.to_string());
        }
        (room.read)(&mut facts, answers)?;
        facts.set_clock(asked);
        Ok(facts)
    }

    pub(super) fn set(&mut self, name: &str, value: impl ToString) {
        self.0.insert(name.to_owned(), value.to_string());
    }

    /// Compares the time that a server said, in milliseconds since 1970, with the time from the first question to the last answer.
    pub(super) fn set_clock(&mut self, asked: SystemTime) {
        let Some(theirs) = self.number("time_ms") else { return };
        let since = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let ours = theirs.min(since(SystemTime::now()) * 1e3).max(since(asked) * 1e3);
        self.set("clock_ms", (theirs - ours).round());
    }

    /// Reads lines of a name and a value, as the servers of all stores write them.
    pub(super) fn read(&mut self, text: &str) {
        for line in text.lines() {
            if let Some((name, value)) = ['\t', ':', '=', ' '].iter().find_map(|between| line.split_once(*between)) {
                self.set(name.trim(), value.trim());
            }
        }
    }

    pub(super) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    pub(super) fn said(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|said| !said.is_empty())
    }

    pub(super) fn number(&self, name: &str) -> Option<f64> {
        self.text(name).parse().ok()
    }

    pub(super) fn is(&self, name: &str, value: &str) -> bool {
        self.text(name) == value
    }

    pub(super) fn must_not(&self, name: &str, value: &str) -> Option<String> {
        self.is(name, value).then(|| format!("{name} is {value}"))
    }

    pub(super) fn above_nothing(&self, name: &str) -> Option<f64> {
        self.number(name).filter(|number| *number > 0.0)
    }

    /// The version of that name, where it is older than the major and minor number `than`.
    pub(super) fn older(&self, name: &str, than: (u32, u32)) -> Option<&str> {
        let version = self.text(name);
        let parts: Vec<u32> = version.split('.').filter_map(|part| part.parse().ok()).collect();
        matches!(parts[..], [major, minor, ..] if (major, minor) < than).then_some(version)
    }

    /// How much of a limit is used, in per cent, where that is a lot.
    pub(super) fn nearly(&self, used: &str, most: &str) -> Option<String> {
        let (used, most) = (self.number(used)?, self.above_nothing(most)?);
        (used > most * 0.8).then(|| format!("{used} of {most}"))
    }

    /// The ttl that clients ask for here.
    pub(super) fn ttl_ms(&self) -> f64 {
        const DEFAULT: f64 = 10_000.0;
        self.number("url_ttl_ms").unwrap_or(DEFAULT)
    }
}

pub(super) fn judge(server: &str, facts: &Facts, checks: &[Check]) -> Vec<Finding> {
    let found = |check: &Check| {
        let what = (check.judge)(facts)?;
        let Check { severity, why, set, .. } = *check;
        Some(Finding { severity, server: Some(server.to_owned()), what, why, set })
    };
    checks.iter().chain([CLOCK]).filter_map(found).collect()
}

checks! {
    Problem, |facts| facts.said("closed").map(str::to_owned),
        "a holder that the server forgot may still be at work", "nothing: wait until then";
    Warning, |facts| facts.is("tokens", "false").then(|| format!("the layout `{}` has no fencing tokens", facts.text("layout"))),
        "the late write of a paused holder looks like a write of the next one", "a store or layout with tokens (`fencelock stores`), where the locks protect data";
    Note, |facts| facts.is("order", "false").then(|| format!("the layout `{}` keeps no order", facts.text("layout"))),
        "a waiter can be passed by others again and again", "a store or layout that is first come, first served (`fencelock stores`), where that matters";
}

const CLOCK: &Check = &Check {
    severity: Severity::Warning,
    judge: |facts| {
        const MOST: f64 = 1000.0;
        let ahead = facts.number("clock_ms").filter(|ahead| ahead.abs() > MOST)?;
        let way = if ahead > 0.0 { "ahead of" } else { "behind" };
        Some(format!("the server's clock is {} ms {way} this host's", ahead.abs()))
    },
    why: "`since` and ages are by the server's clock, and jobs that several hosts start at one time do not start together",
    set: "a time service (chrony) on the server and on this host",
};

pub(super) fn slow(worst: Duration, ttl: Duration) -> Option<Finding> {
    let severity = match worst {
        _ if worst > ttl / 4 => Severity::Problem,
        _ if worst > ttl / 20 => Severity::Warning,
        _ => return None,
    };
    Some(Finding {
        severity,
        server: None,
        what: format!("a request took {} ms, and the ttl is {} ms", worst.as_millis(), ttl.as_millis()),
        why: "a renewal has to be answered before the ttl ends: a few slower ones cost the locks",
        set: "a longer ttl (?ttl_ms=), or a store that is nearer or less busy",
    })
}
