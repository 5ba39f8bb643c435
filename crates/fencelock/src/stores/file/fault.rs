//! What the kernel answered, as an error that names the path and what is allowed. One exhaustive mapping.

use std::fmt::Display;

use rustix::io::Errno;

use crate::error::{Error, ErrorKind};

/// The error for `errno`, met in `operation` at `path`.
pub(super) fn fault(operation: &'static str, path: impl Display, errno: Errno) -> Error {
    let (kind, message, retryable) = match errno {
        Errno::ACCESS | Errno::PERM => (
            ErrorKind::Denied,
            "permission denied; this user needs read, write and search permission on the lock directory and all in it",
            false,
        ),
        Errno::ROFS => (ErrorKind::Denied, "the file system is read-only; locks need a writable directory", false),
        Errno::NOSPC => (ErrorKind::Exhausted, "the file system is full; free some blocks or inodes", true),
        Errno::DQUOT => (ErrorKind::Exhausted, "the disk quota of this user is used up", true),
        Errno::MFILE => (
            ErrorKind::Exhausted,
            "this process has no file descriptor left (see `ulimit -n`); the store needs a few",
            true,
        ),
        Errno::NFILE => (ErrorKind::Exhausted, "the system has no file descriptor left (see fs.file-max)", true),
        Errno::NOMEM => (ErrorKind::Exhausted, "the kernel is out of memory", true),
        Errno::NOENT => (ErrorKind::Unreachable, "the lock directory, or a part of it, was removed", true),
        Errno::NOTDIR => (ErrorKind::Config, "not a directory; the path of a file: URL names a directory", false),
        Errno::NAMETOOLONG | Errno::LOOP => {
            (ErrorKind::Config, "the path is too long or holds a loop of symbolic links", false)
        }
        Errno::NXIO => (
            ErrorKind::Config,
            "something else (a pipe, a link, a directory) is in place of a file of the lock directory; remove it while nobody uses the directory",
            false,
        ),
        Errno::IO => (ErrorKind::Unreachable, "the disk reports an input/output error", true),
        Errno::MLINK => (ErrorKind::Exhausted, "the file system takes no more subdirectories here", false),
        _ => (ErrorKind::Internal, "an unexpected error of the file system", false),
    };
    let error = Error::new(kind, operation, message).with("path", path).caused_by(std::io::Error::from(errno));
    if retryable { error.retryable() } else { error }
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
