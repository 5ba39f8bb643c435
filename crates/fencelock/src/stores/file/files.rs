//! Single files and directories. Opening trusts no existing entry; no other process sees a half-made one.

use std::io::Read as _;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::layout::TEMPORARY;
use super::linux;
use super::trust::Modes;

/// How much of a small file is read: notes are the longest, with 4096 bytes behind a line.
const LONGEST: u64 = 16 * 1024;

/// How a directory is opened to be listed.
pub(super) const READ_DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

/// Opens a file that is there already, and never blocks: a pipe in its place would block the opener until another process opens the other
/// end. [`Errno::NXIO`] for anything but a regular file.
pub(super) fn open_file(parent: &OwnedFd, name: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match rustix::fs::openat(parent, name, flags, Mode::empty()) {
        // A symbolic link.
        Err(Errno::LOOP) => return Err(Errno::NXIO),
        opened => opened?,
    };
    match FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) {
        FileType::RegularFile => Ok(file),
        _ => Err(Errno::NXIO),
    }
}

/// Makes a directory that is never seen without its permissions; an existing one stays.
pub(super) fn make_directory(parent: &OwnedFd, name: &str, modes: Modes, mode: Mode) -> rustix::io::Result<()> {
    let temporary = temporary_name();
    rustix::fs::mkdirat(parent, temporary.as_str(), mode)?;
    let made = rustix::fs::openat(parent, temporary.as_str(), READ_DIRECTORY, Mode::empty())
        .and_then(|directory| modes.apply(directory, mode))
        .and_then(|()| linux::rename_new(parent, &temporary, name));
    match made {
        Ok(()) => Ok(()),
        Err(errno) => {
            let _ = rustix::fs::unlinkat(parent, temporary.as_str(), AtFlags::REMOVEDIR);
            if errno == Errno::EXIST { Ok(()) } else { Err(errno) }
        }
    }
}

/// A temporary name of a file; its drop removes the name.
pub(super) struct Temporary<'a>(pub(super) &'a OwnedFd, pub(super) String);

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        let _ = remove(self.0, &self.1);
    }
}

/// Makes a file that is never seen without its content; an existing one stays.
pub(super) fn make_file(parent: &OwnedFd, name: &str, content: &[u8], modes: Modes) -> rustix::io::Result<()> {
    let temporary = write_temporary(parent, content, modes)?;
    let linked = rustix::fs::linkat(parent, temporary.1.as_str(), parent, name, AtFlags::empty());
    if linked == Err(Errno::EXIST) { Ok(()) } else { linked }
}

/// Replaces a file so that a power cut leaves the old content or the new one. The caller excludes all other writers.
pub(super) fn replace_file(parent: &OwnedFd, name: &str, content: &[u8], modes: Modes) -> rustix::io::Result<()> {
    let temporary = write_temporary(parent, content, modes)?;
    rustix::fs::renameat(parent, temporary.1.as_str(), parent, name).and_then(|()| rustix::fs::fsync(parent))
}

/// Writes a file to disk under a temporary name.
pub(super) fn write_temporary<'a>(
    parent: &'a OwnedFd,
    content: &[u8],
    modes: Modes,
) -> rustix::io::Result<Temporary<'a>> {
    let temporary = temporary_name();
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(parent, temporary.as_str(), flags, modes.file)?;
    let temporary = Temporary(parent, temporary);
    write_all(&file, content).and_then(|()| modes.apply(&file, modes.file)).and_then(|()| rustix::fs::fsync(&file))?;
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

/// The content of a small file, up to its limit; `None` when it is missing.
pub(super) fn read(parent: &OwnedFd, name: &str) -> rustix::io::Result<Option<Vec<u8>>> {
    let file = match open_file(parent, name, OFlags::RDONLY) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let mut content = Vec::new();
    std::fs::File::from(file).take(LONGEST).read_to_end(&mut content).map_err(|_| Errno::IO)?;
    Ok(Some(content))
}

/// A unique name, which a sweep recognises.
pub(super) fn temporary_name() -> String {
    let random = getrandom::u64().unwrap_or_else(|_| u64::from(std::process::id()));
    format!("{TEMPORARY}{random:016x}")
}

/// Whether there is anything at this path.
pub(super) fn exists(parent: &OwnedFd, path: &str) -> rustix::io::Result<bool> {
    was_there(rustix::fs::statat(parent, path, AtFlags::SYMLINK_NOFOLLOW).map(drop))
}

/// Removes a file or a link. Returns whether it was there.
pub(super) fn remove(parent: &OwnedFd, path: &str) -> rustix::io::Result<bool> {
    was_there(rustix::fs::unlinkat(parent, path, AtFlags::empty()))
}

/// Whether the operation found its target.
pub(super) fn was_there(done: rustix::io::Result<()>) -> rustix::io::Result<bool> {
    match done {
        Ok(()) => Ok(true),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
        Err(errno) => Err(errno),
    }
}
