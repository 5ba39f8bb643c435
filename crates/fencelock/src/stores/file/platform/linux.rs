//! Linux: inotify, `getdents64`, the boot id, `/proc/locks`.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{RawDir, RenameFlags, SeekFrom, inotify};
use rustix::io::Errno;

use super::{Event, Interest};

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

/// Refuses the file system of `fd`, by its number and the names of those that are allowed, unless it is one of them.
pub(in super::super) fn check_file_system(fd: &OwnedFd) -> rustix::io::Result<Result<(), (String, String)>> {
    let magic = rustix::fs::fstatfs(fd)?.f_type as u64 & 0xffff_ffff;
    if ALLOWED.iter().any(|(_, allowed)| *allowed == magic) {
        return Ok(Ok(()));
    }
    let allowed: Vec<_> = ALLOWED.iter().map(|(name, _)| *name).collect();
    Ok(Err((format!("{magic:#x}"), allowed.join(" "))))
}

/// What changes with every boot of the machine.
pub(in super::super) fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

/// Calls `each` with the name of every entry of the directory, from its start; names that are not UTF-8 are left out.
pub(in super::super) fn list(directory: &OwnedFd, mut each: impl FnMut(&str)) -> rustix::io::Result<()> {
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
pub(in super::super) fn rename_new(directory: &OwnedFd, from: &str, to: &str) -> rustix::io::Result<()> {
    rustix::fs::renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE)
}

/// The process that holds a lock on the file with this inode number, if `/proc/locks` tells.
pub(in super::super) fn lock_holder(inode: u64) -> Option<u32> {
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1).filter(|field| *field != "->");
        let (kind, pid, file) = (fields.next()?, fields.nth(2)?, fields.next()?);
        let same = kind == "FLOCK" && file.rsplit(':').next()?.parse() == Ok(inode);
        same.then(|| pid.parse().ok()).flatten()
    })
}

/// The kernel's events about files.
#[derive(Debug)]
pub(in super::super) struct Notifier(OwnedFd);

impl Notifier {
    pub(in super::super) fn new() -> rustix::io::Result<Self> {
        inotify::init(inotify::CreateFlags::CLOEXEC).map(Self)
    }

    /// Watches `path` itself, even if it is a symbolic link.
    pub(in super::super) fn add(&self, path: &str, interest: Interest) -> rustix::io::Result<i32> {
        use inotify::WatchFlags as Flags;
        let flags = match interest {
            Interest::Departure => Flags::DELETE_SELF,
            Interest::GrantOrDeparture => Flags::DELETE_SELF | Flags::ATTRIB,
            Interest::SessionEnd => Flags::CLOSE_WRITE | Flags::DELETE_SELF,
            Interest::Touch => Flags::ATTRIB | Flags::DELETE_SELF | Flags::MOVE_SELF,
            Interest::AnyDeletion => Flags::DELETE | Flags::DELETE_SELF,
        };
        inotify::add_watch(&self.0, path, flags | Flags::DONT_FOLLOW | Flags::MASK_ADD)
    }

    pub(in super::super) fn remove(&self, watch: i32) {
        // It fails only for a watch that the kernel dropped already.
        let _ = inotify::remove_watch(&self.0, watch);
    }

    /// Waits for events and passes them on, for ever.
    pub(in super::super) fn run(&self, mut each: impl FnMut(Event)) -> Errno {
        let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
        let mut events = inotify::Reader::new(&self.0, &mut buffer);
        loop {
            let event = match events.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(errno) => return errno,
            };
            if event.events().contains(inotify::ReadFlags::QUEUE_OVERFLOW) {
                each(Event::Overflow);
            } else if event.events().contains(inotify::ReadFlags::IGNORED) {
                each(Event::Over(event.wd()));
            } else {
                each(Event::Changed(event.wd()));
            }
        }
    }
}
