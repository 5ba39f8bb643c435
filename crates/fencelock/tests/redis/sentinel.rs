//! A primary by way of its Sentinels: the URL and its mistakes, and grants that count once replicas have them. No primary ends here: the
//! failovers are in `tests/deep/redis/sentinel.rs`.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use fencelock::{Client, ErrorKind};
use fencelock_testbed::Proxy;
use fencelock_testbed::redis::{NO_FAILOVER, Role, Settings, Watched, shared_watched};

use crate::lab::{PATIENCE, acquired, acquiring, client, queued, refused, refused_within, server, soon, taken, until};

/// The URL of a database of the test's own, with these options.
fn url(options: &str) -> String {
    let watched = shared_watched();
    watched.url(&watched.namespace().unwrap(), options)
}

#[tokio::test]
async fn a_lock_taken_through_sentinels_excludes_clients_that_name_the_primary_itself() {
    let watched = shared_watched();
    let database = watched.namespace().unwrap();
    let client = client(&watched.url(&database, ""), 60_000).await;
    let direct = Client::connect(&format!("{}{database}", watched.primary().url())).await.unwrap();
    let guard = client.mutex("job").unwrap().acquire().await.unwrap();
    let busy = direct.mutex("job").unwrap().try_acquire().await.unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy, "{busy}");
    // A waiter is notified of its grant, which counts once replicas have it.
    let held = direct.mutex("next").unwrap().acquire().await.unwrap();
    let waiting = acquiring(&client, "next");
    until("it waits", async || queued(&direct, "next").await == 2).await;
    held.release().await.unwrap();
    acquired(waiting).await.release().await.unwrap();
    guard.release().await.unwrap();
    drop(direct.mutex("job").unwrap().try_acquire().await.unwrap());
}

#[tokio::test]
async fn every_layout_takes_and_gives_back_a_lock_by_way_of_sentinels() {
    for layout in ["fair", "plain", "redisson", "redisson-fenced", "plain&signal=python-redis-lock"] {
        let client = client(&url(&format!("layout={layout}")), 60_000).await;
        let guard = soon(client.mutex("job").unwrap().acquire()).await.unwrap();
        let waiting = acquiring(&client, "job");
        guard.release().await.unwrap();
        acquired(waiting).await.release().await.unwrap_or_else(|error| panic!("{layout}: {error}"));
        client.close().await.unwrap();
    }
}

#[tokio::test]
async fn one_sentinel_that_answers_suffices_and_without_any_the_error_names_them_all() {
    let gone = fencelock_testbed::Port::reserve().unwrap();
    let well = url("").replace("redis+sentinel://", &format!("redis+sentinel://{},", gone.address()));
    drop(taken(&well).await.unwrap());
    let error = refused(&format!("redis+sentinel://{0},{0}/locks", gone.address())).await;
    assert!(error.kind() == ErrorKind::Unreachable && error.is_retryable(), "{error}");
    let cause = format!("{error:?}");
    assert!(cause.matches(&format!("{}: ", gone.address())).count() >= 2, "{cause}");
}

#[tokio::test]
async fn the_error_for_a_url_of_another_topology_shows_the_right_one() {
    let watched = shared_watched();
    let (sentinel, primary) = (watched.sentinels[0].address(), watched.servers[0].address());
    for (url, kind, said) in [
        (format!("redis://{sentinel}"), ErrorKind::Unsupported, "redis+sentinel://"),
        (format!("redis+sentinel://{primary}/locks"), ErrorKind::Unsupported, "redis://host:6379/0"),
        (format!("redis+sentinel://{sentinel}/other"), ErrorKind::Config, "known locks"),
    ] {
        let error = refused(&url).await;
        let cause = format!("{error} {error:?}");
        assert!(error.kind() == kind && !error.is_retryable() && cause.contains(said), "{url}: {cause}");
    }
}

#[tokio::test]
async fn an_address_that_only_the_servers_know_is_dialled_where_the_map_says() {
    let primary = shared_watched().servers[0].address();
    let way = Proxy::start(primary).unwrap();
    drop(taken(&url(&format!("map=10.9.9.9=h,{primary}={}", way.address()))).await.unwrap());
    assert_ne!(way.bytes().0, 0);
    let gone = fencelock_testbed::Port::reserve().unwrap();
    let error = refused(&url(&format!("map={primary}={}", gone.address()))).await;
    let cause = format!("{error:?}");
    assert!(cause.contains(&primary.to_string()) && cause.contains(&gone.address().to_string()), "{cause}");
}

#[tokio::test]
async fn sentinels_have_a_password_of_their_own_and_the_error_names_the_sentinels() {
    let primary = server(Settings { password: Some("one".to_owned()), ..Settings::default() });
    let role = Role::SentinelOf(primary.address());
    let settings = Settings { role, password: Some("two".to_owned()), ..Settings::default() };
    let sentinel = server(settings.with("sentinel auth-pass locks one"));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    let url = |options: &str| {
        format!("redis+sentinel://:one@{}/locks?min_replicas=0&ttl_ms=60000{options}", sentinel.address())
    };
    let own = url(&format!("&sentinel_password_file={}", file.display()));
    for (password, is_right) in [("two", true), ("one", false)] {
        std::fs::write(&file, password).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        match taken(&own).await {
            Ok(_) => assert!(is_right),
            Err(error) => {
                let cause = format!("{error} {error:?}");
                assert!(!is_right && error.kind() == ErrorKind::Denied, "{cause}");
                assert!(cause.contains("sentinel_password_file") && !cause.contains("two"), "{cause}");
            }
        }
    }
    let error = refused(&url("")).await;
    assert!(error.kind() == ErrorKind::Denied && error.to_string().contains("the Sentinel"), "{error}");
    std::fs::write(&file, "two").unwrap();
    let error = refused(&own.replace(":one@", ":three@")).await;
    assert!(error.kind() == ErrorKind::Denied && !error.to_string().contains("the Sentinel"), "{error}");
}

