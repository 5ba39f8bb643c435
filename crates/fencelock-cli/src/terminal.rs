//! Who may use the terminal: fencelock's process group, or that of the command it runs.
//!
//! The command gets it when it was stopped for want of it, and not before: until then the keyboard's signals reach fencelock's
//! group, with the script and the pipeline around it.

use std::fs::{self, File, OpenOptions};

use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill};
use nix::unistd::{Pid, getpgid, getpgrp, getppid, getsid, tcgetpgrp, tcsetpgrp};

/// The controlling terminal, whatever stdin is.
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

    /// The group that may use it; `None` once it is gone.
    fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(&self.device).ok()
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
            self.set_foreground(group);
        }
    }

    /// Takes it back from `group`; whether that had it.
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

/// Does `work` with the terminal without being asked to stop for it.
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

/// Sends `signal` to our own process group, ourselves included: what the keyboard would have sent had the command been part of it.
pub(crate) fn tell_our_group(signal: Signal) {
    let _ = kill(Pid::from_raw(0), signal);
}

/// Whether nobody could continue our process group once it was stopped: no member of it that is an ancestor of ours (or we)
/// has a parent in another group of the same session. (POSIX.1-2017, 3.269 "Orphaned Process Group".)
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

fn parent_of(process: Pid) -> Option<Pid> {
    let parent = stat_of(process)?.get(1)?.parse().ok()?;
    (parent > 0).then(|| Pid::from_raw(parent))
}

/// Whether somebody in `group` is stopped. `false` without `/proc`.
pub(crate) fn is_somebody_stopped(group: Pid) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    let numbers = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_stopped = |process: i32| {
        let stat = stat_of(Pid::from_raw(process))?;
        Some(stat.first()? == "T" && stat.get(2)?.parse() == Ok(group.as_raw()))
    };
    numbers.filter_map(is_stopped).any(|stopped| stopped)
}

/// Whether `process` is stopped now. `None` without `/proc`.
pub(crate) fn is_stopped(process: Pid) -> Option<bool> {
    stat_of(process).map(|stat| stat.first().is_some_and(|state| state == "T"))
}

/// What the kernel tells of a process after its name: state, parent, group, session (proc(5)).
fn stat_of(process: Pid) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is the program's name in parentheses, which may hold anything.
    Some(stat.rsplit_once(')')?.1.split_whitespace().take(4).map(str::to_owned).collect())
}
