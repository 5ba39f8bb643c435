//! The differences between operating systems, behind one set of functions. Linux is the one that is tested; elsewhere waiters poll, any
//! file system is taken, and a reboot looks like a restart.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod other;

#[cfg(target_os = "linux")]
pub(super) use linux::{KNOWS_FILE_SYSTEMS, Notifier, boot_id, check_file_system, list, rename_new};
#[cfg(not(target_os = "linux"))]
pub(super) use other::{KNOWS_FILE_SYSTEMS, Notifier, boot_id, check_file_system, list, rename_new};

/// The events that a watch of a path reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interest {
    /// A ticket: its deletion.
    Departure,
    /// A ticket: its deletion, or the mark that its owner sets when it is granted.
    GrantOrDeparture,
    /// A session file of another process: its closing by a writer, or its deletion.
    SessionEnd,
    /// The own session file: its deletion, or a touch.
    Touch,
}

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchEvent {
    /// An event of this watch has occurred.
    Changed(i32),
    /// The watch has ended: the kernel dropped it.
    Over(i32),
    /// Events were lost: anything may have happened.
    Overflow,
}
