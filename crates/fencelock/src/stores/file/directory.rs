//! An open lock directory, shared by all clients of it in this process.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use rustix::fs::{AtFlags, FlockOperation, Stat};
use rustix::io::Errno;

use super::bucket::Bucket;
use super::ceiling::Ceiling;
use super::config::Config;
use super::fault::fault;
use super::files;
use super::layout::{self, Root};
use super::linux;
use super::sessions::OwnSessions;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::bucket;
use crate::sync::Mutex;
use crate::time::Moment;

/// How many buckets' descriptors are kept open: far fewer than a process has by default.
const OPEN_BUCKETS: usize = 64;

/// The directories that each process has open, by device and inode. A forked child opens its own: a shared descriptor excludes neither.
type ByIdentity = HashMap<(u32, (u64, u64)), Weak<Directory>>;

/// A lock directory.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) path: String,
    pub(super) root: Root,
    /// The process that opened it.
    process: u32,
    pub(super) ceiling: Ceiling,
    pub(super) own_sessions: OwnSessions,
    /// When the next search for the dead of a process that only renews is due.
    pub(super) sweep_at: Mutex<Option<Moment>>,
    #[cfg(test)]
    pub(super) counts: super::tests::Counts,
    buckets: Mutex<HashMap<u16, Arc<Bucket>>>,
    /// How often a bucket was opened.
    open: AtomicUsize,
}

impl Directory {
    /// Opens the directory of `config`, or finds it open already.
    pub(super) fn open(config: &Config) -> Result<Arc<Self>> {
        static OPEN: LazyLock<Mutex<ByIdentity>> = LazyLock::new(Mutex::default);
        let fd = layout::open_directory(config)?;
        if config.apart {
            return Self::prepare(config, fd).map(Arc::new);
        }
        let stat = rustix::fs::fstat(&fd).map_err(|errno| fault("open", &config.path, errno))?;
        let mut open = OPEN.lock();
        open.retain(|_, directory| directory.strong_count() > 0);
        let known = open.get(&(std::process::id(), layout::identity(&stat))).and_then(Weak::upgrade);
        if let Some(directory) = known.filter(|directory| directory.path == config.path)
            && directory.is_intact().map_err(|errno| fault("open", &config.path, errno))?
        {
            return Ok(directory);
        }
        let directory = Arc::new(Self::prepare(config, fd)?);
        open.insert((directory.process, directory.root.identity), Arc::downgrade(&directory));
        Ok(directory)
    }

    fn prepare(config: &Config, fd: OwnedFd) -> Result<Self> {
        // Where the kernel shows no boot id, each opening counts as a boot, which only skips some numbers.
        let boot = config.boot.clone().or_else(linux::boot_id).unwrap_or_else(files::temporary_name);
        let root = Root::prepare(config, fd, &Ceiling::first(&boot)?)?;
        // systemd-tmpfiles skips a locked directory and its content. No other program uses this lock.
        let _ = rustix::fs::flock(&root.fd, FlockOperation::NonBlockingLockShared);
        Ok(Self {
            path: config.path.clone(),
            root,
            process: std::process::id(),
            ceiling: Ceiling::new(boot),
            own_sessions: OwnSessions::default(),
            sweep_at: Mutex::default(),
            #[cfg(test)]
            counts: Default::default(),
            buckets: Mutex::default(),
            open: AtomicUsize::new(0),
        })
    }

    /// Whether the path still leads to this directory and its sessions. If the kernel cannot say (no permission, a fault of the disk), the
    /// result is an error, not `false`: `false` ends every lock.
    pub(super) fn is_in_place(&self) -> rustix::io::Result<bool> {
        Ok(leads_to(rustix::fs::stat(&*self.path), self.root.identity)?
            && self.leads_to(layout::SESSIONS, layout::identity(&rustix::fs::fstat(&self.root.sessions)?))?)
    }

