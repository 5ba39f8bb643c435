//! The signals that fencelock handles: signals that it passes on, signals that ask it to stop, and the one that continues it.
//!
//! The signals have no handlers. They are blocked, so that the kernel keeps them pending until fencelock reads them. So fencelock can
//! delay a stop until the command is stopped, and then stop by the same signal: the parent, a shell or another fencelock, sees which
//! one. A SIGCONT that arrives meanwhile cancels the stop, as the kernel does for every process. A request to end is seen at once,
//! whereas a handler may run late, on another thread.

use std::io;
use std::os::fd::AsFd as _;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Ask a process to stop: they would stop fencelock and not the command, which is in another group.
const STOPPING: [Signal; 3] = [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];

const RELAYED: [Signal; 7] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];

pub(crate) struct KeptSignals {
    any: AsyncFd<SignalFd>,
    /// Stop signals come last.
    each: Vec<(Signal, SignalFd)>,
}

impl KeptSignals {
    /// Blocks the signals that are not `ignored`, and reads them from now on. Threads that were started before do not block
    /// them. Needs a runtime.
    pub(crate) fn keep(ignored: &SigSet) -> io::Result<Self> {
        let is_kept = |signal: &Signal| *signal == Signal::SIGCONT || !ignored.contains(*signal);
        let kept: Vec<_> = every().filter(is_kept).collect();
        let all: SigSet = kept.iter().copied().collect();
        all.thread_block()?;
        let each = kept.into_iter().map(|signal| Ok((signal, waiting(&SigSet::from(signal))?)));
        let each = each.collect::<io::Result<_>>()?;
        #[expect(
            deprecated,
            reason = "sound for a SignalFd, which keeps its descriptor; what replaces it is unsafe to call"
        )]
        let any = AsyncFd::with_interest(waiting(&all)?, Interest::READABLE)?;
        Ok(Self { any, each })
    }

    /// Completes with the next signal. A request to stop stays pending until fencelock [stops](Self::stop) or
    /// [refuses](Self::refuse).
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn next(&self) -> Signal {
        loop {
            let Ok(mut ready) = self.any.readable().await else { return std::future::pending().await };
            let Some((signal, _)) = self.each.iter().find(|(_, waiting)| is_there(waiting)) else {
                ready.clear_ready();
                continue;
            };
            if !STOPPING.contains(signal) {
                self.refuse(*signal);
            }
            return *signal;
        }
    }

    /// Stops this process, if the stop by `signal` was not taken back meanwhile; returns once SIGCONT has continued it. A process with a
    /// pending request to end does not stop: a shell that ends a stopped job continues the job only once.
    pub(crate) fn stop(&self, signal: Signal) {
        if self.each.iter().any(|(kept, waiting)| asks_for_an_end(*kept) && is_there(waiting)) {
            return self.refuse(signal);
        }
        // The signal takes effect between these two lines.
        let only = SigSet::from(signal);
        let _ = only.thread_unblock();
        let _ = only.thread_block();
        // The SIGCONT that continued this process needs no answer.
        self.refuse(Signal::SIGCONT);
    }

    pub(crate) fn refuse(&self, signal: Signal) {
        for (_, waiting) in self.each.iter().filter(|(kept, _)| *kept == signal) {
            let _ = waiting.read_signal();
        }
    }
}

/// The signals that may be blocked, also in processes that this one starts.
pub(crate) fn kept() -> SigSet {
    every().collect()
}

/// Whether `signal` asks a program to end: a stopped program must be continued for that.
pub(crate) fn asks_for_an_end(signal: Signal) -> bool {
    matches!(signal, Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP | Signal::SIGQUIT)
}

fn every() -> impl Iterator<Item = Signal> {
    RELAYED.into_iter().chain([Signal::SIGCONT]).chain(STOPPING)
}

fn waiting(signals: &SigSet) -> io::Result<SignalFd> {
    Ok(SignalFd::with_flags(signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?)
}

fn is_there(waiting: &SignalFd) -> bool {
    poll(&mut [PollFd::new(waiting.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO).is_ok_and(|count| count > 0)
}
