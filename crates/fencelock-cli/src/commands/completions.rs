//! `fencelock completions` and `fencelock man`: the shell's completions and the manual, made from clap's definitions.

use std::path::PathBuf;

use clap::{Args, Command, CommandFactory as _};
use clap_complete::Shell;

use super::Fencelock;
use crate::output::{Failure, Outcome, code};
use crate::show::print;

/// Print what makes a shell complete verbs and options of fencelock.
///
/// For bash: `fencelock completions bash > /etc/bash_completion.d/fencelock`, or
/// `~/.local/share/bash-completion/completions/fencelock`; for zsh a file `_fencelock` in a directory of `fpath`; for fish
/// `~/.config/fish/completions/fencelock.fish`.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Completions {
    pub(super) fn run(&self) -> Outcome<u8> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut shown(), "fencelock", &mut script);
        print(&String::from_utf8_lossy(&script))?;
        Ok(0)
    }
}

/// Print a page of the manual, or write all of them.
///
/// `fencelock man run | man -l -` shows the page about `run`; `fencelock man --directory /usr/local/share/man/man1` writes
/// fencelock.1 and a page for each verb.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The verb that the page is about; without one, it is about all of fencelock.
    #[arg(value_name = "VERB", conflicts_with = "directory")]
    verb: Option<String>,
    /// Write all pages into this directory, which must be there.
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

impl Man {
    pub(super) fn run(&self) -> Outcome<u8> {
        let mut command = Fencelock::command();
        if let Some(directory) = &self.directory {
            clap_mangen::generate_to(command, directory)
                .map_err(|error| Failure::new(code::IO, format!("cannot write to {}: {error}", directory.display())))?;
            return Ok(0);
        }
        command.build();
        let page = match &self.verb {
            None => command,
            Some(verb) => command.find_subcommand(verb).cloned().ok_or_else(|| {
                Failure::new(code::USAGE, format!("there is no verb {verb:?}: `fencelock --help` lists them"))
            })?,
        };
        let mut text = Vec::new();
        clap_mangen::Man::new(page).render(&mut text)?;
        print(&String::from_utf8_lossy(&text))?;
        Ok(0)
    }
}

/// The command without the hidden verbs, with which fencelock starts itself.
fn shown() -> Command {
    let whole = Fencelock::command();
    let verbs: Vec<_> = whole.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned().collect();
    let arguments: Vec<_> = whole.get_arguments().cloned().collect();
    Command::new("fencelock").args(arguments).subcommands(verbs)
}
