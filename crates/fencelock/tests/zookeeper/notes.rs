//! Notes: the write of a late holder never counts, and a name without holders leaves nothing.

use std::sync::Arc;
use std::time::Duration;

use fencelock::inspect::Owner;
use fencelock::store::{GrantId, NoteOrder, Opening, PlaceId, StoreUrl, open_url};
use fencelock::time::SystemClock;
use fencelock::{Client, ErrorKind, Guard, Name};
use fencelock_zookeeper::{Acl, CreateMode};

use crate::lab::{Lab, soon};

fn job() -> Name {
    Name::new("job").unwrap()
}

async fn text(client: &Client) -> Option<String> {
    client.note(&job()).await.unwrap().note.and_then(|note| note.text().map(str::to_owned))
}

/// The versions of the note on `job`.
async fn versions(lab: &Lab) -> usize {
    lab.children("~fencelock/notes/job").await.len()
}

async fn held(client: &Client) -> Guard {
    client.mutex("job").unwrap().acquire().await.unwrap()
}

#[tokio::test]
async fn a_read_leaves_nothing_and_tells_the_time_of_the_server() {
    let (lab, client) = Lab::with_client().await;
    let first = client.note(&job()).await.unwrap();
    assert!(first.note.is_none() && lab.children("").await.is_empty(), "{first:?}");
    let guard = held(&client).await;
    guard.write_note("one", None).await.unwrap();
    let read = client.note(&job()).await.unwrap();
    let note = read.note.as_ref().unwrap();
    assert!(note.written >= first.now && read.now >= note.written && note.token == guard.token(), "{read:?}");
    assert_eq!(lab.children("").await, ["job", "~fencelock"]);
}

#[tokio::test]
async fn of_a_note_the_last_version_stays_and_after_its_time_none_even_if_older_ones_were_left() {
    let (lab, client) = Lab::with_client().await;
    let guard = held(&client).await;
    for value in ["one", "two", "three"] {
        guard.write_note(value, None).await.unwrap();
        assert_eq!((text(&client).await.as_deref(), versions(&lab).await), (Some(value), 1));
    }
    guard.write_note("four", Some(Duration::from_millis(1))).await.unwrap();
    // As two holders leave one who write at once.
    let node = lab.children("~fencelock/notes/job").await.remove(0);
    let path = lab.path(&format!("~fencelock/notes/job/{}-0000000000", &node[..16]));
    let (data, _) = lab.hands.get_data(&lab.path(&format!("~fencelock/notes/job/{node}"))).await.unwrap();
    let lasting = String::from_utf8(data).unwrap().replace(r#""ttl_ms":1,"#, r#""ttl_ms":0,"#);
    lab.hands.create(&path, lasting.as_bytes(), CreateMode::Persistent, &[Acl::open()]).await.unwrap();
    soon(async { while text(&client).await.is_some() {} }).await;
    assert_eq!((text(&client).await, versions(&lab).await), (None, 0));
}

#[tokio::test]
async fn a_grant_that_has_ended_writes_and_deletes_nothing_though_its_client_lives() {
    let lab = Lab::new().await;
    let (client, next) = (lab.client("").await, lab.client("").await);
    let store = open_url(StoreUrl::parse(&lab.url("").replace("&ttl_ms=60000", "")).unwrap()).await.unwrap();
    let opening = Opening::here(Owner::new(7, "late", 1), Duration::from_secs(60), Arc::new(SystemClock)).unwrap();
    let _opened = store.open(opening).await.unwrap();
    let guard = held(&client).await;
    let holder = client.queue(&job()).await.unwrap().contenders.remove(0);
    let grant = GrantId { place: PlaceId { name: job(), request: holder.id }, token: guard.token() };
    let order = |value: Option<&[u8]>| NoteOrder::new(grant.clone(), Owner::new(7, "late", 1), value, None).unwrap();
    assert!(store.write_note(&order(Some(b"mine"))).await.unwrap());
    guard.release().await.unwrap();
    let _second = held(&next).await;
    for order in [order(Some(b"late")), order(None)] {
        assert!(!store.write_note(&order).await.unwrap());
    }
    assert_eq!(text(&next).await.as_deref(), Some("mine"));
}

#[tokio::test]
async fn where_all_locks_share_one_parent_there_are_no_notes() {
    let lab = Lab::new().await;
    let client = lab.client("&layout=shared").await;
    assert!(!client.capability().notes);
    assert_eq!(client.note(&job()).await.unwrap_err().kind(), ErrorKind::Unsupported);
}
