//! A command that the kernel kills when fencelock dies, however it dies.
//!
//! The kernel takes that wish from the process itself, and keeps it while that executes something else: fencelock starts
//! itself again, which wishes, and becomes the command. It is forgotten when the command is one that changes its
//! user or has capabilities of its own (such as `sudo`), and it is not inherited: what the command started lives on.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use clap::Args;
use nix::unistd::Pid;

use crate::job::not_started;
use crate::say::{Failure, Outcome};

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

/// What becomes `program` with the arguments that are added, once the kernel will kill it with the calling thread.
pub(crate) fn command(program: &OsString) -> Command {
    // Also there when the file was replaced since, as an upgrade does.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("fencelock").args([VERB, &Pid::this().to_string(), "--"]).arg(program);
    command
}

impl Bound {
    /// Becomes the command; returns when that cannot be executed.
    pub(crate) fn run(&self) -> Outcome<u8> {
        nix::sys::prctl::set_pdeathsig(Some(nix::sys::signal::Signal::SIGKILL))
            .map_err(|error| Failure::os("cannot bind the command to fencelock", &error.into()))?;
        // Who died before that was not noticed by the kernel.
        if Pid::parent().as_raw() != self.parent {
            return Err(Failure::silent(137));
        }
        match self.command.split_first() {
            Some((program, arguments)) => Err(not_started(program, &Command::new(program).args(arguments).exec())),
            None => Err(Failure::silent(crate::say::code::USAGE)),
        }
    }
}
