//! A resource that checks tokens, and refuses a token older than the newest accepted one.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::retry_on_intr;

use crate::history::RegisterLog;

/// A fenced register in a file, shared by processes. The register has its own locking, without fencelock.
///
/// The register decides under an exclusive `flock`, and logs each decision before the unlock, so that the order of its log is the
/// order of its decisions. A process that is stopped inside stops the other processes, until it continues or is killed.
#[derive(Debug)]
pub struct Resource {
    lock: String,
    newest: File,
    log: RegisterLog,
}

impl Resource {
    /// Opens the resource that the lock `lock` protects, in `directory`; `lock` is to be a file name.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn open(directory: &Path, lock: &str) -> io::Result<Self> {
        let path = directory.join(format!("resource-{lock}"));
        let newest = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        seize(&newest)?;
        let log = RegisterLog::open(&directory.join(format!("resource-{lock}.log")));
        flock(&newest, FlockOperation::Unlock)?;
        Ok(Self { lock: lock.to_owned(), newest, log: log? })
    }

    /// Writes with `token`, packed. Returns whether the resource accepted the write. Blocks.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn write(&self, token: i64) -> io::Result<bool> {
        seize(&self.newest)?;
        let accepted = self.decide(token);
        flock(&self.newest, FlockOperation::Unlock)?;
        accepted
    }

    fn decide(&self, token: i64) -> io::Result<bool> {
        let mut newest = [0; 8];
        let known = self.newest.read_at(&mut newest, 0)?;
        let accepted = known < newest.len() || token >= i64::from_le_bytes(newest);
        if accepted {
            // The register is written before the log: a process that dies in between has refused too much, and not accepted too much.
            self.newest.write_all_at(&token.to_le_bytes(), 0)?;
        }
        self.log.write(&self.lock, token, accepted)?;
        Ok(accepted)
    }
}

/// Waits for the exclusive `flock` of a file.
pub(crate) fn seize(file: &File) -> io::Result<()> {
    Ok(retry_on_intr(|| flock(file, FlockOperation::LockExclusive))?)
}
