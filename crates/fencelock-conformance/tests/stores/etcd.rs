//! The store `etcd:` keeps every law that can be tried on it, and takes turns with etcd's own locks.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};

use fencelock::{Client, ErrorKind, Result};
use fencelock_testbed::etcd::{KIND, Server};
use fencelock_testbed::{PATIENCE, wait_until};
use futures_util::future;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use crate::fixtures;

fencelock_conformance::suite!("etcd", fixtures::etcd, laws = untimed);

/// A prefix on the shared server, and the URL of a store there.
fn place() -> (String, String) {
    let namespace = KIND.shared().namespace();
    let url = format!("etcd://{}{namespace}", KIND.shared().address());
    (format!("{}/", namespace.trim_start_matches('/')), url)
}

/// Waits until the lock `job` has `count` contenders.
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
        control.env("ETCDCTL_API", "3").args([
            &format!("--endpoints={}", KIND.shared().address()),
            "lock",
            "--ttl=60",
            key,
        ]);
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
    assert_eq!(busy.kind(), ErrorKind::Busy, "{busy}");
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
async fn many_names_at_once_take_fewer_requests_and_two_grants_of_one_name_have_different_tokens() {
    const NAMES: usize = 64;
    let server = Server::start(&[]).unwrap();
    let client = Client::connect(&format!("etcd://{}/locks?ttl_ms=60000", server.address())).await.unwrap();
    let mutexes: Vec<_> = (0..NAMES).map(|name| client.mutex(format!("job-{name}")).unwrap()).collect();
    let before = server.requests_for("Txn").unwrap();
    let guards = future::try_join_all(mutexes.iter().map(|mutex| mutex.acquire())).await.unwrap();
    assert!(guards.iter().all(|guard| guard.check().is_ok() && guard.token().is_some()));
    future::try_join_all(guards.into_iter().map(|guard| guard.release())).await.unwrap();
    let requests = server.requests_for("Txn").unwrap() - before;
    assert!(requests < NAMES as u64, "{requests} transactions");
    for mutex in &mutexes {
        assert!(client.queue(mutex.name().as_str()).await.unwrap().contenders.is_empty());
    }
    let section = async || {
        let guard = mutexes[0].acquire().await.unwrap();
        let token = guard.token();
        guard.release().await.unwrap();
        token
    };
    let (one, other) = future::join(section(), section()).await;
    assert_ne!(one, other);
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
async fn a_client_logs_in_again_when_its_token_ends_and_a_wrong_password_is_refused_and_not_shown() {
    // The lowest cost makes a login cheap for the member.
    let server = Server::start(&["--bcrypt-cost", "4"]).unwrap();
    server.demand_users(&[]).unwrap();
    let url = format!("etcd://me:s3cret@{}/locks?ttl_ms=60000", server.address());
    let [holder, waiter] = [Client::connect(&url).await.unwrap(), Client::connect(&url).await.unwrap()];
    let held = holder.mutex("job").unwrap().acquire().await.unwrap();
    let waiting = tokio::spawn(async move { waiter.mutex("job").unwrap().acquire().await });
    is_queued(&holder, 2).await;
    let logins = || server.requests_for("Authenticate").unwrap();
    let before = logins();
    // A new password, here the same one, ends the tokens of its user.
    let set = "echo s3cret | ETCDCTL_API=3 etcdctl --user=root:top user passwd me --interactive=false";
    let set = Command::new("sh").args(["-c", &format!("{set} --endpoints={}", server.address())]).output().unwrap();
    assert!(set.status.success(), "{set:?}");
    // `etcdctl` logs in once. The waiter looks every two seconds.
    assert!(wait_until(PATIENCE, || logins() >= before + 2));
    held.check().unwrap();
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    for (url, kind) in [
        (format!("etcd://me:wr0ng@{}/locks", server.address()), ErrorKind::Denied),
        (format!("etcd://{}/locks", server.address()), ErrorKind::Denied),
        (format!("etcd://me:s3cret@{}/elsewhere", server.address()), ErrorKind::Denied),
    ] {
        let error = Client::connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(!error.to_string().contains("wr0ng"), "{error}");
    }
}

#[tokio::test]
async fn members_over_tls_ask_for_a_certificate_whose_common_name_is_the_user() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |file: &str| scratch.path().join(file).to_str().unwrap().to_owned();
    let authority = |file: &str| {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        fs::write(path(file), authority.pem()).unwrap();
        authority
    };
    let (ours, _other) = (authority("ours.pem"), authority("other.pem"));
    for name in ["127.0.0.1", "me"] {
        let (key, mut params) = (KeyPair::generate().unwrap(), CertificateParams::new([name.to_owned()]).unwrap());
        params.distinguished_name.push(DnType::CommonName, name);
        fs::write(path(&format!("{name}.crt")), params.signed_by(&key, &ours).unwrap().pem()).unwrap();
        fs::write(path(&format!("{name}.key")), key.serialize_pem()).unwrap();
        fs::set_permissions(path(&format!("{name}.key")), Permissions::from_mode(0o600)).unwrap();
    }
    let [trusted, certificate, key] = ["ours.pem", "127.0.0.1.crt", "127.0.0.1.key"].map(path);
    let options =
        ["--trusted-ca-file", &trusted, "--cert-file", &certificate, "--key-file", &key, "--client-cert-auth"];
    let server = Server::start(&options).unwrap();
    let [cert, key] = ["me.crt", "me.key"].map(path);
    server.demand_users(&["--cacert", &trusted, "--cert", &cert, "--key", &key]).unwrap();
    let connect = async |ca: &str, own: &str| -> Result<Client> {
        Client::connect(&format!("etcds://{}/locks?ttl_ms=60000&tls_ca={}{own}", server.address(), path(ca))).await
    };
    let own = format!("&tls_cert={cert}&tls_key={key}");
    let client = connect("ours.pem", &own).await.unwrap();
    client.mutex("job").unwrap().acquire().await.unwrap().release().await.unwrap();
    client.close().await.unwrap();
    for (ca, own) in [("other.pem", &*own), ("ours.pem", "")] {
        let error = connect(ca, own).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(error.to_string().contains(&server.address().to_string()), "{error}");
    }
}
