//! The signals that fencelock passes on to the command, and those that it leaves alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigSet, Signal};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::processes::ignored;
use crate::say::{Failure, Outcome};
use crate::stops::Stops;
use crate::terminal::is_orphaned;

/// Passed on to the command's process group.
const RELAYED: [Signal; 7] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];

/// The signals that arrive from now on.
pub(crate) struct Signals {
    arrived: mpsc::UnboundedReceiver<Signal>,
    /// Set by the handlers: somebody asked for an end, and [`next`](Self::next) has not told it yet.
    end_asked: Arc<AtomicBool>,
    stops: Stops,
}

impl Signals {
    /// Takes over the relayed signals, those that stop, SIGCONT and SIGCHLD; those that whoever started fencelock chose to
    /// ignore (as `nohup` does) stay ignored, here and in the command. Needs a runtime, on the main thread, before any other thread
    /// is started.
    pub(crate) fn take_over() -> Outcome<Self> {
        let ignored = ignored();
        let (sender, arrived) = mpsc::unbounded_channel();
        let end_asked = Arc::new(AtomicBool::new(false));
        let mut unblocked = SigSet::empty();
        for taken in RELAYED.into_iter().chain([Signal::SIGCHLD]) {
            if taken != Signal::SIGCHLD && ignored.contains(taken) {
                continue;
            }
            unblocked.add(taken);
            let kind = SignalKind::from_raw(taken as i32);
            let not_handled = |error| Failure::os(format_args!("cannot handle {taken}"), &error);
            if asks_for_an_end(taken) {
                signal_hook::flag::register(taken as i32, end_asked.clone()).map_err(not_handled)?;
            }
            let mut stream = signal(kind).map_err(not_handled)?;
            let sender = sender.clone();
            tokio::spawn(async move { while stream.recv().await.is_some() && sender.send(taken).is_ok() {} });
        }
        // Whoever started us may have left them blocked; nothing would ever arrive.
        unblocked.thread_unblock().map_err(|error| Failure::os("cannot unblock signals", &error.into()))?;
        let stops = Stops::keep(&ignored).map_err(|error| Failure::os("cannot wait for signals", &error))?;
        Ok(Self { arrived, end_asked, stops })
    }

    /// The next one. One that asks for a stop comes again until it is [followed](Self::stop) or [refused](Self::refuse).
    ///
    /// # Cancel safety
    /// No signal is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            biased;
            // The senders live as long as the runtime.
            Some(signal) = self.arrived.recv() => {
                if asks_for_an_end(signal) {
                    self.end_asked.store(false, Ordering::Relaxed);
                }
                signal
            }
            signal = self.stops.next() => signal,
        }
    }

    /// The next one that asks for an end. Nothing runs yet that must not run on without us: who is asked to stop stops.
    ///
    /// # Cancel safety
    /// As [`Signals::next`].
    pub(crate) async fn asked_to_end(&mut self) -> Signal {
        loop {
            match self.next().await {
                signal if asks_for_an_end(signal) => return signal,
                stop @ (Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU) if is_orphaned() => self.refuse(stop),
                stop @ (Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU) => self.stop(stop),
                _ => {}
            }
        }
    }

    /// Stops us as `signal` asked; returns once somebody has continued us, at once if that has happened already. Nobody is stopped
    /// who was asked to end and was not told it yet: a shell that ends a stopped job continues it once, and once only.
    pub(crate) fn stop(&self, signal: Signal) {
        if self.end_asked.load(Ordering::Relaxed) {
            return self.refuse(signal);
        }
        self.stops.stop(signal);
    }

    /// We do not stop as `signal` asked.
    pub(crate) fn refuse(&self, signal: Signal) {
        self.stops.refuse(signal);
    }
}

/// Whether `signal` asks a program to end, and one that was stopped could not.
pub(crate) fn asks_for_an_end(signal: Signal) -> bool {
    matches!(signal, Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP | Signal::SIGQUIT)
}

/// Dies of `signal`, so that whoever waits for us, a shell in a loop, sees that it was a signal; without a dump of memory. Returns
/// where the kernel lets no signal end this process, as it does with the first one of a container.
pub(crate) fn die_of(signal: Signal) {
    if nix::unistd::getpid().as_raw() == 1 {
        return;
    }
    let _ = nix::sys::prctl::set_dumpable(false);
    let _ = signal_hook::low_level::emulate_default_handler(signal as i32);
}
