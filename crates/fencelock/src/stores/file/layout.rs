//! The bytes on disk: a directory of ours, made once and checked at every opening.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::config::Config;
use super::fault::fault;
use super::platform;
use crate::error::{Error, ErrorKind, Result};

/// What the file `layout` says.
const LAYOUT: &str = "fencelock file layout 1\n";
/// The name of the layout in the capability table.
pub(super) const LAYOUT_NAME: &str = "fencelock file layout 1";
/// What the temporary names of half-made files and directories start with.
pub(super) const TEMPORARY: &str = "tmp.";
/// The file of the last number drawn in each bucket: 4096 times 8 bytes, big endian.
pub(super) const COUNTERS: &str = "counters";
/// The file of the number that none drawn so far reached.
pub(super) const CEILING: &str = "ceiling";
/// The directory of the session files.
pub(super) const SESSIONS: &str = "sessions";
/// The directory of the bucket directories.
pub(super) const BUCKETS: &str = "b";
/// What may be in a directory that is not ours yet.
const EXPECTED: &[&str] = &[COUNTERS, CEILING, SESSIONS, BUCKETS, "layout", "lost+found"];

pub(super) const READ_DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

/// The permission bits of everything inside, taken from the directory itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Modes {
    pub(super) file: Mode,
    pub(super) directory: Mode,
    /// The group that everything inside belongs to, when it is more than a name.
    group: Option<Gid>,
}

impl Modes {
    fn of(root: &Stat) -> Self {
        let bits = Mode::from_raw_mode(root.st_mode);
        let inherited = bits & (Mode::RWXU | Mode::RWXG | Mode::RWXO | Mode::SGID);
        let execute = Mode::XUSR | Mode::XGRP | Mode::XOTH | Mode::SGID;
        let group = bits.intersects(Mode::RWXG).then(|| Gid::from_raw(root.st_gid));
        Self { file: inherited & !execute, directory: inherited, group }
    }

    /// Gives an open file or directory the group and then the mode, since a change of the group takes bits away.
    pub(super) fn apply(&self, fd: impl AsFd, mode: Mode) -> rustix::io::Result<()> {
        if let Some(group) = self.group
            && rustix::fs::fstat(&fd)?.st_gid != group.as_raw()
        {
            // Refused to who is not in the group; the permissions of everybody else hold then.
            let _ = rustix::fs::fchown(&fd, None, Some(group));
        }
        rustix::fs::fchmod(&fd, mode)
    }
}

/// A directory that is open, ours, and of this layout.
#[derive(Debug)]
pub(super) struct Root {
    pub(super) fd: OwnedFd,
    pub(super) sessions: OwnedFd,
    pub(super) counters: OwnedFd,
    pub(super) modes: Modes,
    pub(super) identity: (u64, u64),
}

/// Which directory `stat` is of.
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
    /// Checks the file system and the layout, and makes what is missing in a new directory. `first_ceiling` is the
    /// content of the file `ceiling` then.
    pub(super) fn prepare(path: &str, fd: OwnedFd, first_ceiling: &str) -> Result<Self> {
        let failed = |errno| fault("open", path, errno);
        if let Err((found, allowed)) = platform::check_file_system(&fd).map_err(failed)? {
            return Err(Error::new(ErrorKind::Unsupported, "open", "locks on this file system cannot be trusted")
                .with("path", path)
                .with("file system", found)
                .with("allowed", allowed));
        }
        let stat = rustix::fs::fstat(&fd).map_err(failed)?;
        let modes = Modes::of(&stat);
        if !check_layout(path, &fd)? {
            refuse_strangers(path, &fd)?;
            set_up(path, &fd, modes, first_ceiling)?;
        }
        let inside = |name: &'static str, flags: OFlags| {
            rustix::fs::openat(&fd, name, flags, Mode::empty())
                .map_err(|errno| fault("open", format_args!("{path}/{name}"), errno))
        };
        let sessions = inside(SESSIONS, READ_DIRECTORY)?;
        let counters = inside(COUNTERS, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW)?;
        Ok(Self { sessions, counters, modes, identity: identity(&stat), fd })
    }
}

