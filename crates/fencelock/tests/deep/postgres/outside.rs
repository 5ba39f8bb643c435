//! Faults around a server: a gateway that ends idle connections, hosts that vanish without a word, a disk that is full.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use fencelock::{ErrorKind, Guard};
use fencelock_testbed::postgres::{KIND, Settings};
use fencelock_testbed::{Network, Proxy};

use super::lab::{acquire, acquiring, client, connection, database, queued, server, soon, until, until_queued, with};

/// Renewals on further connections count, too.
#[tokio::test]
async fn however_often_a_lock_was_renewed_one_release_frees_it() {
    let (url, _) = database();
    client(&url, 4000).await.close().await.unwrap();
    let user = connection(&url).await;
    let expires =
        "SELECT max(s.expires)::text FROM fencelock.session AS s JOIN fencelock.place AS p ON p.session = s.id";
    let one = client(&url, 4000).await;
    let guard = acquire(&one, "job").await;
    for _ in 0..5 {
        let before: String = user.query_one(expires, &[]).await.unwrap().get(0);
        until("it is renewed", async || user.query_one(expires, &[]).await.unwrap().get::<_, String>(0) != before)
            .await;
    }
    guard.release().await.unwrap();
    assert_eq!(queued(&one, "job").await, 0);
    one.close().await.unwrap();
}

/// Gateways cut such connections. A waiting client sends nothing for longer than that.
#[tokio::test]
async fn connections_that_are_cut_when_they_were_idle_for_two_seconds_cost_no_lock_and_no_turn() {
    let (url, _) = database();
    let proxy = Proxy::start(KIND.shared().address()).unwrap();
    let through = url.replace(&KIND.shared().address().to_string(), &proxy.address().to_string());
    let (one, other) = (client(&through, 30_000).await, client(&through, 30_000).await);
    let guard = acquire(&one, "job").await;
    let waiting = acquiring(&other, "job");
    let user = connection(&url).await;
    until_queued(&one, "job", 2).await;
    let mut last = proxy.bytes();
    for _ in 0..3 {
        // A client that polls every two seconds is never idle for two seconds.
        let cut = tokio::time::Instant::now() + Duration::from_secs(2);
        while tokio::time::Instant::now() < cut {
            let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'fencelock'
                AND state LIKE 'idle in transaction%' AND clock_timestamp() - state_change > interval '1 second'";
            assert_eq!(user.query_one(open, &[]).await.unwrap().get::<_, i64>(0), 0);
            tokio::task::yield_now().await;
        }
        proxy.reset();
        until("they are back", async || proxy.bytes() != last).await;
        last = proxy.bytes();
        guard.check().unwrap();
        assert!(!waiting.is_finished());
    }
    soon(guard.release()).await.unwrap();
    soon(soon(waiting).await.unwrap().unwrap().release()).await.unwrap();
    until_queued(&one, "job", 0).await;
}

/// The host sends nothing, and no message reports its end. The server ends connections of clients soon, and with them what a request
/// that was cut short keeps; a transaction of a user ends with the limit of `hold`.
///
/// The test runs in a process of its own, so that the servers that it starts are in its network namespace.
#[test]
fn a_host_that_vanishes_keeps_others_waiting_no_longer_than_its_lease_and_the_limit_of_its_transaction() {
    const PART: &str = "FENCELOCK_TEST_PART";
    let again = |mut command: Command, part: &str| {
        let test =
            "a_host_that_vanishes_keeps_others_waiting_no_longer_than_its_lease_and_the_limit_of_its_transaction";
        command.args(["--exact", "--nocapture", &format!("postgres::outside::{test}")]).env(PART, part);
        command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
    };
    let program = std::env::current_exe().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match std::env::var(PART) {
        Err(_) => assert!(again(Command::new(program), "network").wait().unwrap().success()),
        Ok(part) if part == "network" => {
            let network = Network::start(1).unwrap();
            let vanishing = |url: &str| again(network.command(0, program.to_str().unwrap()), url);
            network.inside(|| runtime.block_on(a_host_vanishes(&network, vanishing))).unwrap();
        }
        Ok(url) => runtime.block_on(async {
            let client = client(&url, 10_000).await;
            let _guard = acquire(&client, "of the host").await;
            std::future::pending::<()>().await;
        }),
    }
}

