//! The store `file:` keeps every law that can be tried on it.

use std::sync::Arc;

use fencelock::Result;
use fencelock::file::FileStore;
use fencelock_conformance::{Fixture, NoFaults, Process};
use futures_core::future::BoxFuture;
use tempfile::TempDir;

/// A directory, and whether its users are in processes of their own or share what one process knows of it.
struct Directory(TempDir, bool);

impl Fixture for Directory {
    fn process(&self) -> BoxFuture<'_, Result<Process>> {
        Box::pin(async {
            let store = FileStore::builder(self.0.path())?;
            let store = if self.1 { store.another_process() } else { store }.open()?;
            Ok(Process { store: Arc::new(store), faults: Arc::new(NoFaults) })
        })
    }

    fn leftovers(&self) -> BoxFuture<'_, Option<Vec<String>>> {
        let tickets = |bucket: std::fs::DirEntry| std::fs::read_dir(bucket.path()).into_iter().flatten();
        let buckets = std::fs::read_dir(self.0.path().join("b")).into_iter().flatten().flatten();
        let sessions = std::fs::read_dir(self.0.path().join("sessions")).into_iter().flatten();
        let left = buckets.flat_map(tickets).chain(sessions).flatten();
        let left = left.map(|entry| entry.path().display().to_string()).collect();
        Box::pin(async move { Some(left) })
    }
}

fencelock_conformance::suite!("file", || Directory(tempfile::tempdir().unwrap(), true));

mod in_one_process {
    fencelock_conformance::suite!("file", || super::Directory(tempfile::tempdir().unwrap(), false), only = mutexes);
}
