//! Addresses at which no lock can be had, and users who may not take one: each a clear error in time, and never a grant.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;

use fencelock::ErrorKind;
use fencelock_testbed::Port;
use fencelock_testbed::redis::{Role, Settings, shared};
use futures_util::TryStreamExt;

use crate::lab::{acquired, acquiring, client, patient, refused, server, soon, taken, until, until_queued, with_ttl};

#[tokio::test]
async fn where_no_server_listens_the_error_names_the_address() {
    let nobody = Port::reserve().unwrap();
    let error = refused(&format!("redis://u:s3cret@{}?ttl_ms=3000", nobody.address())).await;
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(error.is_retryable() && error.to_string().contains(&nobody.address().to_string()), "{error}");
    assert!(!format!("{error} {error:?}").contains("s3cret"));
    let error = refused("redis+unix:///no/such/socket").await;
    assert!(error.kind() == ErrorKind::Unreachable && error.to_string().contains("/no/such/socket"), "{error}");
}

#[tokio::test]
async fn a_wrong_password_is_denied_and_shown_nowhere() {
    let settings = Settings { password: Some("right".to_owned()), ..Settings::default() };
    let server = server(settings.with_user("locks", "on >r1ght ~* &* +@all"));
    for who in ["", ":wr0ng@", "locks:wr0ng@", "locks:right@", "nobody:wr0ng@"] {
        let error = refused(&format!("redis://{who}{}", server.address())).await;
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Denied, false), "{who}: {error}");
        assert!(!format!("{error} {error:?}").contains("wr0ng"), "{error}");
    }
    for who in [":right@", "default:right@", "locks:r1ght@"] {
        drop(taken(&format!("redis://{who}{}", server.address())).await.unwrap());
    }
}

#[tokio::test]
async fn users_who_may_not_do_what_locks_need_are_denied_when_they_connect() {
    const MAY: &[(&str, &str)] = &[
        ("no-scripts", "on >p ~* &* +@all -@scripting"),
        ("no-messages", "on >p ~* &* +@all -@pubsub"),
        ("no-publish", "on >p ~* &* +@all -publish"),
        ("no-channels", "on >p ~* resetchannels +@all"),
        ("no-keys", "on >p resetkeys &* +@all"),
        ("other-keys", "on >p ~other:* &* +@all"),
        ("reader", "on >p %R~* &* +@all"),
    ];
    let settings = MAY.iter().fold(Settings::default(), |settings, (user, rules)| settings.with_user(user, rules));
    let enough = "on >p ~fencelock:* resetchannels &fencelock:* +@all -@dangerous -@admin +info +config|get";
    let server = server(settings.with_user("enough", enough));
    for (user, _) in MAY {
        let url = format!("redis://{user}:p@{}", server.address());
        let Err(error) = patient(&url).await else { panic!("{user} is taken in") };
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Denied, false), "{user}: {error}");
        assert!(error.to_string().contains("access control list"), "{user}: {error}");
    }
    drop(taken(&format!("redis://enough:p@{}", server.address())).await.unwrap());
}

#[tokio::test]
async fn a_replica_names_no_lock_and_the_error_asks_for_the_primary() {
    let primary = server(Settings::default());
    let replica = server(Settings::role(Role::ReplicaOf(primary.address())));
    let error = refused(&replica.url()).await;
    assert!(error.to_string().contains("replica") && error.to_string().contains("primary"), "{error}");
}

#[tokio::test]
async fn sentinels_and_nodes_of_a_cluster_are_refused_by_their_kind() {
    let primary = server(Settings::default());
    let sentinel = server(Settings::role(Role::SentinelOf(primary.address())));
    let node = server(Settings::role(Role::ClusterNode));
    for (address, what) in [(sentinel.address(), "Sentinel"), (node.address(), "luster")] {
        let error = refused(&format!("redis://{address}")).await;
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unsupported, false), "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }
}

type Treat = fn(std::net::TcpStream);

/// Listens, and treats every connection in this way.
fn service(treat: Treat) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        listener.incoming().map_while(Result::ok).for_each(|stream| drop(thread::spawn(move || treat(stream))))
    });
    address
}

