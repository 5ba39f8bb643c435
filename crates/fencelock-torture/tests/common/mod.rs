//! What the tests over real ZooKeeper servers share.
#![allow(dead_code, reason = "every test binary takes what it needs")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fencelock_conformance::harness::{Drill, Site, Strategy, Verdict};
use fencelock_testbed::zookeeper::Ensemble;
use fencelock_torture::zookeeper::ZooKeeper;

/// Servers that tests break one after the other.
pub(crate) struct Servers {
    count: usize,
    ensemble: Mutex<Option<Arc<Ensemble>>>,
}

impl Servers {
    pub(crate) const fn new(count: usize) -> Self {
        Self { count, ensemble: Mutex::new(None) }
    }

    /// The servers, for this test alone, all of them well.
    pub(crate) fn take(&self) -> Taken<'_> {
        let mut taken = self.ensemble.lock().unwrap_or_else(PoisonError::into_inner);
        taken.get_or_insert_with(|| ZooKeeper::start(self.count).unwrap()).heal().unwrap();
        Taken(taken)
    }
}

pub(crate) struct Taken<'a>(MutexGuard<'a, Option<Arc<Ensemble>>>);

impl Taken<'_> {
    pub(crate) fn ensemble(&self) -> &Arc<Ensemble> {
        self.0.as_ref().unwrap()
    }

    /// A site of this test's own for so many clients.
    pub(crate) fn site(&self, clients: usize) -> ZooKeeper {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let parent = format!("/test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        ZooKeeper::site(self.ensemble(), &parent, clients).unwrap()
    }
}

/// A directory that is kept, and named, when the test fails.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new(name: &str) -> Self {
        let directory = tempfile::Builder::new().prefix(&format!("fencelock-{name}-")).tempdir().unwrap();
        Self(directory.keep())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the logs are in {}", self.0.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// A hundred workers in four processes contend for two locks while the strategy strikes so often; nothing may be wrong.
pub(crate) fn drill(servers: &Servers, strategy: Strategy, strikes: usize) -> Verdict {
    let taken = servers.take();
    drill_at(Arc::new(taken.site(5)), strategy, strikes)
}

/// The same at any site.
pub(crate) fn drill_at(site: Arc<dyn Site>, strategy: Strategy, strikes: usize) -> Verdict {
    let seed = fencelock_conformance::seed();
    let logs = Directory::new("drill");
    let worker = Path::new(env!("CARGO_BIN_EXE_fencelock-torture-worker"));
    let drill = Drill::at(site, logs.path(), worker, strategy, seed);
    let verdict = Drill { tasks: 25, strikes, ..drill }.run();
    let verdict = verdict.unwrap_or_else(|error| panic!("{error}\nagain: FENCELOCK_SEED={seed}"));
    println!("{verdict}");
    assert!(verdict.is_clean(), "{verdict}\nagain: FENCELOCK_SEED={seed}");
    assert!(verdict.report.grants > 50 && verdict.report.writes.0 > 50, "too little came of it: {verdict}");
    verdict
}
