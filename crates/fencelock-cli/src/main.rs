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
    let mut text = error.to_string();
    let line = line_with_dashes().filter(|_| !text.contains("a similar "));
    if line.is_some() {
        // With clap's advice, the option of the user's command would become the name of a lock.
        text = text.lines().filter(|line| !line.starts_with("  tip: to pass")).collect::<Vec<_>>().join("\n");
    }
    let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    let advice = line
        .or_else(|| similar_verb(error).filter(|_| !text.contains("tip:")))
        .map_or_else(String::new, |advice| format!("\n\n  tip: {advice}"));
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        writeln!(std::io::stdout().lock(), "{text}")?;
        return Ok(0);
    }
    say_lines(&format!("{text}{advice}"));
    Ok(code::USAGE)
}

/// A verb with the same letters in another order.
fn similar_verb(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let is_like = |verb: &str| verb.len() == word.len() && word.chars().all(|letter| verb.contains(letter));
    let verbs = Fencelock::command();
    let meant = verbs.get_subcommands().find(|verb| !verb.is_hide_set() && is_like(verb.get_name()))?;
    Some(format!("a similar subcommand exists: '{}'", meant.get_name()))
}

/// The intended line of a user that left out the `--` before the command. Values of options, which may hold a password, are not repeated.
fn line_with_dashes() -> Option<String> {
    let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let verb =
        words.iter().position(|word| word == "run" || word == "elect").filter(|_| !words.contains(&"--".into()))?;
    let fencelock = Fencelock::command();
    let options = fencelock.get_arguments().chain(fencelock.find_subcommand(&words[verb])?.get_arguments());
    let options: Vec<_> = options.filter(|option| option.get_action().takes_values()).collect();
    let takes_value = |word: &str| {
        let is_word = |option: &clap::Arg| {
            let short = option.get_short().map(|short| format!("-{short}"));
            short.as_deref() == Some(word)
                || option.get_long().is_some_and(|long| word.strip_prefix("--") == Some(long))
        };
        options.iter().any(|option| is_word(option))
    };
    let behind_options = |mut at: usize| {
        while let Some(word) = words.get(at).filter(|word| word.starts_with('-')) {
            at += 1 + usize::from(takes_value(word));
        }
        at
    };
    let name = behind_options(verb + 1);
    let command = behind_options(name + 1);
    let behind = words.get(command..).filter(|words| !words.is_empty())?.join(" ");
    let options = if command - verb > 2 { "[OPTIONS] " } else { "" };
    Some(format!("the command stands behind `--`: fencelock {} {options}{} -- {behind}", words[verb], words[name]))
}
