//! News of a grant is of that grant: a message about the first grant of a request does not end the second grant.

use std::sync::{Arc, Mutex};

use fencelock::memory::MemoryStore;
use fencelock::store::{GrantId, Opened, Opening, PlaceId, RequestId, SessionEvent, Store};
use fencelock::{Client, FencingToken, GuardState, Io, Loss, Result};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use tokio::sync::mpsc;

use crate::support::{Events, beneath, on_one_thread, pass, secs, settle};

/// A memory store whose sessions receive the messages that a test sends.
#[derive(Debug)]
struct Gossip {
    store: MemoryStore,
    heard: Mutex<Option<mpsc::UnboundedReceiver<SessionEvent>>>,
}

impl Store for Gossip {
    beneath!(store: capability clock queue names);

    fn open(&self, opening: Opening) -> BoxFuture<'_, Result<Opened>> {
        Box::pin(async move {
            let opened = self.store.open(opening).await?;
            let mut heard = self.heard.lock().unwrap().take().expect("there is one session");
            let heard = stream::poll_fn(move |cx| heard.poll_recv(cx));
            Ok(Opened { events: stream::select(heard, opened.events).boxed(), ..opened })
        })
    }
}

#[test]
fn news_of_an_older_grant_of_the_same_request_ends_no_later_one() {
    on_one_thread(async {
        let (store, _clock) = MemoryStore::with_virtual_clock();
        let (tell, heard) = mpsc::unbounded_channel();
        let gossip = Gossip { store, heard: Mutex::new(Some(heard)) };
        let client = Client::builder().io(Io::CurrentRuntime).connect_store(Arc::new(gossip)).await.unwrap();
        let held = client.mutex("job").unwrap().acquire().await.unwrap();
        let id: RequestId = client.queue("job").await.unwrap().contenders[0].id;
        let place = PlaceId { name: held.name().clone(), request: id };
        let token = held.token().unwrap();
        let grant = |token| GrantId { place: place.clone(), token };
        let older = FencingToken::new(token.get() - 1);
        tell.send(SessionEvent::Broken(grant(older), "stuck".into())).unwrap();
        tell.send(SessionEvent::Gone(grant(older), Loss::Removed)).unwrap();
        settle().await;
        assert_eq!(held.state(), GuardState::Held);
        tell.send(SessionEvent::Broken(grant(Some(token)), "stuck".into())).unwrap();
        settle().await;
        assert_eq!((held.lost().now_or_never(), held.break_reason()), (Some(Loss::Broken), Some("stuck")));
        client.close().await.unwrap();
    });
}

#[test]
fn news_of_an_older_grant_ends_no_waiter_of_the_same_request() {
    on_one_thread(async {
        let (store, clock) = MemoryStore::with_virtual_clock();
        let (tell, heard) = mpsc::unbounded_channel();
        let gossip = Gossip { store: store.another_process(), heard: Mutex::new(Some(heard)) };
        let events = Events::default();
        let options = Client::builder().io(Io::CurrentRuntime).observer(Arc::new(events.clone()));
        let client = options.connect_store(Arc::new(gossip)).await.unwrap();
        let rival = Client::builder().io(Io::CurrentRuntime).connect_store(store.another_process()).await;
        let rival = rival.unwrap();
        for (news_is_older, is_break) in [(true, true), (false, true), (true, false), (false, false)] {
            let held = rival.mutex("job").unwrap().acquire().await.unwrap();
            let lock = client.mutex("job").unwrap();
            let acquiring = tokio::spawn(async move { lock.acquire().await });
            settle().await;
            let id = client.queue("job").await.unwrap().contenders[1].id;
            let place = PlaceId { name: held.name().clone(), request: id };
            // News that arrives before the grant may be of that very grant, or of an earlier one.
            let token = held.token().unwrap();
            let told = if news_is_older { token } else { FencingToken::new(token.get() + 1).unwrap() };
            let told = GrantId { place: place.clone(), token: Some(told) };
            let news = match is_break {
                true => SessionEvent::Broken(told, "stuck".into()),
                false => SessionEvent::Gone(told, Loss::Removed),
            };
            tell.send(news).unwrap();
            pass(&clock, secs(3)).await;
            let queued: Vec<_> = client.queue("job").await.unwrap().contenders.into_iter().map(|one| one.id).collect();
            assert_eq!(queued.get(1), Some(&id), "it keeps its place");
            held.release().await.unwrap();
            settle().await;
            let granted = acquiring.await.unwrap().unwrap();
            let expected = match (news_is_older, is_break) {
                (true, _) => (None, None),
                (false, true) => (Some(Loss::Broken), Some("stuck")),
                (false, false) => (Some(Loss::Removed), None),
            };
            assert_eq!((granted.lost().now_or_never(), granted.break_reason()), expected);
            drop(granted);
            settle().await;
        }
        let told = events.all();
        let of_locks: Vec<&str> = told
            .iter()
            .filter_map(|event| ["Granted", "Released", "Lost"].into_iter().find(|kind| event.starts_with(kind)))
            .collect();
        assert_eq!(
            of_locks,
            [["Granted", "Released", "Granted", "Lost"]; 2].concat(),
            "no end is reported before its grant"
        );
        client.close().await.unwrap();
    });
}
