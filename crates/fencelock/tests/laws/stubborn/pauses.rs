//! A thread that pauses between a look at the clock and its next step.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use fencelock::memory::{MemoryStore, Operation, VirtualClock};
use fencelock::store::Store;
use fencelock::time::{Clock, Moment};
use fencelock::{Client, Io};
use futures_util::future::BoxFuture;

use crate::support::{beneath, ms, on_one_thread, pass, secs, settle};

type Hook = Box<dyn FnOnce() + Send>;

/// A clock that runs a hook after the next `now`, before the caller continues.
#[derive(Clone)]
struct Paused(VirtualClock, Arc<Mutex<Option<Hook>>>);

impl fmt::Debug for Paused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Clock for Paused {
    fn now(&self) -> Moment {
        let now = self.0.now();
        let hook = self.1.lock().unwrap().take();
        if let Some(hook) = hook {
            hook();
        }
        now
    }

    fn wall(&self) -> SystemTime {
        self.0.wall()
    }

    fn sleep_until(&self, at: Moment) -> BoxFuture<'_, ()> {
        self.0.sleep_until(at)
    }
}

#[derive(Debug)]
struct OnIt(MemoryStore, Paused);

impl Store for OnIt {
    beneath!(0: capability open queue names);

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        Some(Arc::new(self.1.clone()))
    }
}

#[test]
fn a_session_that_was_found_over_while_a_renewal_was_taken_in_leaves_no_place() {
    on_one_thread(async {
        let (store, clock) = MemoryStore::with_virtual_clock();
        let paused = Paused(clock.clone(), Arc::default());
        let mine = store.another_process();
        let options = Client::builder().io(Io::CurrentRuntime).request_deadline(secs(10));
        let on_it: Arc<dyn Store> = Arc::new(OnIt(mine.clone(), paused.clone()));
        let client = options.connect_store(on_it).await.unwrap();
        let guard = client.mutex("job").unwrap().acquire().await.unwrap();
        let late = mine.delay_next(Operation::Renew);
        pass(&clock, ms(2600)).await;
        late.caught().await;
        pass(&clock, ms(6300)).await;
        guard.check().unwrap();
        // Between the look at the clock and the new end, the old one passes and the guard is dropped.
        let inner = clock.clone();
        *paused.1.lock().unwrap() = Some(Box::new(move || {
            inner.advance(ms(300));
            drop(guard);
        }));
        assert!(late.release());
        settle().await;
        assert!(paused.1.lock().unwrap().is_none(), "no code looked at the clock");
        pass(&clock, secs(30)).await;
        assert_eq!(store.census().places, 0);
    });
}
