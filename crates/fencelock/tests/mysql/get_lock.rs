//! Named locks of the server, and sessions of other clients that take them by `GET_LOCK`.

use fencelock::mysql::Schema;
use fencelock::{Client, ErrorKind, Loss};
use fencelock_testbed::mysql::{KIND, Server, Settings};
use fencelock_testbed::{Proxy, Way};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use crate::lab::{acquire, acquiring, client, connection, database, migrated, refused, soon, until, with};
use crate::refused::until_refused_by;

const LONG: u64 = 60_000;

/// Named locks are the server's, which tests share: a beginning of this test's own.
fn prefix(url: &str) -> String {
    url.rsplit('/').next().unwrap().to_owned()
}

/// Tries to take the lock in a session of another client.
async fn takes(user: &mut Conn, key: &str) -> bool {
    user.exec_first::<Option<i64>, _, _>("SELECT GET_LOCK(?, 0)", (key,)).await.unwrap() == Some(Some(1))
}

async fn releases(user: &mut Conn, key: &str) -> bool {
    user.exec_first::<Option<i64>, _, _>("SELECT RELEASE_LOCK(?)", (key,)).await.unwrap() == Some(Some(1))
}

#[tokio::test]
async fn names_of_one_named_lock_are_refused_together_and_callers_of_them_in_any_order_finish() {
    let url = database();
    let mine = prefix(&url);
    let layout = |options: &str| with(&url, &format!("layout=get_lock&{options}"));
    for (options, names) in [
        (format!("key=exact:{mine}-all"), ["one", "other"]),
        (format!("key=exact&prefix={mine}"), ["Job", "job"]),
        ("key=.net".to_owned(), ["Nightly", "nightlyggsrfssbblutctwbdltpamp2qrpml357"]),
    ] {
        let client = client(&layout(&options), LONG).await;
        let error = soon(client.multi_lock(names).unwrap().acquire()).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Config && error.to_string().contains(names[1]), "{options}: {error}");
    }
    let options = format!("key=.net&prefix={mine}");
    let (one, other) = (client(&layout(&options), LONG).await, client(&layout(&options), LONG).await);
    let rounds = async |client: &Client, names: [&str; 2]| {
        for _ in 0..10 {
            client.multi_lock(names).unwrap().acquire().await.unwrap().release().await.unwrap();
        }
    };
    soon(async { tokio::join!(rounds(&one, ["a", "B"]), rounds(&other, ["B", "a"])) }).await;
}

#[tokio::test]
async fn sessions_of_other_programs_and_fencelocks_exclude_each_other_by_their_names() {
    let url = database();
    let mine = prefix(&url);
    let mut user = connection(&url).await;
    for (options, name, key) in [
        (format!("key=.net&prefix={mine}"), "job", format!("{mine}job")),
        // Computed by another implementation of SHA-512 and base 32.
        ("key=.net".to_owned(), "Nightly", "nightlyggsrfssbblutctwbdltpamp2qrpml357".to_owned()),
        (format!("key=with_advisory_lock&prefix={mine}"), "Job", format!("{mine}Job")),
        (format!("key=exact:{mine}-one"), "job", format!("{mine}-one")),
    ] {
        let client = client(&with(&url, &format!("layout=get_lock&{options}")), LONG).await;
        let guard = acquire(&client, name).await;
        assert!(!takes(&mut user, &key).await, "{options}: another client took our lock");
        guard.release().await.unwrap();
        assert!(takes(&mut user, &key).await, "{options}: what was released is not free");
        until_refused_by("fencelock at", &client, name).await;
        let waiting = acquiring(&client, name);
        assert!(releases(&mut user, &key).await);
        soon(waiting).await.unwrap().unwrap().release().await.unwrap();
        assert!(takes(&mut user, &key).await && releases(&mut user, &key).await, "{options}");
    }
}

