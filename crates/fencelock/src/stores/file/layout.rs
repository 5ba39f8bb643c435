//! The bytes on disk: a directory of ours, made once and checked at every opening.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;

use super::breaks::BREAKS;
use super::config::Config;
use super::fault::fault;
use super::files::{READ_DIRECTORY, exists, make_directory, make_file, open_file, read};
use super::linux;
use super::notes::NOTES;
use super::trust::{self, Modes};
use crate::error::{Error, ErrorKind, Result};
use crate::kit::bucket;

/// The content of the file `layout`.
const LAYOUT: &str = "fencelock file layout 1\n";
/// The name of the layout in the capability table.
pub(super) const LAYOUT_NAME: &str = "fencelock file layout 1";
/// The prefix of the temporary names of half-made files and directories.
pub(super) const TEMPORARY: &str = "tmp.";
/// The file of the last number drawn in each bucket: 4096 times 8 bytes, big endian.
pub(super) const COUNTERS: &str = "counters";
/// The file with the upper limit of all numbers so far.
pub(super) const CEILING: &str = "ceiling";
/// The directory of the session files.
pub(super) const SESSIONS: &str = "sessions";
/// The directory of the bucket directories.
pub(super) const BUCKETS: &str = "b";
/// The names that a directory may have before it is set up.
const EXPECTED: &[&str] = &[COUNTERS, CEILING, SESSIONS, BUCKETS, BREAKS, NOTES, "layout", "lost+found"];

/// A directory that is open, ours, and of this layout.
#[derive(Debug)]
pub(super) struct Root {
    pub(super) fd: OwnedFd,
    pub(super) sessions: OwnedFd,
    pub(super) counters: OwnedFd,
    pub(super) modes: Modes,
    pub(super) identity: (u64, u64),
}

pub(super) fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Opens the directory, which may not be ours yet; makes it with mode 0700 when it is missing.
pub(super) fn open_directory(config: &Config) -> Result<OwnedFd> {
    let path = config.path.as_str();
    let open = || rustix::fs::open(path, READ_DIRECTORY.difference(OFlags::NOFOLLOW), Mode::empty());
    match open() {
        Ok(fd) => return Ok(fd),
        Err(Errno::NOENT) if config.create => {}
        Err(Errno::NOENT) => {
            return Err(Error::new(ErrorKind::Config, "open", "the lock directory does not exist, and create=false")
                .with("path", path));
        }
        Err(errno) => return Err(fault("open", path, errno)),
    }
    match rustix::fs::mkdir(path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => open().map_err(|errno| fault("open", path, errno)),
        Err(Errno::NOENT) => Err(Error::new(
            ErrorKind::Config,
            "open",
            "neither the lock directory nor its parent exists; only the directory itself is made when it is missing",
        )
        .with("path", path)),
        Err(errno) => Err(fault("create directory", path, errno)),
    }
}

impl Root {
    /// Checks the file system, users and layout, and sets up a new directory with `first_ceiling` as its file `ceiling`.
    pub(super) fn prepare(config: &Config, fd: OwnedFd, first_ceiling: &str) -> Result<Self> {
        let path = config.path.as_str();
        let failed = |errno| fault("open", path, errno);
        if let Err((found, allowed)) = linux::check_file_system(&fd).map_err(failed)? {
            return Err(Error::new(ErrorKind::Unsupported, "open", "locks on this file system cannot be trusted; name a directory on a local disk, as in file:///var/lib/locks, or a store that has a server")
                .with("path", path)
                .with("file system", found)
                .with("allowed", allowed));
        }
        let stat = rustix::fs::fstat(&fd).map_err(failed)?;
        trust::check(path, &stat)?;
        let modes = Modes::of(&stat);
        if !check_layout(path, &fd)? {
            refuse_strangers(path, &fd)?;
            set_up(path, &fd, modes, first_ceiling)?;
        }
        let part = |name: &'static str, mode: Mode, opened: rustix::io::Result<OwnedFd>| {
            if opened.as_ref().is_err_and(|errno| *errno == Errno::NOENT)
                && rustix::fs::fstat(&fd).map_err(failed)?.st_nlink > 0
            {
                return Err(incomplete(path, name));
            }
            let tightened = opened.and_then(|part| modes.tighten(&part, mode).map(|()| part));
            tightened.map_err(|errno| fault("open", format_args!("{path}/{name}"), errno))
        };
        let listed = |name: &'static str| rustix::fs::openat(&fd, name, READ_DIRECTORY, Mode::empty());
        let sessions = part(SESSIONS, modes.directory, listed(SESSIONS))?;
        // A user without the right to write may look. To take a lock, a client first makes a file for its session, which fails here.
        let counters = open_file(&fd, COUNTERS, OFlags::RDWR).or_else(|errno| match errno {
            Errno::ACCESS | Errno::PERM | Errno::ROFS => open_file(&fd, COUNTERS, OFlags::RDONLY),
            errno => Err(errno),
        });
        let counters = part(COUNTERS, modes.file, counters)?;
        part(BUCKETS, modes.directory, listed(BUCKETS))?;
        Ok(Self { sessions, counters, modes, identity: identity(&stat), fd })
    }
}