/// Reads something, and answers with this.
fn answers(mut stream: std::net::TcpStream, answer: &[u8]) {
    let mut asked = [0; 4096];
    while stream.read(&mut asked).is_ok_and(|read| read > 0) && stream.write_all(answer).is_ok() {}
}

#[tokio::test]
async fn other_services_on_the_port_are_recognised_in_time() {
    let services: [(&str, Treat); 7] = [
        ("a web server", |stream| answers(stream, b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")),
        ("memcached", |stream| answers(stream, b"ERROR\r\n")),
        ("a mail server", |mut stream| {
            let _ = stream.write_all(b"220 mail.example ESMTP\r\n");
            answers(stream, b"500 what?\r\n");
        }),
        ("somebody silent", |mut stream| drop(std::io::copy(&mut stream, &mut std::io::sink()))),
        ("somebody who hangs up", drop),
        ("noise", |stream| answers(stream, &[0xff; 512])),
        ("a length without end", |stream| answers(stream, b"$9999999999999\r\n")),
    ];
    for (who, treat) in services {
        let error = refused(&with_ttl(&format!("redis://{}", service(treat)), 3000)).await;
        assert!(matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Layout), "{who}: {error:?}");
    }
}

#[tokio::test]
async fn a_server_that_may_evict_sessions_is_refused() {
    for policy in ["allkeys-lru", "allkeys-random", "volatile-ttl", "volatile-lfu"] {
        let server = server(Settings::default().with("maxmemory 64mb").with(&format!("maxmemory-policy {policy}")));
        let error = refused(&server.url()).await;
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Config, false), "{error}");
        assert!(error.to_string().contains(policy) && error.to_string().contains("noeviction"), "{error}");
    }
    // A limit may be set later, when clients no longer check.
    for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-random"] {
        let error = refused(&server(Settings::default().with(&format!("maxmemory-policy {policy}"))).url()).await;
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Config, false), "{error}");
    }
    for settings in
        [Settings::default().with("maxmemory 64mb"), Settings::default().with("maxmemory-policy volatile-lru")]
    {
        drop(taken(&server(settings).url()).await.unwrap());
    }
}

#[tokio::test]
async fn a_database_that_is_not_there_is_reported() {
    let error = refused(&format!("redis://{}/70000", shared().address())).await;
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Config, false), "{error}");
}

#[tokio::test]
async fn a_server_with_too_many_clients_says_so() {
    let server = server(Settings::default().with("maxclients 4"));
    // The client that asked whether the server is there may still be counted.
    let mut others = Vec::new();
    until("four clients are taken in", async || {
        let mut hands = server.hands().unwrap();
        others.extend(hands.ask(&["PING"]).is_ok().then_some(hands));
        others.len() == 4
    })
    .await;
    // The server says so unasked and hangs up: a client that greets it at that moment may receive nothing else.
    let error = refused(&with_ttl(&server.url(), 3000)).await;
    assert!(error.is_retryable() && error.to_string().contains("maxclients"), "{error:?}");
    drop(others);
    // The server has to notice that they are gone.
    until("there is room again", async || taken(&server.url()).await.is_ok()).await;
}

#[tokio::test]
async fn a_layout_of_another_version_is_refused() {
    let server = server(Settings::default());
    server.ask(&["SET", "fencelock:layout", "1"]).unwrap();
    let error = refused(&server.url()).await;
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Layout, false), "{error}");
    assert!(error.to_string().contains("layout 1"), "{error}");
    // Nor is it read.
    assert_eq!(crate::patience::refused(&server.url()).await.kind(), ErrorKind::Layout);
}

/// The rules for a user who may do what is needed and nothing else, as the documents have them.
fn least_rules() -> String {
    rules("user locks on ")
}

/// The rules behind the beginning of a line in the documents, and a password.
pub(crate) fn rules(of: &str) -> String {
    let docs = format!("{}/../../docs/stores.md", env!("CARGO_MANIFEST_DIR"));
    let docs = std::fs::read_to_string(docs).unwrap();
    let line = docs.lines().find_map(|line| line.strip_prefix(of)).expect("the docs print the rules");
    line.split_once(' ').expect("a password and rules").1.to_owned()
}

