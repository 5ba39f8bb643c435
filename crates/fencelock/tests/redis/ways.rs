//! The ways to a server: TLS, a socket file, a database; and the older protocol, which is refused.

use std::fs;

use fencelock::ErrorKind;
use fencelock_testbed::redis::{Role, Settings, Tls};

use crate::authority::{authority, certificates, identity};
use crate::lab::{acquired, acquiring, client, refused, server, taken, until, until_queued};

#[tokio::test]
async fn locks_are_taken_over_tls_and_only_from_servers_that_are_trusted() {
    let directory = certificates();
    let directory = directory.path();
    let [certificate, key, trusted] = ["127.0.0.1.crt", "127.0.0.1.key", "ours.pem"].map(|file| directory.join(file));
    let settings = Settings { tls: Some(Tls { certificate, key, trusted, asks_clients: true }), ..Settings::default() };
    let server = server(Settings { password: Some("secret".to_owned()), ..settings });
    let address = server.secure_address().unwrap();
    let files = directory.display();
    let url = |ca: &str, own: &str| format!("rediss://:secret@{address}?ttl_ms=60000&tls_ca={files}/{ca}.pem{own}");
    let own = format!("&tls_cert={files}/client.crt&tls_key={files}/client.key");
    let (holder, guard) = taken(&url("ours", &own)).await.unwrap();
    let waiter = client(&format!("redis://:secret@{}", server.address()), 60_000).await;
    let waiting = acquiring(&waiter, "job");
    until_queued(&holder, "job", 2).await;
    guard.release().await.unwrap();
    let guard = acquired(waiting).await;
    let waiting = acquiring(&holder, "job");
    until_queued(&holder, "job", 2).await;
    guard.release().await.unwrap();
    acquired(waiting).await.release().await.unwrap();
    for (ca, own) in [("other", &*own), ("ours", "")] {
        let error = refused(&url(ca, own)).await;
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
    // A trusted certificate of another host.
    let elsewhere = url("ours", &own).replace(&address.to_string(), &format!("localhost:{}", address.port()));
    let error = refused(&elsewhere).await;
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(error.to_string().contains("not valid for name"), "{error}");
    // Only the client or only the server speaks TLS.
    for url in [
        format!("redis://:secret@{address}?ttl_ms=3000"),
        url("ours", &own).replace(&address.to_string(), &server.address().to_string()),
    ] {
        let error = refused(&url).await;
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    }
}

#[tokio::test]
async fn sentinels_and_their_primary_are_asked_over_tls_each_by_itself() {
    let directory = certificates();
    let file = |name| directory.path().join(name);
    let [certificate, key, trusted] = ["127.0.0.1.crt", "127.0.0.1.key", "ours.pem"].map(file);
    let tls = Some(Tls { certificate, key, trusted, asks_clients: false });
    let primary = server(Settings { tls: tls.clone(), ..Settings::default() });
    let sentinel = server(Settings { tls, ..Settings::role(Role::SentinelOf(primary.address())) });
    let (plain, secure) = (sentinel.address(), sentinel.secure_address().unwrap());
    // A Sentinel names the port without TLS.
    let map = format!("&map={}={}", primary.address(), primary.secure_address().unwrap());
    let url = |scheme: &str, sentinel, options: &str| {
        let trust = format!("tls_ca={}", file("ours.pem").display());
        format!("{scheme}+sentinel://{sentinel}/locks?min_replicas=0&ttl_ms=60000&{trust}{options}")
    };
    for url in [
        url("rediss", secure, &map),
        url("rediss", plain, &format!("&sentinel_tls=off{map}")),
        url("redis", secure, "&sentinel_tls=on"),
    ] {
        let (_client, guard) = taken(&url).await.unwrap_or_else(|error| panic!("{url}: {error:?}"));
        guard.release().await.unwrap();
    }
    let untrusted = url("rediss", secure, &map).replace("ours.pem", "other.pem");
    for (url, named) in [(untrusted, secure), (url("rediss", plain, &map), plain)] {
        let error = refused(&url).await;
        let cause = format!("{error} {error:?}");
        assert!(error.kind() == ErrorKind::Unreachable && cause.contains(&named.to_string()), "{url}: {cause}");
    }
}

#[tokio::test]
async fn a_cluster_is_used_over_tls_alone() {
    let directory = certificates();
    let directory = directory.path();
    let [certificate, key, trusted] = ["127.0.0.1.crt", "127.0.0.1.key", "ours.pem"].map(|file| directory.join(file));
    let tls = Some(Tls { certificate, key, trusted, asks_clients: false });
    let settings = Settings { tls, password: Some("secret".to_owned()), ..Settings::role(Role::ClusterNode) };
    let node = server(settings.with("tls-cluster yes"));
    let address = node.secure_address().unwrap();
    let options = format!("ttl_ms=60000&min_replicas=0&tls_ca={}/ours.pem", directory.display());
    let (_holder, guard) = taken(&format!("rediss+cluster://:secret@{address}?{options}")).await.unwrap();
    guard.release().await.unwrap();
    let error = refused(&format!("rediss+cluster://:secret@{}?{options}", node.address())).await;
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
}

#[tokio::test]
async fn a_quorum_is_asked_over_tls_and_a_master_that_is_not_trusted_is_missing() {
    let (ours, other, directory) = (authority(), authority(), tempfile::tempdir().unwrap());
    let directory = directory.path();
    fs::write(directory.join("ours.pem"), ours.pem()).unwrap();
    let trusted = directory.join("ours.pem");
    let servers = [&ours, &ours, &other].map(|authority| {
        identity(authority, directory, "127.0.0.1");
        let [certificate, key] = ["crt", "key"].map(|kind| directory.join(format!("127.0.0.1.{kind}")));
        let tls = Tls { certificate, key, trusted: trusted.clone(), asks_clients: false };
        server(Settings { tls: Some(tls), password: Some("s3cret".to_owned()), ..Settings::default() })
    });
    let [a, b, c] = [0, 1, 2].map(|index| servers[index].secure_address().unwrap());
    let url = format!("redlocks://:s3cret@{a},{b},{c}?rejoin_ms=0&tls_ca={}", trusted.display());
    let client = client(&url, 60_000).await;
    let guard = acquired(acquiring(&client, "job")).await;
    for (server, has) in servers.iter().zip([1, 1, 0]) {
        assert_eq!(server.ask(&["EXISTS", "job"]).unwrap().number().unwrap(), has);
    }
    guard.release().await.unwrap();
}

#[tokio::test]
async fn masters_that_speak_no_tls_are_named_with_that() {
    let directory = tempfile::tempdir().unwrap();
    let trusted = directory.path().join("ours.pem");
    fs::write(&trusted, authority().pem()).unwrap();
    let servers = [0, 1, 2].map(|_| server(Settings::default()));
    let addresses = servers.each_ref().map(|server| server.address().to_string());
    let url = format!("redlocks://{}?ttl_ms=3000&tls_ca={}", addresses.join(","), trusted.display());
    // The connect ends with the second silence, and a busy machine may notice the third one later.
    until("each master is named with its silence", async || {
        let said = refused(&url).await.to_string();
        addresses.iter().all(|address| {
            let named = format!("missing rediss://{address}/0: ");
            let reason = said.split_once(&named).unwrap_or_else(|| panic!("{named} in {said}")).1;
            reason.split(", missing").next().unwrap().contains("TLS")
        })
    })
    .await;
}

#[tokio::test]
async fn a_socket_file_leads_to_the_same_locks() {
    let server = server(Settings { password: Some("secret".to_owned()), ..Settings::default() });
    let url = format!("redis+unix://locks:s@{}?db=3", server.socket().display());
    server.ask(&["ACL", "SETUSER", "locks", "on", ">s", "~*", "&*", "+@all"]).unwrap();
    let (_client, guard) = taken(&url).await.unwrap();
    let other = client(&format!("redis://:secret@{}/3", server.address()), 60_000).await;
    let busy = other.mutex("job").unwrap().try_acquire().await.unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy, "{busy}");
    guard.release().await.unwrap();
    other.mutex("job").unwrap().try_acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn databases_are_apart() {
    let server = server(Settings::default());
    let (one, two) =
        (client(&format!("{}/1", server.url()), 60_000).await, client(&format!("{}/2", server.url()), 60_000).await);
    let first = one.mutex("job").unwrap().acquire().await.unwrap();
    let second = two.mutex("job").unwrap().try_acquire().await.unwrap();
    // A message of one database is delivered in all of them.
    let waiting = (acquiring(&one, "job"), acquiring(&two, "job"));
    until_queued(&one, "job", 2).await;
    until_queued(&two, "job", 2).await;
    first.release().await.unwrap();
    let first = acquired(waiting.0).await;
    assert!(!waiting.1.is_finished());
    second.release().await.unwrap();
    acquired(waiting.1).await.release().await.unwrap();
    first.release().await.unwrap();
}

#[tokio::test]
async fn a_server_that_knows_only_the_older_protocol_is_refused_with_what_to_use() {
    let server = server(Settings::default().with("rename-command HELLO \"\""));
    for layout in ["fair", "plain", "redisson"] {
        let error = refused(&format!("redis://{}?layout={layout}", server.address())).await;
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unsupported, false), "{error}");
        assert!(error.to_string().contains("Redis 6.0") && error.to_string().contains("Valkey"), "{error}");
    }
}

#[tokio::test]
async fn a_user_whose_rules_do_not_name_hello_hands_over() {
    let server = server(Settings::default().with_user("old", "on >p ~* &* +@all -hello"));
    let url = format!("redis://old:p@{}", server.address());
    let (holder, waiter) = (client(&url, 60_000).await, client(&url, 60_000).await);
    let guard = holder.mutex("job").unwrap().acquire().await.unwrap();
    let waiting = acquiring(&waiter, "job");
    until_queued(&holder, "job", 2).await;
    guard.release().await.unwrap();
    acquired(waiting).await.release().await.unwrap();
}
