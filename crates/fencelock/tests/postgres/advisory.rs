//! Advisory locks of the server, and sessions of other clients that take them by key.

use fencelock::postgres::Schema;
use fencelock::recipes::MultiLock;
use fencelock::{Client, ErrorKind, Loss};
use fencelock_testbed::postgres::KIND;
use fencelock_testbed::{Proxy, Way};

use crate::lab::{LONG, acquire, acquiring, client, connection, database, refused, soon, until, with};
use crate::refused::until_refused_by;

/// Tries to take the lock in a session of another client.
async fn takes(user: &tokio_postgres::Client, key: &str) -> bool {
    user.query_one(&format!("SELECT pg_try_advisory_lock({key})"), &[]).await.unwrap().get(0)
}

async fn releases(user: &tokio_postgres::Client, key: &str) -> bool {
    user.query_one(&format!("SELECT pg_advisory_unlock({key})"), &[]).await.unwrap().get(0)
}

/// The numbers of advisory locks that are held and waited for.
async fn counts(user: &tokio_postgres::Client) -> (i64, i64) {
    let counted = "SELECT count(*) FILTER (WHERE granted), count(*) FILTER (WHERE NOT granted) FROM pg_locks WHERE locktype = 'advisory' \
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let row = user.query_one(counted, &[]).await.unwrap();
    (row.get(0), row.get(1))
}

#[tokio::test]
async fn sessions_of_other_programs_and_fencelocks_exclude_each_other_by_their_keys() {
    let (url, _) = database();
    let user = connection(&format!("{url}?application_name=theirs")).await;
    for (keys, name, key) in [
        (".net", "job", "-708897793, -1"),
        (".net", "nightly report", "-3493012053219155971"),
        ("with_advisory_lock", "job", "2077810936, 0"),
        ("bigint", "-42", "-42"),
        ("int4", "-1,7", "-1, 7"),
        ("bigint:9000000000", "job", "9000000000"),
    ] {
        let client = client(&with(&url, &format!("layout=advisory&key={keys}")), LONG).await;
        let guard = acquire(&client, name).await;
        assert!(!takes(&user, key).await, "{keys}: another client took our lock");
        guard.release().await.unwrap();
        assert!(takes(&user, key).await, "{keys}: what was released is not free");
        until_refused_by("theirs", &client, name).await;
        let waiting = acquiring(&client, name);
        assert!(releases(&user, key).await);
        soon(waiting).await.unwrap().unwrap().release().await.unwrap();
        assert_eq!(counts(&user).await, (0, 0), "{keys}");
    }
}

/// `plumless` and `buckeroo` have one CRC-32, and `mid` is between them in the order of names.
#[tokio::test]
async fn names_of_one_advisory_lock_are_refused_together_and_callers_of_them_in_any_order_finish() {
    let (url, _) = database();
    let of = async |keys: &str| client(&with(&url, &format!("layout=advisory&key={keys}")), LONG).await;
    for (keys, names) in [
        ("with_advisory_lock", ["plumless", "buckeroo"]),
        ("bigint:42", ["one", "other"]),
        ("bigint", ["5", "+05"]),
        ("int4", ["1,2", "01,2"]),
        (".net", ["00000000000000ff", "00000000000000FF"]),
    ] {
        let client = of(keys).await;
        let both = client.multi_lock(names).unwrap();
        for refused in [soon(both.acquire()).await, soon(both.try_acquire()).await] {
            let error = refused.unwrap_err();
            assert!(error.kind() == ErrorKind::Config && error.to_string().contains(names[1]), "{keys}: {error}");
        }
    }
    let (one, other) = (of("with_advisory_lock").await, of("with_advisory_lock").await);
    let of_two = MultiLock::new([one.mutex("plumless").unwrap(), other.mutex("buckeroo").unwrap()]).unwrap();
    assert_eq!(soon(of_two.acquire()).await.unwrap_err().kind(), ErrorKind::Config);
    let rounds = async |client: &Client, names: [&str; 2]| {
        for _ in 0..10 {
            let both = client.multi_lock(names).unwrap().acquire().await.unwrap();
            let mut sorted = names;
            sorted.sort_unstable();
            assert!(both.guards().iter().map(|guard| guard.name().as_str()).eq(sorted));
            both.release().await.unwrap();
        }
    };
    soon(async { tokio::join!(rounds(&one, ["plumless", "mid"]), rounds(&other, ["mid", "buckeroo"])) }).await;
}

