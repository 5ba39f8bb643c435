//! One inotify descriptor per process. Events are hints: whoever is rung looks at the store again.
//!
//! The descriptor is read by a thread of its own; everything but [`Watches::dispatch`] is free to be called anywhere.
//! Without a descriptor or a watch to spare (128 instances per user by default), waiters poll.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::io::Errno;
use tokio::sync::Notify;

use super::platform::{Event, Interest, Notifier};

/// What a waiter is woken by. A ring is never lost: the next [`Bell::rung`] returns at once.
#[derive(Debug)]
pub(super) struct Bell {
    notify: Notify,
    rung: AtomicBool,
}

impl Bell {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { notify: Notify::new(), rung: AtomicBool::new(false) })
    }

    pub(super) fn ring(&self) {
        self.rung.store(true, Ordering::Release);
        self.notify.notify_one();
    }

    /// Whether it rang since the last call.
    pub(super) fn take(&self) -> bool {
        self.rung.swap(false, Ordering::AcqRel)
    }

    /// Completes once it rings, or rang. Cancel safe. For one task at a time.
    pub(super) async fn rung(&self) {
        self.notify.notified().await;
    }
}

/// What [`watch`] found.
pub(super) enum Watching {
    /// The bell will ring.
    On(Subscription),
    /// There is nothing at this path.
    Gone,
    /// No event will come: poll.
    Blind,
}

/// A bell at a path, until it is dropped.
#[derive(Debug)]
pub(super) struct Subscription {
    watches: &'static Watches,
    watch: i32,
    bell: Arc<Bell>,
}

impl Subscription {
    /// Rings `bell` too; `None` once this watch is over.
    pub(super) fn also(&self, bell: &Arc<Bell>) -> Option<Self> {
        let mut table = self.watches.lock();
        let bells = table.bells.get_mut(&self.watch)?;
        bells.push(Arc::clone(bell));
        Some(Self { watches: self.watches, watch: self.watch, bell: Arc::clone(bell) })
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.watches.unsubscribe(self.watch, &self.bell);
    }
}

/// Rings `bell` when something of `interest` happens to `path`.
pub(super) fn watch(path: &str, interest: Interest, bell: &Arc<Bell>) -> Watching {
    let Some(watches) = Watches::of_this_process() else {
        return Watching::Blind;
    };
    match watches.subscribe(path, interest, bell) {
        Ok(watch) => Watching::On(Subscription { watches, watch, bell: Arc::clone(bell) }),
        Err(Errno::NOENT | Errno::NOTDIR) => Watching::Gone,
        Err(_) => Watching::Blind,
    }
}

#[derive(Debug)]
struct Watches {
    notifier: Notifier,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    bells: HashMap<i32, Vec<Arc<Bell>>>,
    blind: bool,
}

impl Watches {
    fn of_this_process() -> Option<&'static Self> {
        static WATCHES: OnceLock<Watches> = OnceLock::new();
        static MAKING: Mutex<()> = Mutex::new(());
        if let Some(watches) = WATCHES.get() {
            return (!watches.lock().blind).then_some(watches);
        }
        // Tried again at every wait: somebody else may have given an instance back.
        let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        if WATCHES.get().is_none() {
            let notifier = Notifier::new().ok()?;
            let _ = WATCHES.set(Self { notifier, table: Mutex::default() });
            let watches = WATCHES.get()?;
            let reader = std::thread::Builder::new().name("fencelock-watch".to_owned());
            watches.lock().blind = reader.spawn(move || watches.dispatch()).is_err();
        }
        let watches = WATCHES.get()?;
        (!watches.lock().blind).then_some(watches)
    }

    /// The table is only ever changed in single steps, so a panic elsewhere cannot have left it half done.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn subscribe(&self, path: &str, interest: Interest, bell: &Arc<Bell>) -> rustix::io::Result<i32> {
        // Under the table's lock, so that no event of the new watch is dispatched before its bell is there.
        let mut table = self.lock();
        let watch = self.notifier.add(path, interest)?;
        table.bells.entry(watch).or_default().push(Arc::clone(bell));
        Ok(watch)
    }

    fn unsubscribe(&self, watch: i32, bell: &Arc<Bell>) {
        let mut table = self.lock();
        let Some(bells) = table.bells.get_mut(&watch) else {
            return;
        };
        if let Some(at) = bells.iter().position(|other| Arc::ptr_eq(other, bell)) {
            bells.swap_remove(at);
        }
        if bells.is_empty() {
            table.bells.remove(&watch);
            self.notifier.remove(watch);
        }
    }

    /// Reads events for ever. If reading fails, everybody polls from then on.
    fn dispatch(&self) {
        self.notifier.run(|event| {
            let mut table = self.lock();
            match event {
                Event::Changed(watch) => table.bells.get(&watch).into_iter().flatten().for_each(|bell| bell.ring()),
                Event::Over(watch) => {
                    table.bells.remove(&watch).into_iter().flatten().for_each(|bell| bell.ring());
                }
                Event::Overflow => table.bells.values().flatten().for_each(|bell| bell.ring()),
            }
        });
        let mut table = self.lock();
        table.blind = true;
        table.bells.drain().flat_map(|(_, bells)| bells).for_each(|bell| bell.ring());
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
        let mut watches: Vec<_> = bells.iter().map(|bell| watch(path_text, Interest::Departure, bell)).collect();
        watches.pop();
        std::fs::remove_file(&path).unwrap();
        bells[0].rung().await;
        bells[1].rung().await;
        assert!(bells[0].take() && bells[1].take() && !bells[2].take());
        assert!(matches!(watch(path_text, Interest::Departure, &bells[0]), Watching::Gone));
    }

    #[tokio::test]
    async fn the_grant_mark_rings_only_those_who_asked_for_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("session");
        let file = std::fs::File::create(&path).unwrap();
        let (touched, ended) = (Bell::new(), Bell::new());
        let Watching::On(_first) = watch(path.to_str().unwrap(), Interest::Touch, &touched) else {
            panic!("no inotify instance");
        };
        let reader = std::fs::File::open(&path).unwrap();
        drop(reader);
        assert!(!touched.take());
        let Watching::On(_second) = watch(path.to_str().unwrap(), Interest::SessionEnd, &ended) else {
            panic!("no inotify watch");
        };
        drop(file);
        ended.rung().await;
    }
}
