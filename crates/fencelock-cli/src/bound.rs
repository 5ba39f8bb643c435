//! A command that begins only once its guardian knows it, and that the kernel kills when fencelock dies.
//!
//! fencelock starts itself again, in the command's process group. That process takes the kernel's wish (a parent-death signal), stops
//! itself, and becomes the command once it is continued. The wish reaches the command alone, and programs that change their
//! user forget it: the [guardian](crate::guardian) ends whatever else is in the group.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use nix::sys::signal::{Signal, raise};
use nix::unistd::Pid;

use crate::job::not_started;
use crate::say::{Failure, Outcome, code};

/// The hidden verb's name.
const VERB: &str = "bound";

/// Not for people: `run` starts this, which becomes the command.
#[derive(Debug, Args)]
pub(crate) struct Bound {
    /// The process that the command must not outlive.
    parent: i32,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// What becomes `program` with the arguments that are added, once it is continued.
pub(crate) fn command(program: &OsString) -> Outcome<Command> {
    let mut command = ourselves(VERB)?;
    command.args([&Pid::this().to_string(), "--"]).arg(program);
    Ok(command)
}

/// fencelock once more, with a hidden `verb`.
pub(crate) fn ourselves(verb: &str) -> Outcome<Command> {
    let mut command = Command::new(own_program()?);
    command.arg0("fencelock").arg(verb);
    Ok(command)
}

/// Where fencelock's program is: `/proc/self/exe`, which is there also when the file was replaced since, as an upgrade
/// does. Without `/proc`, whatever it was started by.
fn own_program() -> Outcome<PathBuf> {
    let link = Path::new("/proc/self/exe");
    if link.exists() {
        return Ok(link.to_owned());
    }
    let name = PathBuf::from(env::args_os().next().unwrap_or_default());
    if name.components().count() > 1 {
        return Ok(name);
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|directory| directory.join(&name)).find(|file| file.is_file()).ok_or_else(|| {
        let fault = format!(
            "cannot find the program of fencelock itself: there is no /proc, and {name:?} is not in PATH; mount /proc, or \
             start fencelock by its whole path"
        );
        Failure::new(code::OS, fault)
    })
}

impl Bound {
    /// Becomes the command; returns when that cannot be executed.
    pub(crate) fn run(&self) -> Outcome<u8> {
        nix::sys::prctl::set_pdeathsig(Some(Signal::SIGKILL))
            .map_err(|error| Failure::os("cannot bind the command to fencelock", &error.into()))?;
        // A parent that died before that was not noticed by the kernel.
        if Pid::parent().as_raw() != self.parent {
            return Err(Failure::silent(137));
        }
        // Until fencelock has told the guardian of this group.
        raise(Signal::SIGSTOP).map_err(|error| Failure::os("cannot wait for the guardian", &error.into()))?;
        match self.command.split_first() {
            Some((program, arguments)) => Err(not_started(program, &Command::new(program).args(arguments).exec())),
            None => Err(Failure::silent(code::USAGE)),
        }
    }
}
