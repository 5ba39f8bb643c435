//! A bar on a terminal that says how much of a long run has passed. Elsewhere the bar prints nothing.

use std::io::{self, IsTerminal as _, Write as _};

use crate::terminal::undisturbed;

const WIDTH: usize = 30;

/// The bar. Gone from the screen when it is dropped.
pub(crate) struct Progress(bool);

impl Progress {
    pub(crate) fn new() -> Self {
        Self(io::stderr().is_terminal())
    }

    /// Shows that `share` of 1 has passed, with `text` next to it.
    pub(crate) fn show(&self, share: f64, text: &str) {
        if self.0 {
            let share = share.clamp(0.0, 1.0);
            let done = "#".repeat((share * WIDTH as f64) as usize);
            let line = format!("\r\x1b[K[{done:·<WIDTH$}] {:3.0} % {text}", share * 100.0);
            let _ = undisturbed(|| io::stderr().lock().write_all(line.as_bytes()));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.0 {
            let _ = undisturbed(|| io::stderr().lock().write_all(b"\r\x1b[K"));
        }
    }
}
