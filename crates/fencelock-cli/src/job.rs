//! The command that runs under the lock: a process group of its own, which gets the terminal on request.

use std::ffi::OsString;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::Duration;

use fencelock::time::Moment;
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use tokio::sync::mpsc;

use crate::die_with_parent;
use crate::guardian::Guardian;
use crate::output::{Failure, Outcome, code, not_started, say};
use crate::processes::{are_all_dead, ignored, is_stopped, is_stopped_but_for_its_leader};
use crate::signals::asks_for_an_end;
use crate::terminal::{Terminal, is_orphaned, tell_our_group};

/// How long a suspended command may take to restore its screen, before SIGSTOP stops it.
const SUSPENDING: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Happening {
    Stopped(Signal),
    Ended,
    Unguarded,
}

pub(crate) struct Job {
    child: Child,
    group: Pid,
    terminal: Option<Terminal>,
    guard: Option<Guardian>,
    happenings: mpsc::UnboundedReceiver<Happening>,
    sender: mpsc::UnboundedSender<Happening>,
    /// The command is stopped, as far as we know, and we have not continued it since.
    is_stopped: bool,
    /// The command was stopped because it asked for the terminal, or while it had the terminal.
    wants_terminal: bool,
    is_reaped: bool,
}

impl Job {
    /// Starts `command` (the program and its arguments) with `variables` set, or unset where there is no value. The command begins only
    /// on request. With `bound`, the command ends when this process can no longer keep its lock, which is certain until that time.
    /// Called on the main thread: the parent-death signal follows the thread.
    pub(crate) fn start(
        command: &[OsString],
        variables: &[(&str, Option<String>)],
        bound: Option<Moment>,
    ) -> Outcome<Self> {
        let (program, arguments) =
            command.split_first().ok_or_else(|| Failure::new(code::USAGE, "no command is given"))?;
        let (sender, happenings) = mpsc::unbounded_channel();
        let mut guard = if bound.is_some() { Some(guardian(&sender)?) } else { None };
        let mut prepared = die_with_parent::command(program, bound.is_none())?;
        prepared.args(arguments).process_group(0);
        for (variable, value) in variables {
            match value {
                Some(value) => prepared.env(variable, value),
                None => prepared.env_remove(variable),
            };
        }
        let terminal = Terminal::of_this_session();
        let child = prepared.spawn().map_err(|error| not_started(program, &error))?;
        let group = Pid::from_raw(child.id().cast_signed());
        let _ = seen(group);
        if let (Some(guard), Some(certain_until)) = (&mut guard, bound) {
            guard.guard(group);
            guard.until(certain_until);
        }
        let (is_stopped, wants_terminal, is_reaped) = (false, false, false);
        let job = Self { child, group, terminal, guard, happenings, sender, is_stopped, wants_terminal, is_reaped };
        let watched = job.sender.clone();
        thread::Builder::new()
            .name("fencelock-wait".to_owned())
            .spawn(move || watch(group, &watched))
            .map_err(|error| Failure::os("cannot start a thread", &error))?;
        Ok(job)
    }

    pub(crate) fn begin(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// The next event of the command.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Happening {
        // The sender in `self` keeps the channel open: the last message of the watching thread reports its end.
        self.happenings.recv().await.unwrap_or(Happening::Ended)
    }

    /// Whether the command ends when this process can no longer keep its lock.
    pub(crate) fn is_bound(&self) -> bool {
        self.guard.is_some()
    }

    pub(crate) fn let_run_until(&mut self, moment: Moment) {
        if let Some(guard) = &mut self.guard {
            guard.until(moment);
        }
    }

