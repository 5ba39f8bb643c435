//! A command that begins only on request. The kernel kills the command when fencelock dies, unless it may outlive fencelock.
//!
//! fencelock starts itself again, in the command's process group. That process requests a parent-death signal from the kernel, stops
//! itself, and becomes the command once it is continued: when the guardian knows it, fencelock waits for its end, and the lock was checked
//! again. The kernel signals the command alone, and not if the command changed its user: the [guardian](crate::guardian) ends the rest of
//! the group.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, raise};
use nix::unistd::Pid;

use crate::output::{Failure, Outcome, code, not_started};
use crate::signals::kept;

const VERB: &str = "bound";

/// Not for people: `run` starts this, which becomes the command.
#[derive(Debug, Args)]
pub(crate) struct Bound {
    parent: i32,
    /// The command may outlive that process, once it has begun.
    #[arg(long)]
    outlives: bool,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// The process that becomes `program` with the added arguments, once it is continued. `outlives` says whether it may outlive us.
pub(crate) fn command(program: &OsString, outlives: bool) -> Outcome<Command> {
    let mut command = ourselves(VERB)?;
    command.arg(Pid::this().to_string()).args(outlives.then_some("--outlives")).arg("--").arg(program);
    Ok(command)
}

/// fencelock once more, with a hidden `verb`.
pub(crate) fn ourselves(verb: &str) -> Outcome<Command> {
    let mut command = Command::new(own_program()?);
    command.arg0("fencelock").arg(verb);
    Ok(command)
}

/// The path of fencelock's program: `/proc/self/exe`, which exists even after an upgrade replaced the file. Without `/proc`, the
/// path by which fencelock was started.
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
        let failed = |error: Errno| Failure::os("cannot bind the command to fencelock", &error.into());
        set_pdeathsig(Some(Signal::SIGKILL)).map_err(failed)?;
        // The kernel does not report a parent that died before that.
        if Pid::parent().as_raw() != self.parent {
            return Err(Failure::silent(137));
        }
        // Signals that fencelock keeps for itself are not blocked in the command.
        kept().thread_unblock().map_err(failed)?;
        raise(Signal::SIGSTOP).map_err(failed)?;
        if self.outlives {
            set_pdeathsig(None).map_err(failed)?;
        }
        match self.command.split_first() {
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                self.pass_on_sockets(&mut command);
                Err(not_started(program, &command.args(arguments).exec()))
            }
            None => Err(Failure::silent(code::USAGE)),
        }
    }

    /// systemd's descriptors are the command's. The command accepts them only if the variable names its own process (sd_listen_fds(3)).
    fn pass_on_sockets(&self, command: &mut Command) {
        if env::var("LISTEN_PID").is_ok_and(|process| process == self.parent.to_string()) {
            command.env("LISTEN_PID", Pid::this().to_string()).env_remove("LISTEN_PIDFDID");
        }
    }
}
