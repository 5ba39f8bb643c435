//! The store `etcd:` keeps every law that can be tried on it, and takes turns with etcd's own locks.

use std::process::{Child, Command, Stdio};

use fencelock::Client;
use fencelock_testbed::etcd::{Server, shared};
use fencelock_testbed::{PATIENCE, wait_until};

use crate::fixtures;

fencelock_conformance::suite!("etcd", fixtures::etcd, laws = untimed);

/// A prefix on the shared server, and the URL of a store there.
fn place() -> (String, String) {
    let namespace = shared().namespace();
    let url = format!("etcd://{}{namespace}", shared().address());
    (format!("{}/", namespace.trim_start_matches('/')), url)
}

/// Waits until the lock `job` has so many contenders.
async fn is_queued(client: &Client, count: usize) {
    while client.queue("job").await.unwrap().contenders.len() != count {}
}

/// `etcdctl lock`, whose command makes the file `started` and ends once there is a file `end`.
struct Lock {
    child: Child,
    directory: tempfile::TempDir,
}

impl Lock {
    fn start(key: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut control = Command::new("etcdctl");
        control.env("ETCDCTL_API", "3").args([&format!("--endpoints={}", shared().address()), "lock", "--ttl=60", key]);
        control.args(["--", "sh", "-c", "touch started; until test -e end; do sleep 0.02; done"]);
        let child = control.current_dir(directory.path()).stdout(Stdio::null()).spawn().unwrap();
        Self { child, directory }
    }

    fn has_started(&self) -> bool {
        self.directory.path().join("started").exists()
    }

    fn end(mut self) {
        std::fs::write(self.directory.path().join("end"), "").unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

#[tokio::test]
async fn a_lock_of_etcdctl_and_one_of_ours_take_turns() {
    let (prefix, url) = place();
    let client = Client::connect(&url).await.unwrap();
    let job = client.mutex("job").unwrap();
    let first = Lock::start(&format!("{prefix}job"));
    assert!(wait_until(PATIENCE, || first.has_started()));
    let busy = job.try_acquire().await.unwrap_err();
    assert_eq!(busy.kind(), fencelock::ErrorKind::Busy, "{busy}");
    let waiting = tokio::spawn({
        let job = job.clone();
        async move { job.acquire().await }
    });
    let queued = async |count| is_queued(&client, count).await;
    queued(2).await;
    let second = Lock::start(&format!("{prefix}job"));
    queued(3).await;
    first.end();
    let guard = waiting.await.unwrap().unwrap();
    assert!(!second.has_started());
    guard.release().await.unwrap();
    assert!(wait_until(PATIENCE, || second.has_started()));
    second.end();
    client.close().await.unwrap();
}

#[tokio::test]
async fn a_revoked_lease_is_a_loss_and_so_is_a_deleted_key() {
    let server = Server::start(&[]).unwrap();
    let client = Client::connect(&format!("etcd://{}/locks?ttl_ms=60000&renew_interval_ms=500", server.address()))
        .await
        .unwrap();
    let [one, other] = ["one", "other"].map(|name| client.mutex(name).unwrap());
    let (deleted, revoked) = (one.acquire().await.unwrap(), other.acquire().await.unwrap());
    server.control(&["del", "--prefix", "locks/one/"]).unwrap();
    assert_eq!(deleted.lost().await, fencelock::Loss::Removed);
    let leases = server.control(&["lease", "list"]).unwrap();
    let lease = leases.lines().last().unwrap();
    server.control(&["lease", "revoke", lease]).unwrap();
    assert_eq!(revoked.lost().await, fencelock::Loss::Expired);
}

#[tokio::test]
async fn a_waiter_is_granted_after_a_compaction_and_a_restart_of_the_server() {
    let server = Server::start(&[]).unwrap();
    let connect = async || Client::connect(&format!("etcd://{}/locks?ttl_ms=60000", server.address())).await.unwrap();
    let (holder, waiter) = (connect().await, connect().await);
    let held = holder.mutex("job").unwrap().acquire().await.unwrap();
    let waiting = tokio::spawn(async move { waiter.mutex("job").unwrap().acquire().await });
    is_queued(&holder, 2).await;
    let status = server.control(&["endpoint", "status", "-w", "fields"]).unwrap();
    let revision = status.lines().find_map(|line| line.strip_prefix("\"Revision\" : ")).unwrap();
    server.control(&["compact", revision]).unwrap();
    server.restart().unwrap();
    server.wait_until_serving().unwrap();
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_user_is_logged_in_and_a_wrong_password_is_refused_and_not_shown() {
    let server = Server::start(&[]).unwrap();
    for arguments in [
        &["user", "add", "root:top"][..],
        &["user", "add", "me:s3cret"],
        &["role", "add", "locks"],
        &["role", "grant-permission", "locks", "readwrite", "--prefix=true", "locks/"],
        &["user", "grant-role", "me", "locks"],
        &["user", "grant-role", "root", "root"],
        &["auth", "enable"],
    ] {
        server.control(arguments).unwrap();
    }
    let client = Client::connect(&format!("etcd://me:s3cret@{}/locks", server.address())).await.unwrap();
    client.mutex("job").unwrap().acquire().await.unwrap().release().await.unwrap();
    client.close().await.unwrap();
    for (url, kind) in [
        (format!("etcd://me:wr0ng@{}/locks", server.address()), fencelock::ErrorKind::Denied),
        (format!("etcd://{}/locks", server.address()), fencelock::ErrorKind::Denied),
        (format!("etcd://me:s3cret@{}/elsewhere", server.address()), fencelock::ErrorKind::Denied),
    ] {
        let error = Client::connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(!error.to_string().contains("wr0ng"), "{error}");
    }
}
