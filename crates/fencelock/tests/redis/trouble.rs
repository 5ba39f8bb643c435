//! A server in trouble: clients wait out a refusal that passes, or get its reason, and no lock is granted twice.

use std::time::Duration;

use fencelock::{ErrorKind, Loss, Name};
use fencelock_testbed::Proxy;
use fencelock_testbed::redis::{Reply, Role, Server, Settings};

use crate::lab::{
    acquired, acquiring, busy, client, observed, queued, refused, server, soon, until, until_queued, with_ttl,
};

fn is_busy(server: &Server) -> bool {
    server.ask(&["PING"]).is_err_and(|error| error.to_string().starts_with("BUSY"))
}

#[tokio::test]
async fn scripts_that_the_server_forgot_are_taught_again() {
    let server = server(Settings::default());
    let (holder, waiter) = (client(&server.url(), 60_000).await, client(&server.url(), 60_000).await);
    let forget = || assert_eq!(server.ask(&["SCRIPT", "FLUSH"]).unwrap(), Reply::Status("OK".to_owned()));
    forget();
    let guard = holder.mutex("job").unwrap().acquire().await.unwrap();
    forget();
    let waiting = acquiring(&waiter, "job");
    until_queued(&holder, "job", 2).await;
    forget();
    guard.release().await.unwrap();
    let guard = acquired(waiting).await;
    forget();
    guard.check().unwrap();
    guard.release().await.unwrap();
    let writer = holder.rwlock("page").unwrap().write().await.unwrap();
    forget();
    writer.downgrade().await.unwrap().release().await.unwrap();
    assert_eq!((queued(&holder, "job").await, queued(&holder, "page").await), (0, 0));
}

#[tokio::test]
async fn an_endless_script_is_waited_for_and_named_to_clients_that_cannot_wait() {
    let server = server(Settings::default().with("lua-time-limit 20"));
    let (client, seen) = observed(&server.url(), 60_000).await;
    client.mutex("before").unwrap().acquire().await.unwrap().release().await.unwrap();
    busy(&server);
    until("the server is busy", async || is_busy(&server)).await;
    let error = client.mutex("job").unwrap().acquire_within(Duration::from_secs(1)).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Unreachable), "{error:?}");
    let waiting = acquiring(&client, "job");
    until("it is told why", async || seen.retried.lock().unwrap().iter().any(|why| why.contains("busy"))).await;
    let refused = refused(&with_ttl(&server.url(), 60_000)).await;
    assert!(refused.is_retryable() && refused.to_string().contains("SCRIPT KILL"), "{refused:?}");
    assert_eq!(server.hands().unwrap().ask(&["SCRIPT", "KILL"]).unwrap(), Reply::Status("OK".to_owned()));
    let guard = acquired(waiting).await;
    assert_eq!(queued(&client, "job").await, 1);
    guard.release().await.unwrap();
}

/// The layouts of one server, as options of a URL.
const LAYOUTS: [&str; 4] = ["", "?layout=plain", "?layout=redisson", "?layout=redisson-fenced"];

#[tokio::test]
async fn a_release_that_a_server_refuses_for_the_moment_is_repeated_until_it_succeeds() {
    let server = server(Settings::default().with("lua-time-limit 20"));
    for layout in LAYOUTS {
        // The release's limit is a third of the ttl, and the patience of this test.
        let (client, seen) = observed(&format!("{}{layout}", server.url()), 540_000).await;
        let was_refused = |word: &str| seen.retried.lock().unwrap().iter().any(|why| why.contains(word));
        let guard = client.mutex("job").unwrap().acquire().await.unwrap();
        busy(&server);
        until("the server is busy", async || is_busy(&server)).await;
        let releasing = tokio::spawn(guard.release());
        until("the release is refused", async || was_refused("busy with a script")).await;
        assert_eq!(server.hands().unwrap().ask(&["SCRIPT", "KILL"]).unwrap(), Reply::Status("OK".to_owned()));
        soon(releasing).await.unwrap().unwrap();
        assert_eq!(queued(&client, "job").await, 0, "{layout}");
    }
}

#[tokio::test]
async fn a_server_that_becomes_a_replica_grants_nothing_more() {
    let (one, other) = (server(Settings::default()), server(Settings::default()));
    let (holder, seen) = observed(&one.url(), 6000).await;
    let guard = holder.mutex("job").unwrap().acquire().await.unwrap();
    let primary = other.address();
    one.ask(&["REPLICAOF", &primary.ip().to_string(), &primary.port().to_string()]).unwrap();
    soon(guard.lost()).await;
    let why = |told: &str| told.contains("replica") && told.contains("primary");
    until("it is told why", async || {
        let error = holder.mutex("other").unwrap().acquire_within(Duration::from_secs(1)).await.unwrap_err();
        why(&error.to_string()) || seen.retried.lock().unwrap().iter().any(|told| why(told))
    })
    .await;
    one.ask(&["REPLICAOF", "NO", "ONE"]).unwrap();
    let granted = acquired(acquiring(&holder, "other")).await;
    assert_eq!(queued(&holder, "other").await, 1);
    granted.release().await.unwrap();
}

