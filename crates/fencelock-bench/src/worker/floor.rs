//! The floor of `file:`: the system calls that one cycle of its layout makes, and nothing else.
//!
//! They are made in the same order, with names as long as the real ones, in a directory laid out like a real one.
//! The floor is only as honest as this list is true: when the layout changes, compare it with a trace of the library.

use std::os::fd::OwnedFd;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, mkdir, mkdirat, open, openat, symlinkat, unlinkat};
use rustix::io::{pread, pwrite};

use super::workload::Obey;
use crate::protocol::{Order, now, write_log};

/// The offset of the bucket's counter in the file of counters.
const OFFSET: u64 = 0x2a7 * 8;
/// The directory of the bucket, from the root of the store.
const BUCKET: &str = "b/2a7";
/// The text of a ticket: the number of its format.
const NOTE: &str = "1";

pub(super) struct Floor {
    root: OwnedFd,
    bucket: OwnedFd,
    counters: OwnedFd,
}

impl Floor {
    pub(super) fn new(path: &Path) -> Result<Self> {
        let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        mkdir(path, Mode::RWXU).with_context(|| path.display().to_string())?;
        let root = open(path, directory, Mode::empty())?;
        mkdirat(&root, "b", Mode::RWXU)?;
        mkdirat(&root, BUCKET, Mode::RWXU)?;
        let bucket = openat(&root, BUCKET, directory, Mode::empty())?;
        let counters =
            openat(&root, "counters", OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)?;
        pwrite(&counters, &[0; 4096 * 8], 0)?;
        Ok(Self { root, bucket, counters })
    }

    fn cycle(&self, count: u64) -> Result<Vec<u64>> {
        let cycle = |count| {
            // A ticket of the same length, and never the same one: name, number, claim, session, request.
            let ticket = format!("bench.06c9l{count:06}.m.3f1k0a9c7q2mv.{count:x}");
            let path = format!("{BUCKET}/{ticket}");
            let before = now();
            self.acquire(&ticket)?;
            unlinkat(&self.root, &path, AtFlags::empty())?;
            Ok(now() - before)
        };
        (0..count).map(cycle).collect()
    }

    fn acquire(&self, ticket: &str) -> Result<()> {
        let mut number = [0; 8];
        flock(&self.bucket, FlockOperation::NonBlockingLockExclusive)?;
        pread(&self.counters, &mut number, OFFSET)?;
        let number = u64::from_be_bytes(number) + 1;
        pwrite(&self.counters, &number.to_be_bytes(), OFFSET)?;
        symlinkat(NOTE, &self.bucket, ticket)?;
        flock(&self.bucket, FlockOperation::Unlock)?;
        Ok(())
    }
}

impl Obey for Floor {
    async fn obey(&mut self, order: Order, log: &Path) -> Result<String> {
        let Order::Cycle { count } = order else { bail!("the floor does cycles only") };
        write_log(log, &self.cycle(count)?)?;
        Ok("done".to_owned())
    }
}