async fn a_host_vanishes(network: &Network, client_there: impl Fn(&str) -> std::process::Child) {
    let own = server(Settings::default().with("listen_addresses = '*'"));
    let hba = "COPY (SELECT 'host all all all trust') TO PROGRAM 'cat >> pg_hba.conf'; SELECT pg_reload_conf()";
    own.sql("postgres", hba).unwrap();
    let (one, other) = (client(&own.url(), 30_000).await, client(&own.url(), 30_000).await);
    let guard = acquire(&one, "job").await;
    let token = guard.token().unwrap().to_i64();
    let hub = network.hub_address().to_string();
    let mut user = network.command(0, "psql");
    let port = own.address().port().to_string();
    user.args(["-Xq", "-U", "fencelock", "-d", "fencelock", "-p", &port, "-h", &hub]);
    let mut user = user.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut words = user.stdin.take().unwrap();
    writeln!(words, "BEGIN; SELECT fencelock.hold('job', {token}, interval '8 seconds');").unwrap();
    let idle =
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'psql' AND state = 'idle in transaction'";
    until("it holds", async || own.sql("postgres", idle).unwrap().trim() == "1").await;
    let there = client_there(&with(&own.url().replace("127.0.0.1", &hub), "sslmode=disable"));
    until_queued(&other, "of the host", 1).await;
    let from_there = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'fencelock' AND client_addr = '{}'",
        network.address(0)
    );
    assert_eq!(own.sql("postgres", &from_there).unwrap().trim(), "1");
    network.black_hole(0).unwrap();
    let waiting = acquiring(&other, "job");
    until_queued(&other, "job", 2).await;
    let releasing = tokio::spawn(guard.release());
    // Other locks of the same client and bucket continue.
    for _ in 0..20 {
        acquire(&one, "another").await.release().await.unwrap();
    }
    assert!(!waiting.is_finished());
    soon(soon(waiting).await.unwrap().unwrap().release()).await.unwrap();
    soon(releasing).await.unwrap().unwrap();
    soon(acquire(&other, "of the host")).await.release().await.unwrap();
    until("its connection is ended", async || own.sql("postgres", &from_there).unwrap().trim() == "0").await;
    for mut process in [user, there] {
        process.kill().unwrap();
        process.wait().unwrap();
    }
}

/// A file system of two megabytes. Needs root.
struct Tiny(tempfile::TempDir);

impl Tiny {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(directory.path(), open).unwrap();
        let path = directory.path().join("tiny");
        std::fs::create_dir(&path).unwrap();
        let user = Command::new("id").args(["-u", "postgres"]).output().unwrap();
        let options = format!("size=2m,mode=700,uid={}", String::from_utf8_lossy(&user.stdout).trim());
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&path).status().unwrap();
        assert!(mounted.success(), "a file system of its own needs root");
        Self(directory)
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("tiny")
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

/// Fills the rest of the file system.
fn fill(file: &Path) {
    let mut file = std::fs::File::create(file).unwrap();
    let full = std::io::copy(&mut std::io::repeat(7), &mut file).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
}

#[tokio::test]
async fn a_full_disk_is_reported_and_costs_no_lock_that_is_held() {
    let tiny = Tiny::new();
    let own = server(Settings::default());
    let one = client(&own.url(), 10_000).await;
    let mut guards: Vec<Guard> = vec![acquire(&one, "first").await];
    own.sql("fencelock", &format!("CREATE TABLESPACE tiny LOCATION '{}'", tiny.path().display())).unwrap();
    own.sql("fencelock", "ALTER TABLE fencelock.place SET TABLESPACE tiny").unwrap();
    own.sql("fencelock", "ALTER TABLE fencelock.session SET TABLESPACE tiny").unwrap();
    let filling = tiny.path().join("filling");
    fill(&filling);
    let error = loop {
        let mutex = one.mutex(format!("job {}", guards.len())).unwrap();
        match soon(mutex.acquire_within(Duration::from_secs(3))).await {
            Ok(guard) => guards.push(guard),
            Err(error) => break error,
        }
        assert!(guards.len() < 2000, "the disk is never full");
    };
    let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    assert!(format!("{error}: {cause}").contains("disk is full"), "{error}: {cause}");
    assert!(matches!(error.kind(), ErrorKind::Exhausted | ErrorKind::Unreachable), "{error:?}");
    // For longer than a ttl.
    let lost = tokio::time::timeout(Duration::from_secs(15), guards[0].lost()).await;
    assert!(lost.is_err(), "a lock was lost: {lost:?}");
    for guard in guards {
        soon(guard.release()).await.unwrap();
    }
    std::fs::remove_file(filling).unwrap();
    acquire(&one, "afterwards").await.release().await.unwrap();
    one.close().await.unwrap();
}
