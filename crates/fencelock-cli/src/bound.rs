//! A command that the kernel kills when fencelock dies, however it dies.
//!
//! The kernel takes that wish from the process itself, and keeps it while that executes something else: fencelock starts
//! itself again, which wishes, and becomes the command. It is forgotten when the command is one that changes its
//! user or has capabilities of its own (such as `sudo`), and it is not inherited by what the command starts. So a second
//! process of ours, the guardian, waits at a pipe for fencelock's end, and kills the rest of the group then.

use std::ffi::OsString;
use std::io::{self, BufRead as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use clap::Args;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::job::not_started;
use crate::say::{Failure, Outcome};

/// The hidden verbs' names.
const VERB: &str = "bound";
const GUARDIAN_VERB: &str = "bound-group";

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
    let mut command = ourselves(VERB);
    command.args([&Pid::this().to_string(), "--"]).arg(program);
    command
}

fn ourselves(verb: &str) -> Command {
    // Also there when the file was replaced since, as an upgrade does.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("fencelock").arg(verb);
    command
}

/// The process that kills a group when this one ends without having called it off.
#[derive(Debug)]
pub(crate) struct Guardian(Child);

impl Guardian {
    /// Starts it, with nobody to guard yet; in a group of its own, which no signal of the terminal reaches.
    pub(crate) fn start() -> io::Result<Self> {
        let mut guardian = ourselves(GUARDIAN_VERB);
        guardian.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        guardian.spawn().map(Self)
    }

    /// From now on `group` does not outlive this process.
    pub(crate) fn guard(&mut self, group: Pid) {
        self.tell(&group.to_string());
    }

    /// Calls it off, and returns once it is gone: whoever is left in the group may stay.
    pub(crate) fn call_off(mut self) {
        self.tell("");
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }

    /// One that was killed hears nothing; what is left then is the kernel's own signal.
    fn tell(&mut self, line: &str) {
        if let Some(stdin) = &mut self.0.stdin {
            let _ = writeln!(stdin, "{line}");
        }
    }
}

/// What a guardian does, given the lines that it is told: the group's number, and an empty one when it is called off.
pub(crate) fn guard_group() -> Outcome<u8> {
    let mut guarded = None;
    for line in io::stdin().lock().lines() {
        match line?.parse() {
            Ok(group) => guarded = Some(Pid::from_raw(group)),
            Err(_) => return Ok(0),
        }
    }
    if let Some(group) = guarded.filter(|group| group.as_raw() > 1) {
        let _ = killpg(group, Signal::SIGKILL);
    }
    Ok(0)
}

impl Bound {
    /// Becomes the command; returns when that cannot be executed.
    pub(crate) fn run(&self) -> Outcome<u8> {
        nix::sys::prctl::set_pdeathsig(Some(Signal::SIGKILL))
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
