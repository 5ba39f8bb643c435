//! Behaviour that users of tokio, sqlx and redis-rs expect. That the drop of a client does not wait is in `thread_laws.rs`.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use fencelock::capability::Capability;
use fencelock::{Client, ErrorKind, FencingToken, Io, OnOutage};

use crate::rwlock::MutexesOnly;
use crate::support::{in_world, ms, on_one_thread, secs};

#[test]
fn run_takes_a_body_that_gives_a_value_and_a_body_that_can_fail() {
    in_world(async |world, []| {
        let client = world.process().await.client;
        let lock = client.mutex("a").unwrap();
        assert_eq!(lock.run(async |_| 7).await.unwrap(), 7);
        assert_eq!(lock.run(async |_| Err::<(), _>("no stock")).await.unwrap(), Err("no stock"));
        let page = client.rwlock("page").unwrap();
        assert_eq!(page.read().await.unwrap().run(async |_| 7).await.unwrap(), 7);
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn an_error_of_a_release_that_is_kept_keeps_no_lock() {
    in_world(async |world, [process, other]| {
        let guard = process.client.mutex("a").unwrap().acquire().await.unwrap();
        process.store.partition();
        // The conversion of `?` in a function that returns `anyhow::Result`.
        let releasing =
            tokio::spawn(async move { guard.release().await.map_err(Box::<dyn Error + Send + Sync>::from) });
        world.advance(ms(3400)).await;
        let kept = releasing.await.unwrap().unwrap_err();
        process.store.heal();
        world.advance(secs(2)).await;
        other.client.mutex("a").unwrap().try_acquire().await.unwrap().release().await.unwrap();
        assert_eq!(kept.downcast_ref::<fencelock::Error>().unwrap().kind(), ErrorKind::Unreachable);
    });
}

#[test]
fn remaining_is_a_duration_zero_when_nothing_is_left_and_the_longest_where_nothing_ends() {
    in_world(async |world, [process]| {
        let guard = process.client.mutex("a").unwrap().acquire().await.unwrap();
        assert!(guard.remaining() > secs(8));
        world.clock.advance(secs(9));
        assert_eq!(guard.remaining(), Duration::ZERO);
        let directory = tempfile::tempdir().unwrap();
        let client = Client::connect(&format!("file://{}", directory.path().display())).await.unwrap();
        assert_eq!(client.mutex("a").unwrap().acquire().await.unwrap().remaining(), Duration::MAX);
        client.close().await.unwrap();
    });
}

#[test]
fn a_token_is_a_number_and_a_lock_that_requires_one_is_not_granted_without() {
    in_world(async |world, []| {
        let client = world.process().await.client;
        let stock = client.mutex("stock").unwrap().require_token();
        let early: FencingToken = stock.acquire().await.unwrap().require_token().unwrap();
        let late = stock.acquire().await.unwrap().require_token().unwrap();
        assert!(early < late && u64::from(early) < u64::from(late));
        let degrades = stock.on_outage(OnOutage::RunWithout);
        assert_eq!(degrades.acquire().await.unwrap_err().kind(), ErrorKind::Config);

        let memory = fencelock::memory::MemoryStore::new();
        let without = Arc::new(MutexesOnly(memory, Capability::least("mutexes", "mutexes 1")));
        let client = Client::builder().io(Io::CurrentRuntime).connect_store(without).await.unwrap();
        let error = client.mutex("stock").unwrap().require_token().acquire().await.unwrap_err();
        assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("layout mutexes 1"), "{error}");
    });
}

/// The option of the builder overrides the URL's, and other clients can still distinguish two clients.
#[test]
fn an_opaque_owner_shows_its_number_and_neither_host_nor_process() {
    on_one_thread(async {
        let builder = |opaque: bool| Client::builder().io(Io::CurrentRuntime).opaque_owner(opaque);
        let hidden = builder(true).connect("memory:opaque_owner?owner=full").await.unwrap();
        let shown = builder(false).connect("memory:opaque_owner?owner=opaque").await.unwrap();
        let (host, pid) = (&hidden.owner().host, hidden.owner().pid);
        assert!(host.is_empty() && pid == 0, "{host:?} {pid}");
        assert!(!shown.owner().host.is_empty() && shown.owner().pid == std::process::id());
        let guard = hidden.mutex("a").unwrap().acquire().await.unwrap();
        let error = shown.mutex("a").unwrap().try_acquire().await.unwrap_err();
        let holder = error.contention().unwrap().holder.as_ref().unwrap();
        assert_eq!(holder.owner.as_ref(), Some(hidden.owner()));
        assert_ne!(holder.owner.as_ref().unwrap().client, shown.owner().client);
        guard.release().await.unwrap();
    });
}

#[test]
fn thirty_names_at_most_stand_at_the_root_of_the_crate() {
    let root = include_str!("../../src/lib.rs");
    let uses = root.split("\npub use ").skip(1).map(|rest| rest.split(';').next().unwrap());
    let names = uses.flat_map(|line| line.rsplit("::").next().unwrap().split(['{', '}', ',', ' ', '\n']));
    let modules = ["kind", "file", "memory", "mysql", "postgres"];
    let names: Vec<_> = names.filter(|name| !name.is_empty() && !modules.contains(name)).collect();
    assert!((20..=30).contains(&names.len()), "{}: {names:?}", names.len());
}
