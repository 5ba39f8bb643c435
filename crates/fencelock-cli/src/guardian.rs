//! The guardian: a process in a session of its own that ends the command's whole group when fencelock cannot.
//!
//! fencelock can be killed or stopped, and then neither renews the lock nor ends the command. The guardian holds the other end of a
//! pipe: when that closes, fencelock is dead. Through the pipe the guardian receives the group, and the moment until which the lock
//! is certain. A stopped fencelock does not prolong that moment, and the guardian kills the group then. The clock counts while the
//! machine sleeps.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Child, ChildStdin, Stdio};
use std::thread;
use std::time::Duration;

use clap::Args;
use fencelock::time::Moment;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::unistd::{Pid, chdir, setsid};

use crate::die_with_parent::ourselves;
use crate::output::{Failure, Outcome, never_wait, say};
use crate::processes::{close, to_close};

const VERB: &str = "guard";

/// fencelock's handle of the guardian. The drop kills the guardian: no group is left to guard.
pub(crate) struct Guardian {
    child: Child,
    orders: ChildStdin,
    ordered: Option<Moment>,
}

impl Guardian {
    /// Starts the guardian, and calls `gone` on a thread of its own once the guardian has ended.
    pub(crate) fn start(gone: impl FnOnce() + Send + 'static) -> Outcome<Self> {
        let failed = |error: &io::Error| Failure::os("cannot start the guardian of the command", error);
        let mut command = ourselves(VERB)?;
        command.args(to_close()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let (Some(orders), Some(mut answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed(&io::Error::other("no pipe")));
        };
        let guardian = Self { child, orders, ordered: None };
        // A guardian that was stopped reads nothing: a full pipe must not hold up fencelock.
        fcntl(&guardian.orders, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(|error| failed(&error.into()))?;
        answers.read_exact(&mut [0]).map_err(|error| failed(&error))?;
        thread::Builder::new()
            .name("fencelock-guard".to_owned())
            .spawn(move || {
                let _ = answers.read(&mut [0]);
                gone();
            })
            .map_err(|error| failed(&error))?;
        Ok(guardian)
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    pub(crate) fn guard(&mut self, group: Pid) {
        self.tell(&Order::Group(group));
    }

    pub(crate) fn until(&mut self, moment: Moment) {
        if self.ordered.replace(moment) != Some(moment) {
            self.tell(&Order::Until(moment));
        }
    }

    /// A lost order leaves the guardian too strict. The end of the guardian is noticed elsewhere.
    fn tell(&mut self, order: &Order) {
        let _ = self.orders.write_all(order.line().as_bytes());
    }
}

impl Drop for Guardian {
    /// A kill also ends a guardian that was stopped.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The messages of fencelock to its guardian: a line of text each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Group(Pid),
    Until(Moment),
}

impl Order {
    fn line(&self) -> String {
        match self {
            Self::Group(group) => format!("group {group}\n"),
            Self::Until(moment) => format!("until {}\n", moment.as_nanos()),
        }
    }

    fn of(line: &str) -> Option<Self> {
        let (word, number) = line.split_once(' ')?;
        match word {
            "group" => number.parse().ok().filter(|group| *group > 1).map(|group| Self::Group(Pid::from_raw(group))),
            "until" => number.parse().ok().map(|nanos| Self::Until(Moment::from_nanos(nanos))),
            _ => None,
        }
    }
}

/// Not for people: `run` starts this with a command whose lock can expire.
#[derive(Debug, Args)]
pub(crate) struct Guard {
    #[arg(long)]
    close: Vec<i32>,
}

impl Guard {
    /// Guards the group that it receives until its stdin closes.
    pub(crate) fn run(&self) -> Outcome<u8> {
        let failed = |error: Errno| Failure::os("the guardian cannot guard", &error.into());
        close(&self.close);
        // No keyboard and no closing terminal reaches a session of its own, and no supervisor's TERM ends it before fencelock.
        SigSet::all().thread_block().map_err(failed)?;
        setsid().map_err(failed)?;
        never_wait();
        let _ = chdir("/");
        let mut watch = Watch::new().map_err(failed)?;
        io::stdout().lock().write_all(b"+").and_then(|()| io::stdout().lock().flush())?;
        watch.keep().map_err(failed)?;
        Ok(0)
    }
}

struct Watch {
    timer: TimerFd,
    group: Option<Pid>,
    unread: String,
}

impl Watch {
    fn new() -> nix::Result<Self> {
        let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK)?;
        Ok(Self { timer, group: None, unread: String::new() })
    }

    fn keep(&mut self) -> nix::Result<()> {
        loop {
            let (ordered, is_over) = self.wait()?;
            // Reads the orders first: they may have prolonged the certainty.
            if ordered && !self.follow_orders()? {
                if self.end() {
                    say("fencelock was killed: its command was killed by the guardian");
                }
                return Ok(());
            }
            if is_over && !ordered && self.timer.wait().is_ok() {
                // fencelock reports the loss itself if it continues.
                self.end();
            }
        }
    }

    fn wait(&self) -> nix::Result<(bool, bool)> {
        let stdin = io::stdin();
        let mut both =
            [PollFd::new(stdin.as_fd(), PollFlags::POLLIN), PollFd::new(self.timer.as_fd(), PollFlags::POLLIN)];
        match poll(&mut both, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => Ok((both[0].any() == Some(true), both[1].any() == Some(true))),
            Err(error) => Err(error),
        }
    }

    /// Reads the available orders; `false` at the end.
    fn follow_orders(&mut self) -> nix::Result<bool> {
        let mut buffer = [0; 4096];
        let count = match nix::unistd::read(io::stdin(), &mut buffer) {
            Ok(0) => return Ok(false),
            Ok(count) => count,
            Err(Errno::EINTR | Errno::EAGAIN) => 0,
            Err(_) => return Ok(false),
        };
        self.unread.push_str(&String::from_utf8_lossy(&buffer[..count]));
        while let Some(end) = self.unread.find('\n') {
            let line: String = self.unread.drain(..=end).collect();
            match Order::of(line.trim_end()) {
                Some(Order::Group(group)) => self.group = Some(group),
                Some(Order::Until(moment)) => self.set_timer(moment)?,
                None => {}
            }
        }
        Ok(true)
    }

    fn set_timer(&self, moment: Moment) -> nix::Result<()> {
        if moment == Moment::NEVER {
            return self.timer.unset();
        }
        // A duration of zero would disarm the timer.
        let at = TimeSpec::from_duration(moment.since(Moment::ORIGIN).max(Duration::from_nanos(1)));
        self.timer.set(Expiration::OneShot(at), TimerSetTimeFlags::TFD_TIMER_ABSTIME)
    }

    /// Kills all processes of the group, stopped ones, too. Returns whether there was any.
    fn end(&self) -> bool {
        let killed = self.group.map(|group| killpg(group, Signal::SIGKILL));
        if killed == Some(Err(Errno::EPERM)) {
            say("the guardian cannot kill the command, which runs as another user and continues without the lock");
        }
        killed == Some(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_as_they_were_written() {
        for order in [Order::Group(Pid::from_raw(77)), Order::Until(Moment::from_nanos(5)), Order::Until(Moment::NEVER)]
        {
            assert_eq!(Order::of(order.line().trim_end()), Some(order));
        }
        for wrong in ["", "group", "group 0", "group 1", "group -1", "group x", "until -1", "stop 3"] {
            assert_eq!(Order::of(wrong), None, "{wrong}");
        }
    }
}
