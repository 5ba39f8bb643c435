//! Bad input, refusals and limits: each a clear error in time, and nothing left in the store.

use std::time::{Duration, Instant};

use fencelock::{Client, Error, ErrorKind, Health, Io, Result};
use fencelock_testbed::Port;
use fencelock_testbed::zookeeper::{Ensemble, Settings, shared};
use fencelock_zookeeper::{Acl, CreateMode, Permissions};

use crate::lab::{Lab, soon};

/// Connects within the time that a client of this ttl allows, or says why not.
async fn connected(url: &str) -> Result<Client> {
    let start = Instant::now();
    let connected = Client::builder().io(Io::CurrentRuntime).connect(url).await;
    assert!(start.elapsed() < crate::lab::PATIENCE, "{:?}", start.elapsed());
    connected
}

async fn refused(url: &str) -> Error {
    connected(url).await.unwrap_err()
}

#[tokio::test]
async fn where_no_server_listens_the_error_names_the_addresses() {
    let (one, other) = (Port::reserve().unwrap(), Port::reserve().unwrap());
    let error =
        refused(&format!("zk://u:secret@{},{}/locks?tick_ms=500&ttl_ms=4000", one.address(), other.address())).await;
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(error.is_retryable());
    for server in [one.address(), other.address()] {
        assert!(error.to_string().contains(&server.to_string()), "{error}");
    }
    assert!(!format!("{error} {error:?}").contains("secret"));
}

#[tokio::test]
async fn a_ttl_that_the_servers_do_not_grant_is_reported() {
    let url = |ttl: u64, tick: u64| format!("zk://{}/locks?tick_ms={tick}&ttl_ms={ttl}", shared().address());
    let error = refused(&url(1999, 500)).await;
    assert!(error.kind() == ErrorKind::Config && error.to_string().contains("ttl allowed 2s to 24h"), "{error}");
    // The servers grant at most 120 s: too few for the renew interval of ten minutes, and for four ticks of 40 s.
    let error = refused(&url(600_000, 500)).await;
    assert!(error.kind() == ErrorKind::Config && error.to_string().contains("granted 120s"), "{error}");
    let error = refused(&url(180_000, 40_000)).await;
    assert!(error.kind() == ErrorKind::Config && error.to_string().contains("granted 120s"), "{error}");
    // The granted timeout is less than the request, and enough.
    let client = connected(&url(132_000, 500)).await.unwrap();
    assert!(
        matches!(client.health(), Health::Confirmed(left) if left <= Duration::from_secs(120)),
        "{:?}",
        client.health()
    );
}

#[tokio::test]
async fn a_ttl_that_the_servers_raise_is_refused_unless_their_tick_is_known() {
    let raised = Settings { min_session_timeout_ms: 12_000, ..Settings::default() };
    let servers = Ensemble::start(raised).unwrap();
    let url = |options: &str| format!("zk://{}/locks{options}", servers.server(0).address());
    let error = refused(&url("")).await;
    assert!(error.kind() == ErrorKind::Config && error.to_string().contains("set tick_ms"), "{error}");
    assert!(error.to_string().contains("granted 12s"), "{error}");
    connected(&url("?tick_ms=500")).await.unwrap();
}

