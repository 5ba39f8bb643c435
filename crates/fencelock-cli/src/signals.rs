//! The signals that fencelock receives, and its end.

use nix::sys::signal::{SigSet, Signal};
use tokio::signal::unix::{self, SignalKind};

use crate::kept_signals::{KeptSignals, asks_for_an_end};
use crate::output::{Failure, Outcome};
use crate::processes::ignored;
use crate::terminal::is_orphaned;

pub(crate) struct Signals {
    children: unix::Signal,
    kept: KeptSignals,
    must_end: bool,
    is_hung_up: bool,
}

impl Signals {
    /// Takes over the signals that are passed on, the stop signals, SIGCONT and SIGCHLD. Signals that the parent of fencelock chose to
    /// ignore (as `nohup` does) stay ignored, here and in the command. Needs a runtime, on the main thread, before any other thread
    /// is started.
    pub(crate) fn take_over() -> Outcome<Self> {
        let not_handled = |error| Failure::os("cannot wait for signals", &error);
        // The parent may have left it blocked; nothing would ever arrive.
        SigSet::from(Signal::SIGCHLD).thread_unblock().map_err(|error| not_handled(error.into()))?;
        let children = unix::signal(SignalKind::child()).map_err(not_handled)?;
        let kept = KeptSignals::keep(&ignored()).map_err(not_handled)?;
        Ok(Self { children, kept, must_end: false, is_hung_up: false })
    }

    /// The next signal. A request for a stop comes again until it is [followed](Self::stop) or [refused](Self::refuse).
    ///
    /// # Cancel safety
    /// No signal is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Signal {
        let signal = tokio::select! {
            biased;
            Some(()) = self.children.recv() => Signal::SIGCHLD,
            signal = self.kept.next() => signal,
        };
        self.must_end |= matches!(signal, Signal::SIGTERM | Signal::SIGINT | Signal::SIGQUIT);
        self.is_hung_up |= signal == Signal::SIGHUP;
        signal
    }

    /// Whether an end was requested so far. HUP is not counted: many commands read their configuration anew at HUP.
    pub(crate) fn must_end(&self) -> bool {
        self.must_end
    }

    /// The same with HUP, for a command that is no service: its terminal or connection ended.
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
                stop @ (Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU) if is_orphaned() => self.refuse(stop),
                stop @ (Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU) => return stop,
                _ => {}
            }
        }
    }

    /// The next request for an end. No command runs that must not run on without us: a request to stop stops us.
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

    /// Stops us as `signal` asked; returns once SIGCONT has continued us, at once if that has happened already, or at a request
    /// for an end.
    pub(crate) fn stop(&self, signal: Signal) {
        self.kept.stop(signal);
    }

    pub(crate) fn refuse(&self, signal: Signal) {
        self.kept.refuse(signal);
    }
}

/// The exit code of a process that `signal` ended, as shells have it.
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
