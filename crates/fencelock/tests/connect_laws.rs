//! Connecting to a store that is not there yet.

mod support;

use std::sync::Arc;
use std::time::Duration;

use fencelock::memory::Operation;
use fencelock::{Client, ErrorKind, Io, Result};
use support::{World, on_one_thread, secs, settle};
use tokio::task::JoinHandle;

/// Connects in the background to a store in `world`, through a handle that does with it what `breaks` says.
fn connecting(
    world: &World,
    limit: Duration,
    breaks: impl FnOnce(&fencelock::memory::MemoryStore),
) -> (fencelock::memory::MemoryStore, JoinHandle<Result<Client>>) {
    let store = world.store.another_process();
    breaks(&store);
    let options = Client::builder().io(Io::CurrentRuntime).connect_timeout(limit);
    let client = options.connect_store(Arc::new(store.clone()));
    (store, tokio::spawn(client))
}

#[test]
fn a_client_that_has_time_to_connect_waits_for_its_store() {
    on_one_thread(async {
        let world = World::new();
        let (store, client) = connecting(&world, secs(120), |store| store.partition());
        // Longer than a request may take, and than requests of an acquire may fail.
        world.advance(secs(90)).await;
        assert!(!client.is_finished());
        store.heal();
        world.advance(secs(1)).await;
        client.await.unwrap().unwrap();
    });
}

#[test]
fn a_client_whose_time_to_connect_is_up_says_what_failed_last() {
    on_one_thread(async {
        let world = World::new();
        let (_store, client) = connecting(&world, secs(20), |store| store.partition());
        world.advance(secs(20)).await;
        let error = client.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        assert!(error.to_string().contains("connect_timeout 20s"), "{error}");
        assert!(error.to_string().contains("request deadline"), "{error}");
    });
}

#[test]
fn a_client_without_time_to_connect_tries_once() {
    on_one_thread(async {
        let world = World::new();
        for limit in [None, Some(Duration::ZERO)] {
            let store = world.store.another_process();
            store.lose_next_reply(Operation::Open);
            let builder = Client::builder().io(Io::CurrentRuntime);
            let builder = limit.into_iter().fold(builder, |builder, limit| builder.connect_timeout(limit));
            let error = builder.connect_store(Arc::new(store)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unreachable);
        }
        let (_store, client) = connecting(&world, secs(5), |store| store.lose_next_reply(Operation::Open));
        world.advance(secs(1)).await;
        settle().await;
        client.await.unwrap().unwrap();
    });
}
