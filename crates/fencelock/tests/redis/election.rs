//! An election on a real server.

use fencelock::ErrorKind;
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
        let next: Option<fencelock::Result<Option<fencelock::recipes::Leading>>> = soon(StreamExt::next(leaders)).await;
        // A leader is seen without an address until it has written one.
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

#[tokio::test]
async fn features_that_need_notes_are_refused_where_there_are_none_and_an_election_without_an_address_is_not() {
    let server = server(Settings::default());
    let client = client(&format!("{}?layout=plain", server.url()), 60_000).await;
    for refused in [
        client.window("a", PATIENCE).map(drop).unwrap_err(),
        client.once("a", "v").map(drop).unwrap_err(),
        client.note("a").await.map(drop).unwrap_err(),
        client.mutex("b").unwrap().acquire().await.unwrap().write_note("x", None).await.unwrap_err(),
        client.election("a").unwrap().address("x").campaign().await.map(drop).unwrap_err(),
    ] {
        assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    }
    client.election("a").unwrap().campaign().await.unwrap().resign().await.unwrap();
}
