//! The I/O thread and the callers' own, on the real clock, while a ttl of less than a second runs.

#[path = "../laws/support.rs"]
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use fencelock::blocking;
use fencelock::memory::MemoryStore;
use fencelock::store::Store;
use fencelock::{Client, ClientBuilder, ErrorKind, GuardState, Health, Io};
use support::{ms, on_one_thread, secs};

fn shared(store: &MemoryStore) -> Arc<dyn Store> {
    store.another_process().into()
}

/// ttl 800 ms, renewed every 200 ms, certain for 600 ms.
fn short() -> ClientBuilder {
    Client::builder().ttl(ms(800)).renew_interval(ms(200)).margin(ms(200)).request_deadline(ms(250))
}

/// Blocks the thread for as long as a rude program would, without ever yielding.
fn block_for(duration: Duration) {
    let end = Instant::now() + duration;
    while Instant::now() < end {
        std::thread::yield_now();
    }
}

#[test]
fn code_that_blocks_its_runtime_keeps_its_lock() {
    on_one_thread(async {
        let client = short().connect_store(shared(&MemoryStore::new())).await.unwrap();
        let guard = client.mutex("a").unwrap().acquire().await.unwrap();
        block_for(secs(2));
        assert_eq!(guard.state(), GuardState::Held);
    });
}

#[test]
fn on_the_callers_runtime_blocking_code_costs_the_lock_and_the_guard_says_so() {
    on_one_thread(async {
        let client = short().io(Io::CurrentRuntime).connect_store(shared(&MemoryStore::new())).await.unwrap();
        let guard = client.mutex("a").unwrap().acquire().await.unwrap();
        block_for(secs(1));
        assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
    });
}

#[test]
fn health_tells_how_the_session_is_doing() {
    let store = MemoryStore::new().another_process();
    let options = short().retry(fencelock::Retry::default().give_up_after(ms(1)));
    let client = blocking::Client::connect_store(options, store.clone()).unwrap();
    assert!(matches!(client.health(), Health::Confirmed(certain) if certain <= ms(600)));
    store.partition();
    let end = Instant::now() + secs(10);
    let mut seen = (false, false);
    while seen != (true, true) {
        match client.health() {
            Health::Suspect(_) => seen.0 = true,
            Health::NoSession => seen.1 = true,
            _ => {}
        }
        assert!(Instant::now() < end, "{seen:?}");
        std::thread::yield_now();
    }
    assert!(client.mutex("a").unwrap().try_acquire().is_err());
    store.heal();
    let end = Instant::now() + secs(60);
    while !matches!(client.health(), Health::Confirmed(_)) {
        assert!(Instant::now() < end, "the session was not opened again");
        std::thread::yield_now();
    }
    client.mutex("a").unwrap().acquire().unwrap().release().unwrap();
    client.close().unwrap();
    assert_eq!(client.health(), Health::Closed);
}