#[tokio::test]
async fn a_session_never_has_one_key_twice_under_any_names() {
    let (url, _) = database();
    let client = client(&with(&url, "layout=advisory&key=bigint:7"), LONG).await;
    let user = connection(&url).await;
    let guard = acquire(&client, "one").await;
    for name in ["one", "other"] {
        assert!(soon(client.mutex(name).unwrap().try_acquire()).await.unwrap_err().is_contention(), "{name}");
    }
    let takes_turns = async |name: &str| acquire(&client, name).await.release().await.unwrap();
    let release = async { guard.release().await.unwrap() };
    tokio::join!(takes_turns("other"), takes_turns("one"), takes_turns("other"), release);
    assert!(takes(&user, "7").await, "it was taken more often than it was released");
}

#[tokio::test]
async fn the_end_of_the_connection_is_the_end_of_the_lock_and_is_reported_at_once() {
    let (url, _) = database();
    let client = client(&with(&url, "layout=advisory&key=.net"), LONG).await;
    let user = connection(&url).await;
    for _ in 0..3 {
        let guard = acquire(&client, "job").await;
        let waiting = acquiring(&client, "other");
        soon(waiting).await.unwrap().unwrap().release().await.unwrap();
        user.batch_execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())")
            .await
            .unwrap();
        assert_eq!(soon(guard.lost()).await, Loss::Expired);
        guard.release().await.unwrap_err();
        // The server says that it ends a session before it frees what that held.
        until("the key is free", async || takes(&user, "-708897793, -1").await).await;
        assert!(releases(&user, "-708897793, -1").await);
    }
    acquire(&client, "job").await.release().await.unwrap();
}

#[tokio::test]
async fn a_holder_that_is_cut_off_is_lost_before_the_server_ends_its_session_and_a_rival_is_granted() {
    let (direct, name) = database();
    let proxy = Proxy::start(KIND.shared().address()).unwrap();
    let url = format!("postgres://fencelock:secret@{}/{name}?layout=advisory&key=.net", proxy.address());
    let (client, user) = (client(&url, 6_000).await, connection(&direct).await);
    let guard = acquire(&client, "job").await;
    proxy.hole(Way::Both);
    until("a rival is granted", async || takes(&user, "-708897793, -1").await).await;
    guard.check().unwrap_err();
    assert!(matches!(soon(guard.lost()).await, Loss::Expired | Loss::Unconfirmed));
    assert!(releases(&user, "-708897793, -1").await);
    proxy.heal();
    acquire(&client, "job").await.release().await.unwrap();
}

#[tokio::test]
async fn sessions_that_have_and_wait_for_a_lock_are_shown_and_names_as_far_as_keys_tell() {
    let (url, _) = database();
    let client = client(&with(&url, "layout=advisory&key=.net"), LONG).await;
    let held = [acquire(&client, "job").await, acquire(&client, "jobs of the night").await];
    let waits = connection(&format!("{url}?application_name=waits")).await;
    let waiting = tokio::spawn(async move { waits.batch_execute("SELECT pg_advisory_lock(-708897793, -1)").await });
    until("they wait", async || client.queue("job").await.unwrap().queued == 2).await;
    let queue = client.queue("job").await.unwrap();
    let shown: Vec<_> =
        queue.contenders.iter().map(|shown| (shown.grant.is_some(), shown.owner.clone().unwrap().host)).collect();
    assert!(shown[0].0 && shown[0].1.starts_with("fencelock"), "{shown:?}");
    assert!(!shown[1].0 && shown[1].1.starts_with("waits"), "{shown:?}");
    assert_eq!(client.names("", None, 10).await.unwrap().iter().map(ToString::to_string).collect::<Vec<_>>(), ["job"]);
    let error = client.break_grant("job", &queue.contenders[0], "stuck").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    for guard in held {
        guard.release().await.unwrap();
    }
    soon(waiting).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_name_without_a_key_is_refused_and_nothing_is_to_be_made() {
    let (url, _) = database();
    let error = refused(&with(&url, "layout=advisory")).await;
    assert!(error.kind() == ErrorKind::Config && error.to_string().contains("with_advisory_lock"), "{error}");
    assert_eq!(Schema::of(&with(&url, "layout=advisory&key=.net")).unwrap_err().kind(), ErrorKind::Config);
    let client = client(&with(&url, "layout=advisory&key=bigint"), LONG).await;
    let error = client.mutex("job").unwrap().try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidName, "{error}");
}
