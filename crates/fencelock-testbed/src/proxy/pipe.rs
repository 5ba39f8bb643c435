//! A direction of a connection: a queue of bytes, each with the time when it is due.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The fate of bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Mode {
    #[default]
    Pass,
    Hold,
    Swallow,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<(Instant, Vec<u8>)>,
    mode: Mode,
    /// The source has ended.
    ended: bool,
    /// Nothing more goes out.
    closed: bool,
    lost_bytes: bool,
}

#[derive(Debug, Default)]
pub(super) struct Pipe {
    state: Mutex<State>,
    changed: Condvar,
}

impl Pipe {
    pub(super) fn new(mode: Mode) -> Self {
        Self { state: Mutex::new(State { mode, ..State::default() }), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.state());
        self.changed.notify_all();
        changed
    }

    /// Takes bytes that are due `delay` from now.
    pub(super) fn push(&self, bytes: &[u8], delay: Duration) {
        let due = Instant::now() + delay;
        self.change(|state| {
            if !state.closed {
                state.queue.push_back((due, bytes.to_vec()));
            }
        });
    }

    /// Nothing more will be pushed.
    pub(super) fn end(&self) {
        self.change(|state| state.ended = true);
    }

    /// No reader takes bytes any more.
    pub(super) fn close(&self) {
        self.change(|state| state.closed = true);
    }

    pub(super) fn set(&self, mode: Mode) {
        self.change(|state| state.mode = mode);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().closed
    }

    pub(super) fn lost_bytes(&self) -> bool {
        self.state().lost_bytes
    }

    /// The next bytes, once they are due and may pass; `None` when there are none and never will be.
    pub(super) fn pop(&self) -> Option<Vec<u8>> {
        loop {
            let due = self.wait_for_bytes()?;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let popped = self.change(|state| match state.mode {
                Mode::Hold => None,
                Mode::Pass if !state.lost_bytes => state.queue.pop_front(),
                // No reader could make sense of the rest of a stream that lost bytes.
                Mode::Pass | Mode::Swallow => {
                    state.lost_bytes |= state.queue.pop_front().is_some();
                    None
                }
            });
            if let Some((_, bytes)) = popped {
                return Some(bytes);
            }
        }
    }

    /// When the first bytes are due, once there are some that are not held back.
    fn wait_for_bytes(&self) -> Option<Instant> {
        let mut state = self.state();
        loop {
            let held = state.mode == Mode::Hold;
            match state.queue.front() {
                _ if state.closed => return None,
                Some((due, _)) if !held => return Some(*due),
                // The end of a stream whose bytes are held back or dropped does not arrive either.
                None if state.ended && state.mode == Mode::Pass => return None,
                _ => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}