#[tokio::test]
async fn a_session_never_has_one_lock_twice_under_any_names() {
    let url = database();
    let key = format!("{}-one", prefix(&url));
    let client = client(&with(&url, &format!("layout=get_lock&key=exact:{key}")), LONG).await;
    let mut user = connection(&url).await;
    let guard = acquire(&client, "one").await;
    for name in ["one", "other"] {
        assert!(soon(client.mutex(name).unwrap().try_acquire()).await.unwrap_err().is_contention(), "{name}");
    }
    let takes_turns = async |name: &str| acquire(&client, name).await.release().await.unwrap();
    let release = async { guard.release().await.unwrap() };
    tokio::join!(takes_turns("other"), takes_turns("one"), takes_turns("other"), release);
    assert!(takes(&mut user, &key).await, "it was taken more often than it was released");
}

#[tokio::test]
async fn the_end_of_the_connection_is_the_end_of_the_lock_and_is_reported() {
    let url = database();
    let key = format!("{}-one", prefix(&url));
    let client = client(&with(&url, &format!("layout=get_lock&key=exact:{key}")), LONG).await;
    let mut user = connection(&url).await;
    for _ in 0..3 {
        let guard = acquire(&client, "job").await;
        let holder: Option<u64> = user.exec_first("SELECT IS_USED_LOCK(?)", (&key,)).await.unwrap();
        user.query_drop(format!("KILL {}", holder.unwrap())).await.unwrap();
        assert_eq!(soon(guard.lost()).await, Loss::Expired);
        guard.release().await.unwrap_err();
        // The server closes the connection before it frees what the session held.
        until("the named lock is free", async || takes(&mut user, &key).await).await;
        assert!(releases(&mut user, &key).await);
    }
    acquire(&client, "job").await.release().await.unwrap();
}

#[tokio::test]
async fn a_holder_that_is_cut_off_is_lost_before_the_server_ends_its_session_and_a_rival_is_granted() {
    let direct = database();
    let proxy = Proxy::start(KIND.shared().address()).unwrap();
    let key = format!("{}-one", prefix(&direct));
    let url =
        format!("mysql://fencelock:secret@{}/{}?layout=get_lock&key=exact:{key}", proxy.address(), prefix(&direct));
    let (client, mut user) = (client(&url, 6_000).await, connection(&direct).await);
    let guard = acquire(&client, "job").await;
    proxy.hole(Way::Both);
    until("a rival is granted", async || takes(&mut user, &key).await).await;
    guard.check().unwrap_err();
    assert!(matches!(soon(guard.lost()).await, Loss::Expired | Loss::Unconfirmed));
    assert!(releases(&mut user, &key).await);
    proxy.heal();
    acquire(&client, "job").await.release().await.unwrap();
}

#[tokio::test]
async fn missing_features_of_named_locks_are_refused_and_nothing_is_to_be_made() {
    let url = database();
    let error = refused(&with(&url, "layout=get_lock")).await;
    assert!(error.kind() == ErrorKind::Config && error.to_string().contains("with_advisory_lock"), "{error}");
    let exact = with(&url, "layout=get_lock&key=exact");
    assert_eq!(Schema::of(&exact).unwrap_err().kind(), ErrorKind::Config);
    let client = client(&exact, LONG).await;
    let error = client.mutex("n".repeat(65)).unwrap().try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidName, "{error}");
    assert_eq!(client.rwlock("job").unwrap_err().kind(), ErrorKind::Unsupported);
    let error = client.names("", None, 10).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("lists no named locks"), "{error}");
}

/// A named lock holds on one node of a cluster alone, and newer nodes refuse it. Queues of our own are for one node that takes all writes.
#[tokio::test]
async fn a_node_of_a_cluster_is_refused_by_name() {
    let settings = ["--wsrep-on=ON", "--binlog-format=ROW"];
    let server = Server::start(settings.iter().fold(Settings::default(), |settings, one| settings.with(one))).unwrap();
    for options in ["layout=get_lock&key=exact", "layout=get_lock&key=exact&galera=one_writer", "layout=fair"] {
        let error = refused(&with(&server.url(), options)).await;
        assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("Galera"), "{options}: {error}");
    }
    migrated(async || Schema::of(&with(&server.url(), "layout=distributed_lock")).unwrap().migrate(&[]).await).await;
    for options in ["galera=one_writer", "layout=distributed_lock"] {
        let client = client(&with(&server.url(), options), LONG).await;
        client.mutex("job").unwrap().acquire().await.unwrap().release().await.unwrap();
    }
}