    /// The command's guardian was killed. A new one has started, and needs the time until which the command may run.
    pub(crate) fn guard_again(&mut self) {
        match guardian(&self.sender) {
            Ok(mut guard) => {
                guard.guard(self.group);
                self.guard = Some(guard);
            }
            Err(failure) => say(format_args!(
                "{}: if fencelock is killed or stopped, what the command has started runs on without the lock",
                failure.message.unwrap_or_default()
            )),
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        if killpg(self.group, signal) == Err(Errno::EPERM) {
            self.not_permitted(signal);
        }
    }

    /// A command that became another user (as `sudo` does) gets no signals from us. Signals of the keyboard reach it once it has the
    /// terminal.
    fn not_permitted(&self, signal: Signal) {
        if signal == Signal::SIGCONT {
            return;
        }
        let keyboard = matches!(signal, Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTSTP);
        match &self.terminal {
            Some(terminal) if keyboard && terminal.is_ours() => {
                terminal.give(self.group);
                say("the command runs as another user, and now has the terminal: press the key once more");
            }
            _ => say(format_args!("the command runs as another user, and cannot be sent {signal}")),
        }
    }

    /// Sends `signal`. A stopped command that is asked to end is continued, so that it can end.
    pub(crate) fn relay(&mut self, signal: Signal) {
        self.signal(signal);
        if asks_for_an_end(signal) {
            self.go_on();
        }
    }

    /// The command was stopped: because it asked for the terminal, by the keyboard, or by a user. Returns whether it stays stopped.
    pub(crate) fn stopped(&mut self, by: Signal) -> bool {
        // Notices of stops queue while we are stopped. A notice of a past stop must not suspend us again.
        if is_stopped(self.group) == Some(false) {
            return false;
        }
        self.is_stopped = true;
        let wants = matches!(by, Signal::SIGTTIN | Signal::SIGTTOU);
        let Some(terminal) = &self.terminal else { return true };
        let had = terminal.is_with(self.group);
        if wants && (had || terminal.is_ours()) {
            self.wants_terminal = true;
            self.go_on();
            return false;
        }
        if !wants && !had {
            return true;
        }
        self.wants_terminal = true;
        if !can_be_suspended() {
            // Undoes the keyboard's stop: no process could continue us.
            if had {
                self.go_on();
            }
            return !had;
        }
        terminal.take_back(self.group);
        // The signal suspends all processes of our group, as the keyboard would have, and then us.
        tell_our_group(if wants { by } else { Signal::SIGTSTP });
        false
    }

    /// Gives the terminal back to a process of our own group that wants it from the command. Returns whether there was
    /// one.
    pub(crate) fn gives_back_the_terminal(&self) -> bool {
        let Some(terminal) = &self.terminal else { return false };
        let ours = terminal.take_back(self.group) || terminal.is_ours();
        if ours {
            tell_our_group(Signal::SIGCONT);
        }
        ours
    }

    /// Stops the whole group; an editor gets the time to put the screen in order. `false` if it ended instead.
    pub(crate) async fn pause(&mut self) -> bool {
        if !self.is_stopped {
            for signal in [Signal::SIGTSTP, Signal::SIGSTOP] {
                self.signal(signal);
                match tokio::time::timeout(SUSPENDING, self.stop_or_end()).await {
                    Ok(Happening::Ended) => {
                        let _ = self.sender.send(Happening::Ended);
                        return false;
                    }
                    Ok(_) => break,
                    Err(_) => {}
                }
            }
        }
        self.is_stopped = true;
        // Stops processes that ignored the request, or have not stopped yet.
        self.signal(Signal::SIGSTOP);
        if let Some(terminal) = &self.terminal {
            self.wants_terminal |= terminal.take_back(self.group);
        }
        true
    }

    async fn stop_or_end(&mut self) -> Happening {
        loop {
            match self.next().await {
                Happening::Unguarded => self.guard_again(),
                happening => return happening,
            }
        }
    }

    /// Continues the group, in the foreground if the command wants the terminal and we have it.
    pub(crate) fn go_on(&mut self) {
        if let Some(terminal) = &self.terminal
            && self.wants_terminal
        {
            terminal.give(self.group);
        }
        self.is_stopped = false;
        self.wants_terminal = false;
        self.signal(Signal::SIGCONT);
    }

    /// Continues processes that stopped because they asked for the terminal, once the group has it: programs that ask for passwords
    /// restore the terminal before they stop.
    pub(crate) fn nudge(&self) {
        let has_terminal = self.terminal.as_ref().is_some_and(|terminal| terminal.is_with(self.group));
        // The kernel reports a stop of the command itself, with the signal: the keyboard may have sent it.
        if has_terminal && !self.is_stopped && is_stopped_but_for_its_leader(self.group) {
            self.signal(Signal::SIGCONT);
        }
    }

    /// Reaps the command once it has ended, and takes the terminal back.
    pub(crate) fn reap(&mut self) -> Outcome<ExitStatus> {
        let had = self.terminal.as_ref().is_some_and(|terminal| terminal.take_back(self.group));
        let status = self.child.wait().map_err(|error| Failure::os("cannot wait for the command", &error))?;
        self.is_reaped = true;
        if had && let Some(signal) = keyboard_signal(status) {
            // The keyboard reached the command alone: the script around us gets the signal, too.
            tell_our_group(signal);
        }
        Ok(status)
    }

    /// A command that ended by itself needs no guardian: its remaining processes may continue.
    pub(crate) fn dismiss_the_guardian(&mut self) {
        self.guard = None;
    }

    pub(crate) fn say_that_it_cannot_be_ended(&self) {
        say(format_args!("processes of the command's group {} cannot be ended", self.group));
    }

    pub(crate) fn has_survivors(&self) -> bool {
        self.reap_strangers();
        killpg(self.group, None) != Err(Errno::ESRCH)
    }

    pub(crate) fn are_all_dead(&self) -> bool {
        are_all_dead(self.group)
    }

    /// Reaps orphans: the first process of a container inherits them.
    pub(crate) fn reap_strangers(&self) {
        let ours = [Some(self.group), self.guard.as_ref().map(Guardian::pid)];
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        while let Ok(status) = waitid(Id::All, look)
            && let Some(process) = status.pid()
            && !ours.contains(&Some(process))
        {
            let _ = waitpid(process, Some(WaitPidFlag::WNOHANG));
        }
    }
}

impl Drop for Job {
    /// A command whose end no task awaits must not run on: its lock is released.
    fn drop(&mut self) {
        if !self.is_reaped {
            self.signal(Signal::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

/// Whether a parent could continue us, and we do not ignore the keyboard's stop.
pub(crate) fn can_be_suspended() -> bool {
    !ignored().contains(Signal::SIGTSTP) && !is_orphaned()
}

fn guardian(sender: &mpsc::UnboundedSender<Happening>) -> Outcome<Guardian> {
    let sender = sender.clone();
    Guardian::start(move || {
        let _ = sender.send(Happening::Unguarded);
    })
}

/// The signal of the keyboard that ended the command, if any.
pub(crate) fn keyboard_signal(status: ExitStatus) -> Option<Signal> {
    match status.signal().map(Signal::try_from) {
        Some(Ok(signal @ (Signal::SIGINT | Signal::SIGQUIT))) => Some(signal),
        _ => None,
    }
}

/// A shell's exit code: the command's own code, or 128 and the number of the signal that ended it.
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    let code =
        status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(i32::from(code::SOFTWARE));
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// The failure of our process `what`, with an exit code other than 0. A process that exits by itself has printed why.
pub(crate) fn ended_early(what: &str, status: ExitStatus) -> Failure {
    match (exit_code(status), status.code()) {
        (code @ 1.., Some(_)) => Failure::silent(code),
        (code, _) => Failure::new(code.max(code::SOFTWARE), format!("{what} ended early: {status}")),
    }
}

/// Reports every stop of the process `leader`, and its end.
fn watch(leader: Pid, sender: &mpsc::UnboundedSender<Happening>) {
    loop {
        let happening = seen(leader);
        if sender.send(happening).is_err() || happening == Happening::Ended {
            return;
        }
    }
}

/// Waits for the next stop of the process `leader`, or its end. Leaves the process unreaped, so that no other process gets its number.
fn seen(leader: Pid) -> Happening {
    let id = || Id::Pid(leader);
    loop {
        match waitid(id(), WaitPidFlag::WEXITED | WaitPidFlag::WSTOPPED | WaitPidFlag::WNOWAIT) {
            Err(Errno::EINTR) => {}
            Ok(WaitStatus::Stopped(_, signal)) => {
                // The wait above left the event, so that an end is never consumed. Consumes the stop here, unless it has passed already.
                let _ = waitid(id(), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG);
                return Happening::Stopped(signal);
            }
            Ok(_) | Err(_) => return Happening::Ended,
        }
    }
}
