//! What the tests over real servers share.
#![allow(dead_code, reason = "every test binary takes what it needs")]

pub(crate) mod silence;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fencelock_conformance::scenes::Stage;
use fencelock_lab::{Drill, Site, Strategy, Uses, Verdict};
use fencelock_torture::Bed;

/// How many servers there are where nothing else is said: three, or what `FENCELOCK_TEST_SERVERS` says. What cannot befall
/// so few is then left out.
pub(crate) fn count() -> usize {
    std::env::var("FENCELOCK_TEST_SERVERS").map_or(3, |count| count.parse().expect("FENCELOCK_TEST_SERVERS is 1 or 3"))
}

/// Servers that tests break one after the other.
pub(crate) struct Servers<B> {
    start: fn() -> io::Result<B>,
    bed: Mutex<Option<B>>,
}

impl<B: Bed> Servers<B> {
    pub(crate) const fn new(start: fn() -> io::Result<B>) -> Self {
        Self { start, bed: Mutex::new(None) }
    }

    /// The servers, for this test alone, all of them well.
    pub(crate) fn take(&self) -> Taken<'_, B> {
        let mut taken = self.bed.lock().unwrap_or_else(PoisonError::into_inner);
        taken.get_or_insert_with(|| (self.start)().unwrap()).heal().unwrap();
        Taken(taken)
    }
}

pub(crate) struct Taken<'a, B>(MutexGuard<'a, Option<B>>);

impl<B: Bed> Taken<'_, B> {
    pub(crate) fn bed(&self) -> &B {
        self.0.as_ref().unwrap()
    }

    /// A site of this test's own for so many clients.
    pub(crate) fn site(&self, clients: usize) -> B::Site {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        self.bed().site(&name, clients).unwrap()
    }
}

/// A stage, and what is taken for it.
pub(crate) struct Set<B: Bed + 'static> {
    stage: Stage,
    _servers: Taken<'static, B>,
    _directory: Directory,
}

impl<B: Bed> Set<B> {
    pub(crate) fn on(servers: &'static Servers<B>) -> Self {
        let servers = servers.take();
        let directory = Directory::new("scene");
        let stage = Stage {
            site: Arc::new(servers.site(2)),
            holder: env!("CARGO_BIN_EXE_fencelock-torture-holder").into(),
            directory: directory.path().to_owned(),
            seed: fencelock_conformance::seed(),
        };
        Self { stage, _servers: servers, _directory: directory }
    }
}

impl<B: Bed> AsRef<Stage> for Set<B> {
    fn as_ref(&self) -> &Stage {
        &self.stage
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
pub(crate) fn drill(servers: &Servers<impl Bed>, strategy: Strategy, strikes: usize) -> Option<Verdict> {
    let taken = servers.take();
    let site = taken.site(5);
    if !strategy.is_possible(&site) && std::env::var_os("FENCELOCK_TEST_SERVERS").is_some() {
        println!("{strategy:?} cannot befall these servers");
        return None;
    }
    Some(drill_at(Arc::new(site), strategy, strikes))
}

/// The same at any site.
pub(crate) fn drill_at(site: Arc<dyn Site>, strategy: Strategy, strikes: usize) -> Verdict {
    drill_with(site, strategy, |drill| Drill { strikes, ..drill })
}

/// The same with something changed.
pub(crate) fn drill_with(site: Arc<dyn Site>, strategy: Strategy, change: impl FnOnce(Drill) -> Drill) -> Verdict {
    let seed = fencelock_conformance::seed();
    let logs = Directory::new("drill");
    let worker = Path::new(env!("CARGO_BIN_EXE_fencelock-torture-worker"));
    let drill = change(Drill { tasks: 25, ..Drill::at(site, logs.path(), worker, strategy, seed) });
    let verdict = drill.run().unwrap_or_else(|error| panic!("{error}\nagain: FENCELOCK_SEED={seed}"));
    println!("{verdict}");
    assert!(verdict.is_clean(), "{verdict}\nagain: FENCELOCK_SEED={seed}");
    // Only who has a lock alone writes: of those who take permits one in six.
    let writes = if verdict.uses == Uses::Semaphores { 50 / 6 } else { 50 };
    let report = &verdict.report;
    assert!(report.grants > 50 && report.writes.0 > writes, "too little came of it: {verdict}");
    verdict
}
