//! Who may read from the terminal: fencelock's process group, or that of the command it runs.

use std::fs;
use std::io::{self, IsTerminal as _};

use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::{Pid, getpgid, getpgrp, getpid, getsid, tcgetpgrp, tcsetpgrp};

use crate::signals::ignored;

/// The controlling terminal on stdin.
#[derive(Debug)]
pub(crate) struct Terminal {
    own: Pid,
}

impl Terminal {
    /// The terminal on stdin, if there is one and it controls this session.
    pub(crate) fn on_stdin() -> Option<Self> {
        let stdin = io::stdin();
        (stdin.is_terminal() && tcgetpgrp(&stdin).is_ok()).then(|| Self { own: getpgrp() })
    }

    /// The group that may read from it; `None` once it is gone.
    fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(io::stdin()).ok()
    }

    /// Whether it is ours to give away.
    pub(crate) fn is_ours(&self) -> bool {
        self.foreground() == Some(self.own)
    }

    /// Whether `group` has it.
    pub(crate) fn is_with(&self, group: Pid) -> bool {
        self.foreground() == Some(group)
    }

    /// Gives it to `group`, if it is ours. A terminal that went away, or a group that is gone, is no failure.
    pub(crate) fn give(&self, group: Pid) {
        if self.is_ours() {
            set_foreground(group);
        }
    }

    /// Takes it back from `group`, if that has it.
    pub(crate) fn take_back(&self, group: Pid) {
        if self.is_with(group) {
            set_foreground(self.own);
        }
    }

    /// Stops our own process group with `signal`, as the terminal would have if the command were part of it. Says
    /// whether that can have happened: nobody could continue an orphaned group, so the kernel does not stop one.
    pub(crate) fn suspend_us(&self, signal: Signal) -> bool {
        let signal = match signal {
            Signal::SIGTTIN | Signal::SIGTTOU => signal,
            // A group that asked to be stopped; SIGSTOP itself would stop an orphaned group as well.
            _ => Signal::SIGTSTP,
        };
        !ignored().contains(signal) && !is_orphaned(self.own) && kill(Pid::from_raw(0), signal).is_ok()
    }

    /// Passes a signal of the keyboard on to the rest of our own process group, which the terminal did not reach: the
    /// script around us, say. Does nothing when the group is ours alone.
    pub(crate) fn tell_the_others(&self, signal: Signal) {
        if self.own != getpid() {
            let _ = kill(Pid::from_raw(0), signal);
        }
    }
}

/// A group in the background that changes the foreground is sent SIGTTOU unless that is blocked.
fn set_foreground(group: Pid) {
    let mut stop = SigSet::empty();
    stop.add(Signal::SIGTTOU);
    let before = stop.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK);
    let _ = tcsetpgrp(io::stdin(), group);
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
}

/// Whether no member of the group `own` that is an ancestor of ours (or we) has a parent that could continue it: one
/// in another group of the same session. (POSIX.1-2017, 3.269 "Orphaned Process Group".)
fn is_orphaned(own: Pid) -> bool {
    let session = getsid(None);
    let mut member = getpid();
    while let Some(parent) = parent_of(member) {
        if getpgid(Some(parent)) == Ok(own) {
            member = parent;
            continue;
        }
        return getsid(Some(parent)) != session;
    }
    true
}

fn parent_of(process: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is the program's name in parentheses, which may hold anything.
    let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
    (parent > 0).then(|| Pid::from_raw(parent))
}
