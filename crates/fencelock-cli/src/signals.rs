//! The signals that fencelock handles: signals for the command, stop signals, SIGCONT, and the end of fencelock by a signal.
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
use tokio::signal::unix::{self, SignalKind};

use crate::output::{Failure, Outcome};
use crate::processes::ignored;
use crate::terminal::is_orphaned;

/// The stop signals: they would stop fencelock and not the command, which is in another group.
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

pub(crate) struct Signals {
    children: unix::Signal,
    /// Readable while any of [`kept`] is pending.
    any: AsyncFd<SignalFd>,
    /// Stop signals come last.
    each: Vec<(Signal, SignalFd)>,
    must_end: bool,
    is_hung_up: bool,
}

impl Signals {
    /// Takes over the signals that are passed on, the stop signals, SIGCONT and SIGCHLD. Signals that the parent of fencelock chose to
    /// ignore (as `nohup` does) stay ignored, here and in the command. Needs a runtime, on the main thread, before any other thread
    /// is started.
    pub(crate) fn take_over() -> Outcome<Self> {
        Self::block(&ignored()).map_err(|error| Failure::os("cannot wait for signals", &error))
    }

    /// Blocks the signals that are not `ignored`, and reads them from now on.
    fn block(ignored: &SigSet) -> io::Result<Self> {
        // The parent may have left the signal blocked, so that it would never arrive.
        SigSet::from(Signal::SIGCHLD).thread_unblock()?;
        let children = unix::signal(SignalKind::child())?;
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
        Ok(Self { children, any, each, must_end: false, is_hung_up: false })
    }

    /// The next signal. A request for a stop comes again until it is [followed](Self::stop) or [refused](Self::refuse).
    ///
    /// # Cancel safety
    /// No signal is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Signal {
        let signal = loop {
            let ready = tokio::select! {
                biased;
                Some(()) = self.children.recv() => break Signal::SIGCHLD,
                ready = self.any.readable() => ready,
            };
            let Ok(mut ready) = ready else { return std::future::pending().await };
            match self.each.iter().find(|(_, waiting)| is_there(waiting)) {
                Some((signal, _)) => break *signal,
                None => ready.clear_ready(),
            }
        };
        if !STOPPING.contains(&signal) {
            self.refuse(signal);
        }
        self.must_end |= matches!(signal, Signal::SIGTERM | Signal::SIGINT | Signal::SIGQUIT);
        self.is_hung_up |= signal == Signal::SIGHUP;
        signal
    }

    /// Whether an end was requested so far. HUP is not counted: many commands read their configuration anew at HUP.
    pub(crate) fn must_end(&self) -> bool {
        self.must_end
    }

    /// As [`Self::must_end`], also for HUP (the end of the terminal or connection): for a command that is no service.
    pub(crate) fn must_end_or_hung_up(&self) -> bool {
        self.must_end || self.is_hung_up
    }

    /// The next request for an end, or for a stop that a parent could continue.
    ///
    /// # Cancel safety
    /// As [`Signals::next`].
    pub(crate) async fn asked(&mut self) -> Signal {
        loop {
            match self.next().await {
                signal if asks_for_an_end(signal) => return signal,
                stop if STOPPING.contains(&stop) && is_orphaned() => self.refuse(stop),
                stop if STOPPING.contains(&stop) => return stop,
                _ => {}
            }
        }
    }

    /// The next request for an end. For a time without a bound command: a stop signal stops this process.
    ///
    /// # Cancel safety
    /// As [`Signals::next`].
    pub(crate) async fn asked_to_end(&mut self) -> Signal {
        loop {
            match self.asked().await {
                signal if asks_for_an_end(signal) => return signal,
                stop => self.stop(stop),
            }
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

/// The exit code of shells for a process that `signal` ended.
pub(crate) fn code_of(signal: Signal) -> u8 {
    128 + u8::try_from(signal as i32).unwrap_or(0)
}

/// Dies of `signal`, so that the parent, a shell in a loop, sees that it was a signal; without a dump of memory. Returns
/// where the kernel lets no signal end this process, as it does with the first one of a container.
pub(crate) fn die_of(signal: Signal) {
    if nix::unistd::getpid().as_raw() == 1 {
        return;
    }
    let _ = nix::sys::prctl::set_dumpable(false);
    let _ = signal_hook::low_level::emulate_default_handler(signal as i32);
}
