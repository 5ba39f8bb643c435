//! Each waiting runtime has an inotify descriptor. Events are hints: the waiter that is rung looks at the store again.
//!
//! A task on the runtime of the waiters reads the descriptor, so that an event takes one wake-up of a thread. The task runs for as long as
//! its runtime does. Without a descriptor or a watch to spare (128 instances per user by default), or outside of a runtime, waiters poll.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::task::Waker;

use rustix::io::Errno;
use tokio::runtime::{Handle, Id};

use super::linux::{Interest, Notifier, WatchEvent};
use crate::kit::bell::Bell;
use crate::sync::Mutex;

/// Bells to ring after the release of all internal locks: a waker may run any code.
pub(super) type Rung = Vec<Waker>;

/// A bell at a path, until it is dropped.
#[derive(Debug)]
pub(super) struct PathWatch {
    watches: Arc<Watches>,
    watch: i32,
    bell: Arc<Bell>,
}

impl PathWatch {
    /// Whether the task that reads the events is gone with its runtime.
    pub(super) fn is_blind(&self) -> bool {
        self.watches.0.lock().notifier.is_none()
    }
}

impl Drop for PathWatch {
    fn drop(&mut self) {
        self.watches.unsubscribe(self.watch, &self.bell);
    }
}

/// Rings `bell` at an event of `interest` at `path`; `None` if no event will come, or no file is there.
pub(super) fn watch(path: &str, interest: Interest, bell: &Arc<Bell>) -> Option<PathWatch> {
    let watches = Watches::of_this_runtime()?;
    let watch = watches.subscribe(path, interest, bell).ok()?;
    Some(PathWatch { watches, watch, bell: Arc::clone(bell) })
}

/// The descriptor of one runtime, and the waiters that it wakes.
#[derive(Debug)]
struct Watches(Mutex<Table>);

#[derive(Debug)]
struct Table {
    bells: HashMap<i32, Vec<Arc<Bell>>>,
    /// `None` once no task reads it.
    notifier: Option<Arc<Notifier>>,
}

/// The runtimes with a reader.
static READ: LazyLock<Mutex<HashMap<Id, Arc<Watches>>>> = LazyLock::new(Mutex::default);

impl Watches {
    fn of_this_runtime() -> Option<Arc<Self>> {
        let runtime = Handle::try_current().ok()?;
        let mut read = READ.lock();
        if let Some(watches) = read.get(&runtime.id()) {
            return Some(Arc::clone(watches));
        }
        // Tried again at every wait: another process may have given an instance back.
        let notifier = Arc::new(Notifier::new().ok()?);
        let table = Table { bells: HashMap::new(), notifier: Some(Arc::clone(&notifier)) };
        let watches = Arc::new(Self(Mutex::new(table)));
        read.insert(runtime.id(), Arc::clone(&watches));
        drop(read);
        let reader = EventReader { runtime: runtime.id(), watches: Arc::clone(&watches) };
        runtime.spawn(reader.run(notifier));
        Some(watches)
    }

    fn subscribe(&self, path: &str, interest: Interest, bell: &Arc<Bell>) -> rustix::io::Result<i32> {
        // Under the table's lock, so that no event of the new watch is dispatched before its bell is there.
        let mut table = self.0.lock();
        let watch = table.notifier.as_ref().ok_or(Errno::BADF)?.add(path, interest)?;
        let bells = table.bells.entry(watch).or_default();
        // Most paths wake a single waiter.
        bells.reserve_exact(1);
        bells.push(Arc::clone(bell));
        Ok(watch)
    }

    fn unsubscribe(&self, watch: i32, bell: &Arc<Bell>) {
        let mut table = self.0.lock();
        let Some(bells) = table.bells.get_mut(&watch) else {
            return;
        };
        if let Some(at) = bells.iter().position(|other| Arc::ptr_eq(other, bell)) {
            bells.swap_remove(at);
        }
        if bells.is_empty() {
            table.bells.remove(&watch);
            if let Some(notifier) = &table.notifier {
                notifier.remove(watch);
            }
        }
    }