#[tokio::test]
async fn a_request_that_access_lists_forbid_is_denied_and_nothing_is_left() {
    let lab = Lab::new().await;
    let with = |who: &str| lab.url("").replacen("zk://", &format!("zk://{who}@"), 1);
    let (alice, bob) = (connected(&with("alice:a")).await.unwrap(), connected(&with("bob:b")).await.unwrap());
    let guard = alice.mutex("job").unwrap().acquire().await.unwrap();
    let denied = bob.mutex("job").unwrap().acquire().await.unwrap_err();
    assert_eq!((denied.kind(), denied.is_retryable()), (ErrorKind::Denied, false), "{denied}");
    assert_eq!(bob.mutex("new").unwrap().acquire().await.unwrap_err().kind(), ErrorKind::Denied);
    let queue = alice.queue(guard.name()).await.unwrap();
    assert_eq!(queue.contenders.len(), 1);
    guard.release().await.unwrap();
    assert!(alice.names("", None, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_release_that_is_denied_says_so_and_forgets_nothing() {
    let lab = Lab::new().await;
    lab.put("job", CreateMode::Persistent).await;
    let mut acl = Acl::open();
    acl.permissions = Permissions::CREATE | Permissions::READ | Permissions::ADMIN;
    lab.hands.set_acl(&lab.path("job"), &[acl], None).await.unwrap();
    let client = lab.client("").await;
    let guard = client.mutex("job").unwrap().acquire().await.unwrap();
    let failed = guard.release_or_keep().await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Denied);
    assert_eq!(lab.children("job").await.len(), 1);
    let busy = client.mutex("job").unwrap().try_acquire().await.unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Denied, "the try cannot take its node back: {busy}");
    lab.hands.set_acl(&lab.path("job"), &[Acl::open()], None).await.unwrap();
    failed.into_guard().release().await.unwrap();
    lab.until_queued("job", 0).await;
}

#[tokio::test]
async fn an_exceeded_quota_is_reported() {
    let server = Ensemble::start(Settings::default().with("enforceQuota", "true")).unwrap();
    let lab = Lab::on(server.server(0).address()).await;
    lab.put("job", CreateMode::Persistent).await;
    let quota = format!("/zookeeper/quota{}", lab.path("job"));
    for (at, _) in quota.match_indices('/').skip(3) {
        let _ = lab.hands.create(&quota[..at], b"", CreateMode::Persistent, &[Acl::open()]).await;
    }
    lab.hands.create(&quota, b"", CreateMode::Persistent, &[Acl::open()]).await.unwrap();
    for (node, data) in [
        ("zookeeper_limits", "count=2,bytes=-1=;byteHardLimit=-1;countHardLimit=2"),
        ("zookeeper_stats", "count=1,bytes=0"),
    ] {
        let path = format!("{quota}/{node}");
        lab.hands.create(&path, data.as_bytes(), CreateMode::Persistent, &[Acl::open()]).await.unwrap();
    }
    let client = lab.client("").await;
    let guard = client.mutex("job").unwrap().acquire().await.unwrap();
    let refused = client.mutex("job").unwrap().acquire_within(Duration::from_secs(20)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Exhausted, "{refused}");
    assert!(refused.to_string().contains("quota"), "{refused}");
    assert_eq!(lab.children("job").await.len(), 1);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn more_children_than_an_answer_holds_are_reported_and_hide_no_other_name() {
    let lab = Lab::new().await;
    lab.put("job/one", CreateMode::Persistent).await;
    let filler = |number: usize| lab.path(&format!("job/{}-{number}", "x".repeat(80)));
    let puts = (0..60).map(|number| lab.hands.create(&filler(number), b"", CreateMode::Ephemeral, &[Acl::open()]));
    for put in futures_util::future::join_all(puts).await {
        put.unwrap();
    }
    let client = lab.client("&max_answer_bytes=4096").await;
    let refused = client.mutex("job").unwrap().acquire().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Exhausted, "{refused}");
    assert!(refused.to_string().contains("max_answer_bytes"), "{refused}");
    assert_eq!(lab.children("job").await.len(), 61);
    // A name whose queue cannot be listed is still listed itself, and hides no other name.
    lab.put("z/lock-", CreateMode::EphemeralSequential).await;
    let names = client.names("", None, 10).await.unwrap();
    assert_eq!(names.iter().map(fencelock::Name::as_str).collect::<Vec<_>>(), ["job", "z"]);
    // A client with a larger limit can list the queue.
    let client = lab.client("").await;
    client.mutex("job").unwrap().acquire().await.unwrap().release().await.unwrap();
}

/// Set in the process that has few descriptors.
const FEW: &str = "FENCELOCK_TEST_FEW_DESCRIPTORS";

#[test]
fn sixty_four_descriptors_suffice_for_a_thousand_locks_and_a_lack_of_them_is_reported() {
    if let Ok(url) = std::env::var(FEW) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(with_few_descriptors(&url));
    }
    let url = format!("zk://{}{}?tick_ms=500&ttl_ms=60000", shared().address(), shared().namespace());
    let test = "edges::sixty_four_descriptors_suffice_for_a_thousand_locks_and_a_lack_of_them_is_reported";
    let mut again = std::process::Command::new("bash");
    again.args(["-c", "ulimit -n 64 && exec \"$0\" --exact \"$1\" --nocapture"]);
    let output = again.arg(std::env::current_exe().unwrap()).arg(test).env(FEW, url).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

async fn with_few_descriptors(url: &str) {
    let client = connected(url).await.unwrap();
    let mut guards = Vec::new();
    for number in 0..1000 {
        guards.push(soon(client.mutex(format!("job-{number}")).unwrap().acquire()).await.unwrap());
    }
    assert_eq!(client.places(), 1000);
    client.close().await.unwrap();
    let files: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    let error = refused(url).await;
    assert!(error.kind() == ErrorKind::Unreachable && error.to_string().contains("open files"), "{error}");
    drop(files);
    connected(url).await.unwrap();
}