    /// Whether this path, from the root of the store, leads to the entry with this identity.
    pub(super) fn leads_to(&self, path: &str, identity: (u64, u64)) -> rustix::io::Result<bool> {
        leads_to(rustix::fs::statat(&self.root.fd, path, AtFlags::SYMLINK_NOFOLLOW), identity)
    }

    /// Whether later processes can use the directory, too: they need its counters, which processes that use it already have open.
    pub(super) fn is_intact(&self) -> rustix::io::Result<bool> {
        Ok(self.process == std::process::id()
            && self.is_in_place()?
            && rustix::fs::fstat(&self.root.counters)?.st_nlink > 0)
    }

    pub(super) fn bucket(&self, index: u16) -> Arc<Bucket> {
        let mut buckets = self.buckets.lock();
        Arc::clone(buckets.entry(index).or_insert_with(|| Arc::new(Bucket::new(index))))
    }

    /// Every bucket with state in this process.
    pub(super) fn known_buckets(&self) -> Vec<Arc<Bucket>> {
        self.buckets.lock().values().cloned().collect()
    }

    /// Every bucket that is on disk.
    pub(super) fn buckets_on_disk(&self) -> rustix::io::Result<Vec<u16>> {
        let flags = files::READ_DIRECTORY;
        let parent = rustix::fs::openat(&self.root.fd, layout::BUCKETS, flags, rustix::fs::Mode::empty())?;
        let mut found = Vec::new();
        linux::list(&parent, |name| {
            let index = u16::from_str_radix(name, 16).ok().filter(|index| *index < bucket::BUCKETS);
            found.extend(index.filter(|_| name.len() == 3));
        })?;
        found.sort_unstable();
        Ok(found)
    }

    /// Whether one more descriptor of a bucket is kept. The other buckets are opened at each use.
    pub(super) fn keeps_descriptor(&self) -> bool {
        self.open.fetch_add(1, Ordering::Relaxed) < OPEN_BUCKETS
    }

    /// The last number drawn in a bucket.
    pub(super) fn last_number(&self, index: u16) -> rustix::io::Result<u64> {
        let mut bytes = [0; 8];
        // A file cut short (a restored backup) reads as 0: the clock and the floor still hold.
        rustix::io::pread(&self.root.counters, &mut bytes, u64::from(index) * 8)?;
        Ok(u64::from_be_bytes(bytes))
    }

    /// Notes the last number drawn in a bucket; under its lock.
    pub(super) fn set_last_number(&self, index: u16, number: u64) -> rustix::io::Result<()> {
        let bytes = number.to_be_bytes();
        match rustix::io::pwrite(&self.root.counters, &bytes, u64::from(index) * 8)? {
            8 => Ok(()),
            _ => Err(Errno::NOSPC),
        }
    }

    /// The error for a short lock that another process kept for longer than the request deadline.
    pub(super) fn stuck(&self, operation: &'static str, path: &str) -> Error {
        let message = "another process is inside a short lock of the directory and does not go on; was it stopped, or is the disk slow? `lslocks` names the process that locks this path";
        Error::new(ErrorKind::Unreachable, operation, message)
            .with("path", format_args!("{}/{path}", self.path))
            .retryable()
    }
}

/// Whether the entry at a path is the directory with this identity.
fn leads_to(found: rustix::io::Result<Stat>, identity: (u64, u64)) -> rustix::io::Result<bool> {
    match found {
        Ok(stat) => Ok(layout::identity(&stat) == identity),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_of_the_kernel_is_no_proof_that_a_directory_is_gone() {
        let here = rustix::fs::stat("/").unwrap();
        let identity = layout::identity(&here);
        assert_eq!(leads_to(Ok(here), identity), Ok(true));
        assert_eq!(leads_to(Ok(here), (identity.0, identity.1 + 1)), Ok(false));
        assert_eq!(leads_to(Err(Errno::NOENT), identity), Ok(false));
        for errno in [Errno::ACCESS, Errno::IO, Errno::NOMEM] {
            assert_eq!(leads_to(Err(errno), identity), Err(errno));
        }
    }
}
