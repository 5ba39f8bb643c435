//! `fencelock`: programs run under distributed locks, and a view of their holders. `docs/command.md` is its page.

mod arguments;
mod commands;
mod die_with_parent;
mod guardian;
mod job;
mod keeper;
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

use clap::Parser as _;
use clap::error::ErrorKind;

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

/// Help and version are no failures; everything else is wrong usage.
fn not_parsed(error: &clap::Error) -> Outcome<u8> {
    let text = error.to_string();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        writeln!(std::io::stdout().lock(), "{}", text.trim_end())?;
        return Ok(0);
    }
    let words: Vec<_> = std::env::args_os().collect();
    let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    let verb = words.iter().find(|word| *word == "run" || *word == "elect").filter(|_| !words.contains(&"--".into()));
    let Some(verb) = verb.filter(|_| !text.contains("a similar ")) else {
        say_lines(text);
        return Ok(code::USAGE);
    };
    // With clap's advice, the option of the user's command would become the name of a lock.
    let text: Vec<_> = text.lines().filter(|line| !line.starts_with("  tip: to pass")).collect();
    let (text, verb) = (text.join("\n"), verb.display());
    say_lines(&format!("{text}\n\n  tip: the command stands behind `--`: fencelock {verb} NAME -- COMMAND"));
    Ok(code::USAGE)
}
