//! An election on a real server.

use fencelock_testbed::redis::Settings;
use futures_util::StreamExt;

use crate::lab::{PATIENCE, client, server, soon};

#[tokio::test]
async fn observers_see_each_leader_with_its_term_and_address() {
    let server = server(Settings::default());
    let (one, other) = (client(&server.url(), 60_000).await, client(&server.url(), 60_000).await);
    let [first, second] = [("one:1", &one), ("other:2", &other)]
        .map(|(address, client)| client.election("scheduler").unwrap().address(address));
    let mut leaders =
        Box::pin(client(&server.url(), 60_000).await.election("scheduler").unwrap().leaders(PATIENCE / 18_000));
    assert_eq!(soon(leaders.next()).await.unwrap().unwrap(), None);
    let leader = soon(first.campaign()).await.unwrap();
    let seen = async |leaders: &mut std::pin::Pin<Box<_>>, address: &str| loop {
        let next: Option<fencelock::Result<Option<fencelock::Leading>>> = soon(StreamExt::next(leaders)).await;
        // A moment before it told its address, a leader is seen without one.
        match next.unwrap().unwrap() {
            Some(seen) if seen.address.as_deref() == Some(address.as_bytes()) => return seen,
            _ => {}
        }
    };
    let now = seen(&mut leaders, "one:1").await;
    assert_eq!((now.term, now.owner.as_ref()), (leader.term(), Some(one.owner())));
    let waiting = tokio::spawn(async move { second.campaign().await });
    leader.resign().await.unwrap();
    let next = soon(waiting).await.unwrap().unwrap();
    assert!(next.term() > now.term);
    assert_eq!(seen(&mut leaders, "other:2").await.term, next.term());
    next.resign().await.unwrap();
    assert_eq!(one.note("scheduler").await.unwrap().note, None);
}
