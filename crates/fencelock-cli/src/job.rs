//! The command that runs under the lock: a process group of its own, in front of the terminal if there is one.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use tokio::sync::mpsc;

use crate::bound;
use crate::say::{Failure, Outcome, code};
use crate::terminal::Terminal;

/// How often a group is asked whether anybody is left in it.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// What happened to the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Happening {
    /// Stopped by this signal.
    Stopped(Signal),
    /// Ended.
    Ended,
}

/// A running command.
pub(crate) struct Job {
    child: Child,
    group: Pid,
    terminal: Option<Terminal>,
    happenings: mpsc::UnboundedReceiver<Happening>,
}

impl Job {
    /// Starts `command` (the program and its arguments) with `variables` set, or unset where there is no value; with
    /// `bound`, so that the kernel kills it with this process. Called on the main thread: the kernel means the thread.
    pub(crate) fn start(command: &[OsString], variables: &[(&str, Option<String>)], bound: bool) -> Outcome<Self> {
        let (program, arguments) =
            command.split_first().ok_or_else(|| Failure::new(code::USAGE, "no command is given"))?;
        let mut prepared = if bound { bound::command(program) } else { Command::new(program) };
        prepared.args(arguments).process_group(0);
        for (variable, value) in variables {
            match value {
                Some(value) => prepared.env(variable, value),
                None => prepared.env_remove(variable),
            };
        }
        let child = prepared.spawn().map_err(|error| not_started(program, &error))?;
        let group = Pid::from_raw(child.id().cast_signed());
        let terminal = Terminal::on_stdin();
        if let Some(terminal) = &terminal {
            terminal.give(group);
        }
        let (sender, happenings) = mpsc::unbounded_channel();
        thread::Builder::new()
            .name("fencelock-wait".to_owned())
            .spawn(move || watch(group, &sender))
            .map_err(|error| Failure::os("cannot start a thread", &error))?;
        Ok(Self { child, group, terminal, happenings })
    }

    /// What happens to it next.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Happening {
        self.happenings.recv().await.unwrap_or(Happening::Ended)
    }

    /// Sends `signal` to everybody in its group.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = killpg(self.group, signal);
    }

    /// It was stopped: by the keyboard, or because it read from a terminal that was not yet its own.
    ///
    /// Without a terminal nobody would continue us, and the lock must be kept alive: nothing is done.
    pub(crate) fn stopped(&self, by: Signal) {
        let Some(terminal) = &self.terminal else { return };
        let wants_terminal = matches!(by, Signal::SIGTTIN | Signal::SIGTTOU);
        if wants_terminal && (terminal.is_ours() || terminal.is_with(self.group)) {
            // It was quicker than `start`, which has given it the terminal by now or does so here.
            terminal.give(self.group);
            self.signal(Signal::SIGCONT);
            return;
        }
        terminal.take_back(self.group);
        if !terminal.suspend_us(by) {
            self.continued();
        }
    }

    /// We were continued: so is the command, in front of the terminal if that is where we are.
    pub(crate) fn continued(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.give(self.group);
        }
        self.signal(Signal::SIGCONT);
    }

    /// Reaps the command once it has ended, and takes the terminal back.
    pub(crate) fn reap(&mut self) -> Outcome<ExitStatus> {
        let status = self.child.wait().map_err(|error| Failure::os("cannot wait for the command", &error))?;
        if let Some(terminal) = &self.terminal {
            terminal.take_back(self.group);
            if let Some(Ok(signal @ (Signal::SIGINT | Signal::SIGQUIT))) = status.signal().map(Signal::try_from) {
                terminal.tell_the_others(signal);
            }
        }
        Ok(status)
    }

    /// Waits until nobody is left in the group of a command that was reaped, at most until `kill_at`; who is left then
    /// is killed.
    pub(crate) async fn emptied(&self, kill_at: Instant) {
        while killpg(self.group, None) != Err(Errno::ESRCH) {
            if Instant::now() >= kill_at {
                self.signal(Signal::SIGKILL);
                return;
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }
}

/// What a shell would exit with: the command's own code, or 128 and the number of the signal that ended it.
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    let code =
        status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(i32::from(code::SOFTWARE));
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// What `program` that cannot be executed is to its user: the codes that shells use.
pub(crate) fn not_started(program: &OsString, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::NotFound => code::NOT_FOUND,
        _ => code::NOT_EXECUTABLE,
    };
    // A whole line in one pair of quotes is a file's name to the kernel.
    let is_line =
        program.to_str().is_some_and(|line| line.contains(|c: char| c.is_whitespace() || "|&;<>$".contains(c)));
    let hint = if is_line { "; for a line of the shell write: -- sh -c 'LINE'" } else { "" };
    Failure::new(code, format!("cannot execute {program:?}: {error}{hint}"))
}

/// Tells every stop of the process `leader`, and its end; leaves it unreaped, so that its number stays its own.
fn watch(leader: Pid, sender: &mpsc::UnboundedSender<Happening>) {
    let id = || Id::Pid(leader);
    loop {
        let seen = waitid(id(), WaitPidFlag::WEXITED | WaitPidFlag::WSTOPPED | WaitPidFlag::WNOWAIT);
        let happening = match seen {
            Err(Errno::EINTR) => continue,
            Ok(WaitStatus::Stopped(_, signal)) => {
                // Seen without being taken, so that an end is never taken: now take it, unless it is over already.
                let _ = waitid(id(), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG);
                Happening::Stopped(signal)
            }
            Ok(_) | Err(_) => Happening::Ended,
        };
        if sender.send(happening).is_err() || happening == Happening::Ended {
            return;
        }
    }
}
