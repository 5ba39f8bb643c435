//! Calls of Linux alone: inotify, `getdents64`, the boot id.

use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{RawDir, RenameFlags, SeekFrom, inotify};
use tokio::net::unix::pipe::Receiver;

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

/// File systems whose locks, links and directory listings are known to do what this store needs.
const ALLOWED: &[(&str, u64)] = &[
    ("ext2/ext3/ext4", 0xef53),
    ("xfs", 0x5846_5342),
    ("btrfs", 0x9123_683e),
    ("zfs", 0x2fc1_2fc1),
    ("f2fs", 0xf2f5_2010),
    ("tmpfs", 0x0102_1994),
    ("overlay", 0x794c_7630),
];

/// The names of refused file systems (statfs(2), linux/magic.h), for the error.
const REFUSED: &[(&str, u64)] = &[
    ("nfs", 0x6969),
    ("cifs", 0xff53_4d42),
    ("smb2", 0xfe53_4d42),
    ("ceph", 0x00c3_6400),
    ("fuse (sshfs, virtiofs and others)", 0x6573_5546),
    ("9p", 0x0102_1997),
];

/// Refuses the file system of `fd`, unless it is an allowed one. The error has its name and the names of the allowed ones.
pub(super) fn check_file_system(fd: &OwnedFd) -> rustix::io::Result<Result<(), (String, String)>> {
    let magic = rustix::fs::fstatfs(fd)?.f_type as u64 & 0xffff_ffff;
    if ALLOWED.iter().any(|(_, allowed)| *allowed == magic) {
        return Ok(Ok(()));
    }
    let allowed: Vec<_> = ALLOWED.iter().map(|(name, _)| *name).collect();
    let known = REFUSED.iter().find(|(_, refused)| *refused == magic).map(|(name, _)| (*name).to_owned());
    Ok(Err((known.unwrap_or_else(|| format!("unknown, of type {magic:#x}")), allowed.join(" "))))
}

/// The id of this boot of the machine; `None` without `/proc`.
pub(super) fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

/// Calls `each` with the name of every entry of the directory, from its start; names that are not UTF-8 are left out.
pub(super) fn list(directory: &OwnedFd, mut each: impl FnMut(&str)) -> rustix::io::Result<()> {
    rustix::fs::seek(directory, SeekFrom::Start(0))?;
    let mut buffer = [MaybeUninit::uninit(); 32 * 1024];
    let mut entries = RawDir::new(directory, &mut buffer);
    while let Some(entry) = entries.next() {
        if let Ok(name) = entry?.file_name().to_str()
            && !matches!(name, "." | "..")
        {
            each(name);
        }
    }
    Ok(())
}

/// Renames within a directory, and fails with `EXIST` rather than replace anything.
pub(super) fn rename_new(directory: &OwnedFd, from: &str, to: &str) -> rustix::io::Result<()> {
    rustix::fs::renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE)
}

/// The kernel's events about files, read on the runtime that created it. To tokio it is something to read, like a pipe.
#[derive(Debug)]
pub(super) struct Notifier(Receiver);

/// The size of one read: 256 events without names.
const EVENTS: usize = 4096;
/// An event before its name: watch, what happened, a cookie, and the length of the name; each of four bytes.
const EVENT: usize = 16;

impl Notifier {
    /// Must be called on a runtime.
    pub(super) fn new() -> std::io::Result<Self> {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        Receiver::from_owned_fd_unchecked(inotify::init(flags)?).map(Self)
    }

    /// Watches `path` itself, even if it is a symbolic link.
    pub(super) fn add(&self, path: &str, interest: Interest) -> rustix::io::Result<i32> {
        use inotify::WatchFlags as Flags;
        let flags = match interest {
            Interest::Departure => Flags::DELETE_SELF,
            Interest::GrantOrDeparture => Flags::DELETE_SELF | Flags::MODIFY,
            Interest::SessionEnd => Flags::CLOSE_WRITE | Flags::DELETE_SELF,
            Interest::Touch => Flags::ATTRIB | Flags::DELETE_SELF | Flags::MOVE_SELF,
        };
        inotify::add_watch(self.0.as_fd(), path, flags | Flags::DONT_FOLLOW | Flags::MASK_ADD)
    }

    pub(super) fn remove(&self, watch: i32) {
        // The removal fails only for a watch that the kernel dropped already.
        let _ = inotify::remove_watch(self.0.as_fd(), watch);
    }

    /// Waits until something has happened.
    pub(super) async fn ready(&self) -> std::io::Result<()> {
        self.0.readable().await
    }

    /// Calls `each` with every event that has come.
    pub(super) fn drain(&self, mut each: impl FnMut(WatchEvent)) -> std::io::Result<()> {
        let mut buffer = [0; EVENTS];
        loop {
            let mut events = match self.0.try_read(&mut buffer) {
                Ok(length) => &buffer[..length],
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if events.is_empty() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            while let Some((event, length)) = parse(events) {
                each(event);
                events = events.get(length..).unwrap_or_default();
            }
        }
    }
}

/// The first of some events, and how many bytes it takes.
fn parse(events: &[u8]) -> Option<(WatchEvent, usize)> {
    let field = |at: usize| events.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let (watch, name) = (field(0)?.cast_signed(), field(12)?);
    let what = inotify::ReadFlags::from_bits_retain(field(4)?);
    let event = if what.contains(inotify::ReadFlags::QUEUE_OVERFLOW) {
        WatchEvent::Overflow
    } else if what.contains(inotify::ReadFlags::IGNORED) {
        WatchEvent::Over(watch)
    } else {
        WatchEvent::Changed(watch)
    };
    Some((event, EVENT + usize::try_from(name).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_taken_apart_with_and_without_names() {
        let event = |watch: i32, mask: u32, name: &[u8]| {
            let length = u32::try_from(name.len()).unwrap();
            [&watch.to_ne_bytes()[..], &mask.to_ne_bytes(), &[0; 4], &length.to_ne_bytes(), name].concat()
        };
        let bytes = [event(3, 0x200, b"a\0\0\0"), event(4, 0x8000, b""), event(-1, 0x4000, b"")].concat();
        let (mut rest, mut found) = (&bytes[..], Vec::new());
        while let Some((event, length)) = parse(rest) {
            found.push(event);
            rest = &rest[length..];
        }
        assert_eq!(found, [WatchEvent::Changed(3), WatchEvent::Over(4), WatchEvent::Overflow]);
        assert_eq!(parse(&bytes[..10]), None);
    }
}