#[tokio::test]
async fn a_server_without_memory_takes_no_client_in_and_lets_every_client_out() {
    let server = server(Settings::default());
    let client = client(&server.url(), 60_000).await;
    let guard = client.mutex("job").unwrap().acquire().await.unwrap();
    let waiting = acquiring(&client, "job");
    until_queued(&client, "job", 2).await;
    server.ask(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    let error = client.mutex("other").unwrap().try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted, "{error:?}");
    assert!(error.to_string().contains("memory"), "{error}");
    guard.release().await.unwrap();
    acquired(waiting).await.release().await.unwrap();
    server.ask(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    assert_eq!(queued(&client, "other").await, 0, "what was refused took effect");
    client.mutex("other").unwrap().try_acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_new_client_of_a_server_without_memory_sees_and_breaks_what_is_there() {
    let server = server(Settings::default());
    let memory = |limit| server.ask(&["CONFIG", "SET", "maxmemory", limit]).unwrap();
    memory("1");
    let first = client(&server.url(), 60_000).await;
    assert_eq!(first.names("", None, 9).await.unwrap(), []);
    memory("0");
    let guard = first.mutex("job").unwrap().acquire().await.unwrap();
    memory("1");
    let (fresh, name) = (client(&server.url(), 60_000).await, Name::new("job").unwrap());
    assert_eq!(fresh.names("", None, 9).await.unwrap(), std::slice::from_ref(&name));
    let queue = fresh.queue(&name).await.unwrap();
    assert_eq!(queue.contenders.len(), 1);
    let error = fresh.mutex("other").unwrap().try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted, "{error:?}");
    assert!(fresh.break_grant(&name, &queue.contenders[0], "stuck").await.unwrap());
    soon(guard.lost()).await;
    assert_eq!(fresh.breaks(&name).await.unwrap().len(), 1);
}

#[tokio::test]
async fn writes_that_have_to_wait_do_and_take_effect_once() {
    let server = server(Settings::default());
    let (holder, waiter) = (client(&server.url(), 60_000).await, client(&server.url(), 60_000).await);
    for mode in ["WRITE", "ALL"] {
        let guard = holder.mutex("job").unwrap().acquire().await.unwrap();
        server.ask(&["CLIENT", "PAUSE", "1500", mode]).unwrap();
        let waiting = acquiring(&waiter, "job");
        soon(guard.release()).await.unwrap();
        let granted = acquired(waiting).await;
        assert_eq!(queued(&holder, "job").await, 1, "{mode}");
        granted.release().await.unwrap();
    }
}

#[tokio::test]
async fn keys_of_others_under_our_names_are_reported_and_left_alone() {
    let server = server(Settings::default());
    let client = client(&server.url(), 60_000).await;
    client.mutex("job").unwrap().acquire().await.unwrap().release().await.unwrap();
    let buckets = server.ask(&["KEYS", "fencelock:2:{*}:bucket"]).unwrap();
    let [Reply::Bytes(bucket)] = buckets.items() else { panic!("{buckets:?}") };
    server.ask(&["DEL".as_bytes(), bucket]).unwrap();
    server.ask(&["SET".as_bytes(), bucket, b"somebody else's"]).unwrap();
    let error = client.mutex("job").unwrap().acquire().await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Layout, false), "{error:?}");
    let error = client.queue(&Name::new("job").unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Layout, "{error:?}");
    assert_eq!(server.ask(&["GET".as_bytes(), bucket]).unwrap().to_string(), "somebody else's");
    server.ask(&["DEL".as_bytes(), bucket]).unwrap();
    client.mutex("job").unwrap().acquire().await.unwrap().release().await.unwrap();
}

/// A reason that is a message of its own reaches no store.
#[tokio::test]
async fn no_reason_of_a_break_says_more_to_its_holder_than_why() {
    let server = server(Settings::default());
    let (holder, other) = (client(&server.url(), 60_000).await, client(&server.url(), 60_000).await);
    let guard = holder.mutex("job").unwrap().acquire().await.unwrap();
    let queue = other.queue(guard.name()).await.unwrap();
    let [held] = &queue.contenders[..] else { panic!("{queue:?}") };
    for reason in ["why\nn other", "", &"x".repeat(513)] {
        let error = other.break_grant(guard.name(), held, reason).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    }
    guard.check().unwrap();
    assert!(other.break_grant(guard.name(), held, "why").await.unwrap());
    soon(guard.lost()).await;
    assert_eq!(guard.break_reason(), Some("why"));
}

