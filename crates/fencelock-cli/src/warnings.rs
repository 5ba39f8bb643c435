//! The library's warnings, as lines on stderr: the library prints nothing itself.

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::output::say;

pub(crate) const LOG_VARIABLE: &str = "FENCELOCK_LOG";

/// Prints the library's log at `level` and above, from now on.
pub(crate) fn tell(level: LevelFilter) {
    // No other code sets a subscriber in this program.
    let _ = tracing::subscriber::set_global_default(Lines(level));
}

/// Every event of the library becomes a line; its spans are of no interest here.
struct Lines(LevelFilter);

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // `run` prints a line of its own for a lost lock.
        let is_said = metadata.fields().field("loss").is_some() && self.0 == LevelFilter::WARN;
        *metadata.level() <= self.0 && metadata.target().starts_with("fencelock") && !is_said
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.0)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        // Requests to this host stay on it, and a single line is enough.
        let is_repeated = || IN_THE_CLEAR.swap(true, Ordering::Relaxed);
        if line.message.contains("is sent in the clear") && (line.is_of_this_host() || is_repeated()) {
            return;
        }
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        let facts = if line.facts.is_empty() { String::new() } else { format!(" ({})", line.facts) };
        say(format_args!("{level}: {}{facts}", line.message));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Whether the warning of a password in the clear was printed.
static IN_THE_CLEAR: AtomicBool = AtomicBool::new(false);

#[derive(Default)]
struct Line {
    message: String,
    facts: String,
}

impl Line {
    /// Whether each server that the facts name is this host.
    fn is_of_this_host(&self) -> bool {
        let is_here = |host: &str| ["127.", "localhost", "[::1]"].iter().any(|here| host.starts_with(here));
        let servers = self.facts.split_once(' ').map_or("", |(_, servers)| servers.trim_start_matches("redis://"));
        servers.split(',').all(is_here)
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match (field.name(), self.facts.is_empty()) {
            ("message", _) => write!(self.message, "{value:?}"),
            (name, true) => write!(self.facts, "{name} {value:?}"),
            (name, false) => write!(self.facts, ", {name} {value:?}"),
        };
    }
}
