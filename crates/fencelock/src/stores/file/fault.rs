//! The kernel's reply, as an error that names the path and what is allowed. A single exhaustive mapping.

use std::fmt::Display;

use rustix::io::Errno;

use crate::error::{Error, ErrorKind};
use crate::kit::fault::{Meaning, passing, refused};

/// The error for `errno`, met in `operation` at `path`.
pub(super) fn fault(operation: &'static str, path: impl Display, errno: Errno) -> Error {
    meaning(errno).of(operation).with("path", path).caused_by(std::io::Error::from(errno))
}

fn meaning(errno: Errno) -> Meaning {
    use ErrorKind::{Config, Denied, Exhausted, Internal, Unreachable};
    match errno {
        Errno::ACCESS | Errno::PERM => refused(
            Denied,
            "permission denied; this user needs read, write and search permission on the lock directory and all in it",
        ),
        Errno::ROFS => refused(Denied, "the file system is read-only; locks need a writable directory"),
        Errno::NOSPC => passing(Exhausted, "the file system is full; free some blocks or inodes"),
        Errno::DQUOT => passing(Exhausted, "the disk quota of this user is used up"),
        Errno::MFILE => {
            passing(Exhausted, "this process has no file descriptor left (see `ulimit -n`); the store needs a few")
        }
        Errno::NFILE => passing(Exhausted, "the system has no file descriptor left (see fs.file-max)"),
        Errno::NOMEM => passing(Exhausted, "the kernel is out of memory"),
        Errno::NOENT => passing(Unreachable, "the lock directory, or a part of it, was removed"),
        Errno::NOTDIR => refused(Config, "not a directory; the path of a file: URL names a directory"),
        Errno::NAMETOOLONG | Errno::LOOP => refused(Config, "the path is too long or holds a loop of symbolic links"),
        Errno::NXIO => refused(
            Config,
            "something else (a pipe, a link, a directory) is in place of a file of the lock directory; remove it while no process uses the directory",
        ),
        Errno::IO => passing(Unreachable, "the disk reports an input/output error"),
        Errno::MLINK => refused(Exhausted, "the file system takes no more subdirectories here"),
        _ => refused(Internal, "an unexpected error of the file system"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_of_the_kernel_has_its_kind_and_names_the_path() {
        let table = [
            (Errno::ACCESS, ErrorKind::Denied, false),
            (Errno::ROFS, ErrorKind::Denied, false),
            (Errno::NOSPC, ErrorKind::Exhausted, true),
            (Errno::DQUOT, ErrorKind::Exhausted, true),
            (Errno::MFILE, ErrorKind::Exhausted, true),
            (Errno::NOENT, ErrorKind::Unreachable, true),
            (Errno::NOTDIR, ErrorKind::Config, false),
            (Errno::NXIO, ErrorKind::Config, false),
            (Errno::IO, ErrorKind::Unreachable, true),
            (Errno::BADF, ErrorKind::Internal, false),
        ];
        for (errno, kind, retryable) in table {
            let error = fault("open", "/var/lib/locks", errno);
            assert_eq!((error.kind(), error.is_retryable()), (kind, retryable), "{errno:?}");
            assert!(error.to_string().contains("/var/lib/locks"), "{error}");
        }
    }
}