/// Whether the directory is ours; an error when it is of another layout.
fn check_layout(path: &str, root: &OwnedFd) -> Result<bool> {
    let Some(found) = read(root, "layout").map_err(|errno| fault("open", format_args!("{path}/layout"), errno))? else {
        return Ok(false);
    };
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
    platform::list(root, |name| {
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

/// The layout comes last: who sees it sees everything. Two processes may do this at the same time.
fn set_up(path: &str, root: &OwnedFd, modes: Modes, first_ceiling: &str) -> Result<()> {
    let inside = |name: &'static str| move |errno| fault("set up", format_args!("{path}/{name}"), errno);
    make_directory(root, SESSIONS, modes).map_err(inside(SESSIONS))?;
    make_directory(root, BUCKETS, modes).map_err(inside(BUCKETS))?;
    // Written out in full, so that drawing a number never needs a new block.
    let counters = [0; super::ticket::BUCKETS as usize * 8];
    make_file(root, COUNTERS, &counters, modes).map_err(inside(COUNTERS))?;
    make_file(root, CEILING, first_ceiling.as_bytes(), modes).map_err(inside(CEILING))?;
    // On disk before the layout is, whatever order the file system likes.
    rustix::fs::fsync(root).map_err(|errno| fault("set up", path, errno))?;
    make_file(root, "layout", LAYOUT.as_bytes(), modes).map_err(inside("layout"))?;
    rustix::fs::fsync(root).map_err(|errno| fault("set up", path, errno))
}

/// Makes a directory that is never seen without its permissions; one that is there already stays.
pub(super) fn make_directory(parent: &OwnedFd, name: &str, modes: Modes) -> rustix::io::Result<()> {
    let temporary = temporary_name();
    rustix::fs::mkdirat(parent, temporary.as_str(), modes.directory)?;
    let made = rustix::fs::openat(parent, temporary.as_str(), READ_DIRECTORY, Mode::empty())
        .and_then(|directory| modes.apply(directory, modes.directory))
        .and_then(|()| platform::rename_new(parent, &temporary, name));
    match made {
        Ok(()) => Ok(()),
        Err(errno) => {
            let _ = rustix::fs::unlinkat(parent, temporary.as_str(), AtFlags::REMOVEDIR);
            if errno == Errno::EXIST { Ok(()) } else { Err(errno) }
        }
    }
}

/// Makes a file that is never seen without its content; one that is there already stays.
fn make_file(parent: &OwnedFd, name: &str, content: &[u8], modes: Modes) -> rustix::io::Result<()> {
    let temporary = write_temporary(parent, content, modes)?;
    let linked = rustix::fs::linkat(parent, temporary.as_str(), parent, name, AtFlags::empty());
    let _ = rustix::fs::unlinkat(parent, temporary.as_str(), AtFlags::empty());
    if linked == Err(Errno::EXIST) { Ok(()) } else { linked }
}

/// Replaces a file so that a power cut leaves the old content or the new one. The caller keeps everybody else out.
pub(super) fn replace_file(parent: &OwnedFd, name: &str, content: &[u8], modes: Modes) -> rustix::io::Result<()> {
    let temporary = write_temporary(parent, content, modes)?;
    let renamed = rustix::fs::renameat(parent, temporary.as_str(), parent, name);
    if renamed.is_err() {
        let _ = rustix::fs::unlinkat(parent, temporary.as_str(), AtFlags::empty());
    }
    match renamed {
        // In a sticky directory (as /tmp is) nobody may replace the file of another user.
        Err(Errno::PERM | Errno::ACCESS) => overwrite(parent, name, content),
        renamed => renamed.and_then(|()| rustix::fs::fsync(parent)),
    }
}

/// Writes over a file of one block in one call.
fn overwrite(parent: &OwnedFd, name: &str, content: &[u8]) -> rustix::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    if rustix::io::pwrite(&file, content, 0)? != content.len() {
        return Err(Errno::NOSPC);
    }
    rustix::fs::ftruncate(&file, content.len() as u64)?;
    rustix::fs::fsync(&file)
}

fn write_temporary(parent: &OwnedFd, content: &[u8], modes: Modes) -> rustix::io::Result<String> {
    let temporary = temporary_name();
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(parent, temporary.as_str(), flags, modes.file)?;
    let written =
        write_all(&file, content).and_then(|()| modes.apply(&file, modes.file)).and_then(|()| rustix::fs::fsync(&file));
    if let Err(errno) = written {
        let _ = rustix::fs::unlinkat(parent, temporary.as_str(), AtFlags::empty());
        return Err(errno);
    }
    Ok(temporary)
}

pub(super) fn write_all(file: &OwnedFd, mut content: &[u8]) -> rustix::io::Result<()> {
    while !content.is_empty() {
        match rustix::io::write(file, content) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => content = &content[written..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// A small text file; `None` when it is missing.
pub(super) fn read(parent: &OwnedFd, name: &str) -> rustix::io::Result<Option<String>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = match rustix::fs::openat(parent, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let mut content = [0; 4096];
    let length = rustix::io::pread(&file, &mut content, 0)?;
    Ok(Some(String::from_utf8_lossy(&content[..length]).into_owned()))
}

/// A name that nobody else uses, and that a sweep recognises.
pub(super) fn temporary_name() -> String {
    let random = getrandom::u64().unwrap_or_else(|_| u64::from(std::process::id()));
    format!("{TEMPORARY}{}", super::ticket::base32(random, 13))
}
