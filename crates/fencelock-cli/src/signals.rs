//! The signals that fencelock passes on to the command, and those that it leaves alone.

use std::fs;

use nix::sys::signal::{SigSet, Signal};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::say::{Failure, Outcome};

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
}

impl Signals {
    /// Takes over the relayed signals and SIGCONT; those that whoever started fencelock chose to ignore (as `nohup`
    /// does) stay ignored, here and in the command. Needs a runtime.
    pub(crate) fn take_over() -> Outcome<Self> {
        let ignored = ignored();
        let (sender, arrived) = mpsc::unbounded_channel();
        let mut unblocked = SigSet::empty();
        for taken in RELAYED.into_iter().chain([Signal::SIGCONT]) {
            if taken != Signal::SIGCONT && ignored.contains(taken) {
                continue;
            }
            unblocked.add(taken);
            let kind = SignalKind::from_raw(taken as i32);
            let mut stream =
                signal(kind).map_err(|error| Failure::os(format_args!("cannot handle {taken}"), &error))?;
            let sender = sender.clone();
            tokio::spawn(async move { while stream.recv().await.is_some() && sender.send(taken).is_ok() {} });
        }
        // Whoever started us may have left them blocked; nothing would ever arrive.
        unblocked.thread_unblock().map_err(|error| Failure::os("cannot unblock signals", &error.into()))?;
        Ok(Self { arrived })
    }

    /// The next one.
    ///
    /// # Cancel safety
    /// No signal is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Signal {
        match self.arrived.recv().await {
            Some(signal) => signal,
            // The senders live as long as the runtime.
            None => std::future::pending().await,
        }
    }

    /// The next one that asks for an end.
    ///
    /// # Cancel safety
    /// As [`Signals::next`].
    pub(crate) async fn asked_to_end(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if matches!(signal, Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP | Signal::SIGQUIT) {
                return signal;
            }
        }
    }
}

/// The signals that this process ignores, as the kernel tells; none where it does not.
pub(crate) fn ignored() -> SigSet {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored_in(&status)
}

fn ignored_in(status: &str) -> SigSet {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default();
    Signal::iterator().filter(|signal| mask >> (*signal as i32 - 1) & 1 == 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_mask_of_ignored_signals_is_understood() {
        let set = ignored_in("Name:\tx\nSigIgn:\t0000000000001003\nSigCgt:\t0\n");
        let names: Vec<_> = set.iter().collect();
        assert_eq!(names, [Signal::SIGHUP, Signal::SIGINT, Signal::SIGPIPE]);
        assert_eq!(ignored_in("nothing").iter().count(), 0);
    }
}