#[tokio::test]
async fn the_rules_that_the_documents_print_are_enough_for_everything() {
    let rules = least_rules();
    let server = server(Settings::default().with_user("locks", &format!("on >p {rules}")));
    let url = format!("redis://locks:p@{}", server.address());
    let (one, two) = (client(&url, 60_000).await, client(&url, 60_000).await);
    let held = one.mutex("job").unwrap().acquire().await.unwrap();
    two.mutex("job").unwrap().try_acquire().await.unwrap_err();
    let waiting = acquiring(&two, "job");
    until_queued(&one, "job", 2).await;
    let third = acquiring(&two, "job");
    until_queued(&one, "job", 3).await;
    held.release().await.unwrap();
    let held = acquired(waiting).await;
    let queue = one.queue(held.name()).await.unwrap();
    let by = queue.contenders[0].owner.clone().unwrap();
    let order =
        fencelock::inspect::Break::of(held.name(), &queue.contenders[0], by, "why", std::time::SystemTime::now());
    let store = fencelock::store::open_url(fencelock::store::StoreUrl::parse(&url).unwrap()).await.unwrap();
    assert!(store.break_grant(&order.unwrap()).await.unwrap());
    assert_eq!(store.breaks(held.name()).await.unwrap().len(), 1);
    soon(held.lost()).await;
    acquired(third).await.release().await.unwrap();
    let writer = one.rwlock("data").unwrap().write().await.unwrap();
    let reader = writer.downgrade().await.unwrap();
    assert_eq!(store.names("").try_concat().await.unwrap().len(), 1);
    reader.release().await.unwrap();
    // A separate connection, to regain access.
    server.ask(&["CLIENT", "KILL", "USER", "locks"]).unwrap();
    soon(one.mutex("job").unwrap().acquire()).await.unwrap().release().await.unwrap();
    one.close().await.unwrap();
    two.close().await.unwrap();
}

/// Commands that no script needs to give up a lock: a connection works without the first three. Without the other rights, the
/// operations that need them fail.
const NOT_ASKED_FOR: [&str; 7] = ["+ping", "+info", "+select", "+time", "+hget", "+lrange", "+get"];

#[tokio::test]
async fn without_any_one_of_the_other_commands_nothing_is_written_and_the_error_names_it() {
    let rules = least_rules();
    let server = server(Settings::default());
    for (number, rule) in
        rules.split(' ').filter(|rule| rule.starts_with('+') && !NOT_ASKED_FOR.contains(rule)).enumerate()
    {
        let user = format!("u{number}");
        let mut command = vec!["ACL", "SETUSER", &user, "on", ">p"];
        command.extend(rules.split(' ').filter(|other| *other != rule));
        server.ask(&command).unwrap();
        let url = format!("redis://{user}:p@{}", server.address());
        let Err(error) = patient(&url).await else { panic!("{user} is taken in without {rule}") };
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Denied, false), "{rule}: {error}");
        let shown = error.to_string();
        let command = rule[1..].to_uppercase();
        let inside = !["+evalsha", "+script|load", "+subscribe", "+set"].contains(&rule);
        assert!((!inside || shown.contains(&command)) && shown.contains("docs/stores.md"), "{rule}: {error}");
        let keys = server.ask(&["KEYS", "*"]).unwrap();
        assert!(keys.items().len() <= 1, "{rule}: {keys:?}");
        server.ask(&["DEL", "fencelock:layout"]).unwrap();
    }
}

#[tokio::test]
async fn a_missing_right_to_read_denies_only_the_operation_that_needs_it() {
    let rules = least_rules().replace(" +lrange", "");
    let server = server(Settings::default().with_user("locks", &format!("on >p {rules}")));
    let client = client(&format!("redis://locks:p@{}", server.address()), 60_000).await;
    let held = client.mutex("job").unwrap().acquire().await.unwrap();
    let denied = client.breaks("job").await.unwrap_err();
    assert_eq!((denied.kind(), denied.is_retryable()), (ErrorKind::Denied, false), "{denied}");
    assert!(denied.to_string().contains("lrange") && denied.to_string().contains("docs/stores.md"), "{denied}");
    held.release().await.unwrap();
}