/// The error for a directory of ours without one of its parts. If a process made the part again, two processes could use different ones.
fn incomplete(path: &str, part: &str) -> Error {
    let message = "a part of the lock directory was removed, perhaps by a cleaner of old files, so no process can join: once no process uses the directory any more, remove what is left of it, and the next use makes it anew";
    Error::new(ErrorKind::Layout, "open", message).with("missing", format_args!("{path}/{part}"))
}

/// Whether the directory is ours; an error if it has another layout.
fn check_layout(path: &str, root: &OwnedFd) -> Result<bool> {
    let Some(found) = read(root, "layout").map_err(|errno| fault("open", format_args!("{path}/layout"), errno))? else {
        return Ok(false);
    };
    let found = String::from_utf8_lossy(&found);
    if found == LAYOUT {
        return Ok(true);
    }
    let shown: String = found.chars().take(80).filter(|character| !character.is_control()).collect();
    Err(Error::new(ErrorKind::Layout, "open", "this release understands another layout of lock directories")
        .with("path", path)
        .with("found", format_args!("{shown:?}"))
        .with("understood", format_args!("{LAYOUT_NAME:?}")))
}

/// A directory that holds other things is no lock directory, and must not become one by a slip in a URL.
fn refuse_strangers(path: &str, root: &OwnedFd) -> Result<()> {
    let mut stranger = None;
    linux::list(root, |name| {
        if !EXPECTED.contains(&name) && !name.starts_with(TEMPORARY) {
            stranger = Some(name.to_owned());
        }
    })
    .map_err(|errno| fault("open", path, errno))?;
    match stranger {
        None => Ok(()),
        Some(stranger) => Err(Error::new(
            ErrorKind::Config,
            "open",
            "the directory holds other things; a lock directory is one that fencelock made, or an empty one",
        )
        .with("path", path)
        .with("found", stranger)),
    }
}

/// The layout comes last: a process that sees it sees everything. Two processes may do this at the same time.
fn set_up(path: &str, root: &OwnedFd, modes: Modes, first_ceiling: &str) -> Result<()> {
    let inside = |name: &'static str| move |errno| fault("set up", format_args!("{path}/{name}"), errno);
    make_directory(root, SESSIONS, modes, modes.directory).map_err(inside(SESSIONS))?;
    make_directory(root, BUCKETS, modes, modes.directory).map_err(inside(BUCKETS))?;
    // The order matters: a concurrent set-up makes the counters before `sessions` and `b` have any content.
    let was_used =
        is_used(root, SESSIONS).map_err(inside(SESSIONS))? || is_used(root, BUCKETS).map_err(inside(BUCKETS))?;
    if was_used && !exists(root, COUNTERS).map_err(inside(COUNTERS))? {
        return Err(incomplete(path, COUNTERS));
    }
    // Written out in full, so that drawing a number never needs a new block.
    let counters = [0; bucket::BUCKETS as usize * 8];
    make_file(root, COUNTERS, &counters, modes).map_err(inside(COUNTERS))?;
    make_file(root, CEILING, first_ceiling.as_bytes(), modes).map_err(inside(CEILING))?;
    // Synced before the layout, in case the file system changes the order.
    rustix::fs::fsync(root).map_err(|errno| fault("set up", path, errno))?;
    make_file(root, "layout", LAYOUT.as_bytes(), modes).map_err(inside("layout"))?;
    rustix::fs::fsync(root).map_err(|errno| fault("set up", path, errno))
}

/// Whether anything is in this directory within `root`.
fn is_used(root: &OwnedFd, name: &str) -> rustix::io::Result<bool> {
    let mut is_used = false;
    linux::list(&rustix::fs::openat(root, name, READ_DIRECTORY, Mode::empty())?, |_| is_used = true)?;
    Ok(is_used)
}
