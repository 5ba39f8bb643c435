//! Capabilities that are refined at connect: each session reports them anew.

use std::sync::{Arc, Mutex};

use fencelock::memory::MemoryStore;
use fencelock::store::{Capability, Opened, Opening, Store};
use fencelock::{Client, Io, Result};
use futures_util::future::BoxFuture;

use crate::support::{beneath, on_one_thread, pass, secs};

/// A store whose next session promises this.
#[derive(Debug)]
struct Refined(MemoryStore, Arc<Mutex<Option<Arc<Capability>>>>);

impl Store for Refined {
    beneath!(0: capability clock queue names);

    fn open(&self, opening: Opening) -> BoxFuture<'_, Result<Opened>> {
        let capability = self.1.lock().unwrap().clone();
        Box::pin(async move { Ok(Opened { capability, ..self.0.open(opening).await? }) })
    }
}

#[test]
fn a_refined_capability_stays_until_the_next_session_reports_another_one() {
    on_one_thread(async {
        let (store, clock) = MemoryStore::with_virtual_clock();
        let whole = store.capability().clone();
        let mut less = whole.clone();
        less.wake_bound = secs(9);
        let says = Arc::new(Mutex::new(Some(Arc::new(less.clone()))));
        let refined = Arc::new(Refined(store.clone(), Arc::clone(&says)));
        let client = Client::builder().io(Io::CurrentRuntime).connect_store(refined).await.unwrap();
        assert_eq!(*client.capability(), less);
        for (said, told) in [(None, &whole), (Some(Arc::new(less.clone())), &less)] {
            *says.lock().unwrap() = said;
            store.expire_sessions();
            pass(&clock, secs(1)).await;
            assert_eq!(*client.capability(), *told);
        }
        client.close().await.unwrap();
    });
}
