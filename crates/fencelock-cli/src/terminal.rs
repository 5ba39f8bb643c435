//! The owner of the terminal: fencelock's process group, or that of the command it runs.
//!
//! The command gets the terminal only once it was stopped because it asked for the terminal. Until then the keyboard's signals
//! reach fencelock's group, with the script and the pipeline around it.

use std::fs::{File, OpenOptions};

use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill};
use nix::unistd::{Pid, getpgid, getpgrp, getppid, getsid, tcgetpgrp, tcsetpgrp};

use crate::processes::parent_of;

#[derive(Debug)]
pub(crate) struct Terminal {
    device: File,
    own: Pid,
}

impl Terminal {
    /// The terminal that controls this session, if one does.
    pub(crate) fn of_this_session() -> Option<Self> {
        let device = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        tcgetpgrp(&device).is_ok().then(|| Self { device, own: getpgrp() })
    }

    /// The group that may use the terminal; `None` once the terminal is gone.
    fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(&self.device).ok()
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.foreground() == Some(self.own)
    }

    pub(crate) fn is_with(&self, group: Pid) -> bool {
        self.foreground() == Some(group)
    }

    /// Gives the terminal to `group`, if we have it. A lost terminal or an ended group is no failure.
    pub(crate) fn give(&self, group: Pid) {
        if self.is_ours() {
            self.set_foreground(group);
        }
    }

    /// Takes the terminal back if `group` has it. Returns whether `group` had it.
    pub(crate) fn take_back(&self, group: Pid) -> bool {
        let had = self.is_with(group);
        if had {
            self.set_foreground(self.own);
        }
        had
    }

    /// A group in the background that changes the foreground is sent SIGTTOU unless that is blocked.
    fn set_foreground(&self, group: Pid) {
        undisturbed(|| {
            let _ = tcsetpgrp(&self.device, group);
        });
    }
}

/// Does `work` with the terminal, without a stop signal for background groups.
pub(crate) fn undisturbed<T>(work: impl FnOnce() -> T) -> T {
    let mut stop = SigSet::empty();
    stop.add(Signal::SIGTTOU);
    let before = stop.thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let done = work();
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
    done
}

/// Sends `signal` to our own process group, ourselves included: the keyboard would have sent it had the command been part of the group.
pub(crate) fn tell_our_group(signal: Signal) {
    let _ = kill(Pid::from_raw(0), signal);
}

/// Whether our process group is orphaned, so that no process could continue it after a stop (POSIX.1-2017, 3.269). Looks at this process
/// and its ancestors in the group: none of them has a parent in another group of the same session.
pub(crate) fn is_orphaned() -> bool {
    let (session, own) = (getsid(None), getpgrp());
    let mut parent = Some(getppid()).filter(|parent| parent.as_raw() > 0);
    while let Some(process) = parent {
        if getpgid(Some(process)) != Ok(own) {
            return getsid(Some(process)) != session;
        }
        parent = parent_of(process);
    }
    true
}
