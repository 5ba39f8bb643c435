//! `fencelock`: programs run under distributed locks, and who holds them. One page about it: `docs/command.md`.

mod arguments;
mod commands;
mod die_with_parent;
mod guardian;
mod job;
mod keeper;
mod kept_signals;
mod libpq;
mod locks;
mod nested;
mod output;
mod processes;
mod progress;
mod settings;
mod show;
mod signals;
mod terminal;
mod times;
mod trusted;
mod warnings;

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser as _};

use crate::commands::Fencelock;
use crate::output::{Failure, Outcome, code, say, say_lines};

fn main() -> ExitCode {
    LazyLock::force(&processes::INHERITED);
    let ended = match Fencelock::try_parse() {
        Ok(fencelock) => dispatch(&fencelock),
        Err(error) => not_parsed(&error),
    };
    let code = ended.unwrap_or_else(|failure| {
        if let Some(message) = failure.message {
            say(message);
        }
        failure.code
    });
    output::finish();
    ExitCode::from(code)
}

fn dispatch(fencelock: &Fencelock) -> Outcome<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::os("cannot start", &error))?;
    let ended = runtime.block_on(commands::dispatch(fencelock));
    // A blocking call that hangs must not hold up the end.
    runtime.shutdown_background();
    ended
}

/// Help and version were asked for; everything else is wrong usage.
fn not_parsed(error: &clap::Error) -> Outcome<u8> {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    let advice = advice(error)
        .filter(|_| !text.contains("tip:"))
        .map_or_else(String::new, |advice| format!("\n\n  tip: {advice}"));
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        writeln!(std::io::stdout().lock(), "{text}")?;
        return Ok(0);
    }
    say_lines(&format!("{text}{advice}"));
    Ok(code::USAGE)
}

/// A guess at the line that the user meant.
fn advice(error: &clap::Error) -> Option<String> {
    if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) {
        let is_like = |verb: &str| verb.len() == word.len() && word.chars().all(|letter| verb.contains(letter));
        let verbs = Fencelock::command();
        let meant = verbs.get_subcommands().find(|verb| !verb.is_hide_set() && is_like(verb.get_name()))?;
        return Some(format!("a similar subcommand exists: '{}'", meant.get_name()));
    }
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = words.skip_while(|word| word != "run" && word != "elect").collect();
    let [verb, name, command @ ..] = &words[..] else { return None };
    let is_plain = !command.is_empty() && !words.iter().any(|word| word.starts_with('-'));
    is_plain.then(|| format!("the command stands behind `--`: fencelock {verb} {name} -- {}", command.join(" ")))
}