#[tokio::test]
async fn closing_a_client_gives_up_whole_names_although_another_one_is_damaged() {
    let server = server(Settings::default());
    // The ttl outlasts the test: only a release grants another client.
    let (holder, other) = (client(&server.url(), 600_000).await, client(&server.url(), 600_000).await);
    let _broken = holder.mutex("broken").unwrap().acquire().await.unwrap();
    let buckets = server.ask(&["KEYS", "fencelock:2:{*}:bucket"]).unwrap();
    let [Reply::Bytes(bucket)] = buckets.items() else { panic!("{buckets:?}") };
    let _whole = holder.mutex("whole").unwrap().acquire().await.unwrap();
    server.ask(&["DEL".as_bytes(), bucket]).unwrap();
    server.ask(&["SET".as_bytes(), bucket, b"somebody else's"]).unwrap();
    soon(holder.close()).await.unwrap();
    soon(other.mutex("whole").unwrap().acquire()).await.unwrap().release().await.unwrap();
    let sessions = server.ask(&["KEYS", "fencelock:2:session:*"]).unwrap();
    assert_eq!(sessions.items().len(), 1, "the session that was closed is left: {sessions:?}");
}

#[tokio::test]
async fn a_primary_that_becomes_a_replica_is_left_at_the_first_word_of_it() {
    let old = server(Settings::default());
    let new = server(Settings::role(Role::ReplicaOf(old.address())));
    let way = Proxy::start(old.address()).unwrap();
    // The ttl outlasts the test: neither its end nor a renewal causes the loss.
    let client = client(&format!("redis://{}", way.address()), 600_000).await;
    let guard = client.mutex("job").unwrap().acquire().await.unwrap();
    let sessions = |server: &Server| server.ask(&["KEYS", "fencelock:2:session:*"]).unwrap().items().len();
    until("the replica has the lock", async || sessions(&new) == 1).await;
    way.lead_to(new.address());
    new.ask(&["REPLICAOF", "NO", "ONE"]).unwrap();
    let address = new.address();
    old.ask(&["REPLICAOF", &address.ip().to_string(), &address.port().to_string()]).unwrap();
    // The old primary has the session as the new one has it: a client that kept asking it would be refused for ever.
    let next = soon(client.mutex("next").unwrap().acquire()).await.unwrap();
    // Another server may not know all that the old one has granted.
    assert_eq!(soon(guard.lost()).await, Loss::Demoted);
    until("the session that was lost is closed", async || sessions(&new) == 1).await;
    next.check().unwrap();
}

/// The server's run id is as before, and its data are those of the other server: the session that it had received, and not
/// the later grants of the other server to other clients.
#[tokio::test]
async fn locks_of_a_primary_that_was_a_replica_for_a_while_are_lost() {
    let one = server(Settings::default());
    let other = server(Settings::role(Role::ReplicaOf(one.address())));
    let (client, seen) = observed(&one.url(), 600_000).await;
    let guard = client.mutex("job").unwrap().acquire().await.unwrap();
    until("the replica has the session", async || {
        other.ask(&["KEYS", "fencelock:2:session:*"]).unwrap().items().len() == 1
    })
    .await;
    other.ask(&["REPLICAOF", "NO", "ONE"]).unwrap();
    let address = other.address();
    one.ask(&["REPLICAOF", &address.ip().to_string(), &address.port().to_string()]).unwrap();
    let next = client.mutex("next").unwrap();
    until("the client is told that it is one", async || {
        let error = soon(next.acquire_within(Duration::from_secs(1))).await.unwrap_err();
        error.to_string().contains("replica") || seen.retried.lock().unwrap().iter().any(|why| why.contains("replica"))
    })
    .await;
    one.ask(&["REPLICAOF", "NO", "ONE"]).unwrap();
    soon(guard.lost()).await;
    soon(next.acquire()).await.unwrap().check().unwrap();
}

#[tokio::test]
async fn names_with_braces_quotes_and_any_script_are_locks_of_their_own() {
    const NAMES: &[&str] = &[
        "{a}",
        "{a",
        "a}",
        "{}",
        "}{",
        "{a}b",
        "a",
        "a b",
        " a",
        "a/b",
        "a:b",
        "a\u{a0}b",
        "'a'",
        "\"a\"",
        "a\\nb",
        "%61",
        "*",
        "[a]",
        "$1",
        "名前",
        "🔒",
        "\u{202e}a",
    ];
    let server = server(Settings::default());
    let (client, other) = (client(&server.url(), 60_000).await, client(&server.url(), 60_000).await);
    let mut guards = Vec::new();
    for name in NAMES {
        guards
            .push(client.mutex(name).unwrap().try_acquire().await.unwrap_or_else(|error| panic!("{name:?}: {error}")));
    }
    for name in NAMES {
        let busy = other.mutex(name).unwrap().try_acquire().await.unwrap_err();
        assert_eq!(busy.kind(), ErrorKind::Busy, "{name:?}: {busy}");
    }
    let mut expected: Vec<&str> = NAMES.to_vec();
    expected.sort_unstable();
    let names = client.names("", None, 100).await.unwrap();
    assert_eq!(names.iter().map(Name::as_str).collect::<Vec<_>>(), expected);
    for (name, guard) in NAMES.iter().zip(guards) {
        let waiting = acquiring(&other, name);
        until_queued(&client, name, 2).await;
        guard.release().await.unwrap();
        acquired(waiting).await.release().await.unwrap();
    }
    for refused in ["a\nb", "a\0b", "", "..", &"x".repeat(513)] {
        assert_eq!(client.mutex(refused).unwrap_err().kind(), ErrorKind::InvalidName, "{refused:?}");
    }
}
