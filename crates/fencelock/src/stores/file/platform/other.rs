//! Other systems: no notifications, so waiters poll.

use std::os::fd::OwnedFd;

use rustix::fs::Dir;
use rustix::io::Errno;

use super::{Interest, WatchEvent};

/// On any of them calls may wait for a network.
pub(in super::super) const KNOWS_FILE_SYSTEMS: bool = false;

/// Takes every file system.
pub(in super::super) fn check_file_system(_: &OwnedFd) -> rustix::io::Result<Result<(), (String, String)>> {
    Ok(Ok(()))
}

/// Unknown here: every opening of the directory counts as a new boot, which only skips some numbers.
pub(in super::super) fn boot_id() -> Option<String> {
    None
}

/// Calls `each` with the name of every entry of the directory, from its start; names that are not UTF-8 are left out.
pub(in super::super) fn list(directory: &OwnedFd, mut each: impl FnMut(&str)) -> rustix::io::Result<()> {
    let mut entries = Dir::read_from(directory)?;
    entries.rewind();
    for entry in entries {
        if let Ok(name) = entry?.file_name().to_str()
            && !matches!(name, "." | "..")
        {
            each(name);
        }
    }
    Ok(())
}

/// Renames within a directory, and fails with `EXIST` rather than replace anything that was there before.
pub(in super::super) fn rename_new(directory: &OwnedFd, from: &str, to: &str) -> rustix::io::Result<()> {
    match rustix::fs::statat(directory, to, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Err(Errno::EXIST),
        Err(_) => rustix::fs::renameat(directory, from, directory, to),
    }
}

/// There are no events.
#[derive(Debug)]
pub(in super::super) struct Notifier;

impl Notifier {
    pub(in super::super) fn new() -> std::io::Result<Self> {
        Err(Errno::NOSYS.into())
    }

    pub(in super::super) fn add(&self, _: &str, _: Interest) -> rustix::io::Result<i32> {
        Err(Errno::NOSYS)
    }

    pub(in super::super) fn remove(&self, _: i32) {}

    pub(in super::super) async fn ready(&self) -> std::io::Result<()> {
        std::future::pending().await
    }

    pub(in super::super) fn drain(&self, _: impl FnMut(WatchEvent)) -> std::io::Result<()> {
        Err(Errno::NOSYS.into())
    }
}