    /// Passes on what has happened.
    fn dispatch(&self, notifier: &Notifier) -> std::io::Result<()> {
        let mut rung: Vec<Arc<Bell>> = Vec::new();
        let drained = notifier.drain(|event| {
            let mut table = self.0.lock();
            match event {
                WatchEvent::Changed(watch) => rung.extend(table.bells.get(&watch).into_iter().flatten().cloned()),
                WatchEvent::Over(watch) => rung.extend(table.bells.remove(&watch).into_iter().flatten()),
                WatchEvent::Overflow => rung.extend(table.bells.values().flatten().cloned()),
            }
        });
        rung.iter().for_each(|bell| bell.ring());
        drained
    }
}

/// Reads one descriptor. If a read fails or the runtime ends, every waiter looks, and then watches on another runtime or polls.
struct EventReader {
    runtime: Id,
    watches: Arc<Watches>,
}

impl EventReader {
    async fn run(self, notifier: Arc<Notifier>) {
        while notifier.ready().await.is_ok() && self.watches.dispatch(&notifier).is_ok() {}
    }
}

impl Drop for EventReader {
    fn drop(&mut self) {
        let mut read = READ.lock();
        if read.get(&self.runtime).is_some_and(|watches| Arc::ptr_eq(watches, &self.watches)) {
            read.remove(&self.runtime);
        }
        drop(read);
        let mut table = self.watches.0.lock();
        table.notifier = None;
        let bells = std::mem::take(&mut table.bells);
        drop(table);
        bells.into_values().flatten().for_each(|bell| bell.ring());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_deletion_of_a_link_rings_every_bell_at_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ticket");
        std::os::unix::fs::symlink("1", &path).unwrap();
        let path_text = path.to_str().unwrap();
        let bells = [Bell::new(), Bell::new(), Bell::new()];
        let mut watches: Vec<_> = bells.iter().filter_map(|bell| watch(path_text, Interest::Departure, bell)).collect();
        watches.pop();
        std::fs::remove_file(&path).unwrap();
        bells[0].rung().await;
        bells[1].rung().await;
        assert!(!bells[2].take());
        assert!(watch(path_text, Interest::Departure, &bells[0]).is_none());
    }

    #[tokio::test]
    async fn the_grant_mark_rings_only_the_bells_that_asked_for_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("session");
        let file = std::fs::File::create(&path).unwrap();
        let (touched, ended) = (Bell::new(), Bell::new());
        let _first = watch(path.to_str().unwrap(), Interest::Touch, &touched).expect("no inotify instance");
        let reader = std::fs::File::open(&path).unwrap();
        drop(reader);
        assert!(!touched.take());
        let _second = watch(path.to_str().unwrap(), Interest::SessionEnd, &ended).expect("no inotify watch");
        drop(file);
        ended.rung().await;
    }

    /// A thread on which a runtime waits for `path`, and goes away without an event.
    fn watched_by_a_runtime_that_ends(path: &str, bell: &Arc<Bell>) -> PathWatch {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { watch(path, Interest::Touch, bell) }).expect("no inotify instance")
    }

    #[tokio::test]
    async fn a_waiter_whose_reader_went_away_with_its_runtime_is_rung_and_watches_anew() {
        let directory = tempfile::tempdir().unwrap();
        let (path, bell) = (directory.path().to_str().unwrap().to_owned(), Bell::new());
        let (elsewhere, rung) = (path.clone(), Arc::clone(&bell));
        let blind = std::thread::spawn(move || watched_by_a_runtime_that_ends(&elsewhere, &rung)).join().unwrap();
        bell.rung().await;
        assert!(blind.is_blind());
        let seeing = watch(&path, Interest::Touch, &bell).expect("no inotify watch");
        assert!(!seeing.is_blind());
        drop(directory);
        bell.rung().await;
    }

    #[test]
    fn outside_of_a_runtime_waiters_poll() {
        assert!(watch("/", Interest::Touch, &Bell::new()).is_none());
    }
}