#[tokio::test]
async fn the_rules_that_the_documents_print_suffice_for_sentinels_and_one_less_is_refused_by_them() {
    let docs = std::fs::read_to_string(format!("{}/../../docs/stores.md", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let rules = docs.split_once("Their user needs `").unwrap().1.split_once('`').unwrap().0;
    let primary = server(Settings::default());
    let settings = Settings::role(Role::SentinelOf(primary.address()));
    let without = |rule: &str| format!("on >two {}", rules.replace(rule, ""));
    let settings = settings.with_user("all", &without("none")).with_user("blind", &without("+sentinel|master "));
    let sentinel = server(settings);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    std::fs::write(&file, "two").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let url = |user: &str| {
        let own = format!("sentinel_user={user}&sentinel_password_file={}", file.display());
        format!("redis+sentinel://{}/locks?min_replicas=0&ttl_ms=60000&{own}", sentinel.address())
    };
    drop(taken(&url("all")).await.unwrap());
    let error = refused(&url("blind")).await;
    assert!(error.kind() == ErrorKind::Denied && error.to_string().contains("sentinel_user"), "{error}");
}

#[tokio::test]
async fn a_replica_that_was_never_in_sync_acknowledges_nothing_and_the_error_says_so() {
    let primary = server(Settings { password: Some("one".to_owned()), ..Settings::default() });
    // The replica has no password for the primary.
    let replica = server(Settings::role(Role::ReplicaOf(primary.address())));
    let url = format!("redis://:one@{}?min_replicas=", primary.address());
    until("the error says that no replica has acknowledged", async || {
        let error = refused_within(&format!("{url}1&ttl_ms=9000"), Duration::from_secs(10)).await;
        let cause = format!("{error} {error:?}");
        assert!(error.is_retryable(), "{cause}");
        cause.contains("min_replicas") && cause.contains("acknowledged 0")
    })
    .await;
    drop(taken(&format!("{url}0")).await.unwrap());
    assert_eq!(replica.info("master_link_status").unwrap(), "down");
}

#[tokio::test]
async fn a_grant_that_no_replica_acknowledges_is_withdrawn_and_delays_no_client() {
    let watched = Watched::start(1, &Settings::default(), NO_FAILOVER).unwrap();
    let url = |replicas: u32| watched.url("", &format!("min_replicas={replicas}"));
    let (strict, lax) = (client(&url(1), 9000).await, client(&url(0), 60_000).await);
    soon(strict.mutex("job").unwrap().acquire()).await.unwrap().release().await.unwrap();
    watched.servers[1].pause();
    let error = soon(strict.mutex("job").unwrap().try_acquire()).await.unwrap_err();
    let cause = format!("{error} {error:?}");
    assert!(cause.contains("min_replicas"), "{cause}");
    until("the grant is withdrawn", async || queued(&lax, "job").await == 0).await;
    // A client that needs no replica is not held up.
    soon(lax.mutex("job").unwrap().acquire()).await.unwrap().release().await.unwrap();
    watched.servers[1].resume();
    let mutex = strict.mutex("job").unwrap();
    soon(mutex.acquire_within(PATIENCE)).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn the_error_for_a_server_without_wait_or_a_user_that_may_not_run_it_names_the_option_that_leaves_it_out() {
    let mute = server(Settings::default().with("rename-command WAIT \"\""));
    let rules = "on nopass ~* &* +@all -wait";
    let strict = server(Settings::default().with_user("me", rules));
    for (url, kind) in
        [(mute.url(), ErrorKind::Unsupported), (strict.url().replace("//", "//me:x@"), ErrorKind::Denied)]
    {
        let error = refused(&format!("{url}?min_replicas=1")).await;
        let cause = format!("{error} {error:?}");
        assert!(error.kind() == kind && cause.contains("min_replicas=0"), "{cause}");
        drop(taken(&format!("{url}?min_replicas=0")).await.unwrap());
    }
}

#[tokio::test]
async fn an_address_that_leads_to_a_replica_for_a_while_is_tried_until_it_leads_to_the_primary() {
    let old = server(Settings::default());
    let new = server(Settings::role(Role::ReplicaOf(old.address())));
    until("the error says that it is a replica", async || {
        let error = refused_within(&new.url(), Duration::from_secs(1)).await;
        assert!(error.is_retryable(), "{error}");
        error.to_string().contains("replica")
    })
    .await;
    let client = Client::builder().session_when_needed(true).connect(&new.url()).await.unwrap();
    let waiting = acquiring(&client, "job");
    new.ask(&["REPLICAOF", "NO", "ONE"]).unwrap();
    acquired(waiting).await.check().unwrap();
}
