//! Members of etcd that are killed, stopped, full, or of another schema; grants that end while their holders write.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fencelock::{Client, ErrorKind};
use fencelock_testbed::etcd::Server;
use fencelock_testbed::{PATIENCE, wait_until};
use futures_util::future;
use prost_build::{Service, ServiceGenerator};
use tokio::task::block_in_place;

/// The number of leaders that are killed, and of leaders that are stopped; `FENCELOCK_ROUNDS` sets another number.
fn rounds() -> usize {
    std::env::var("FENCELOCK_ROUNDS").map_or(10, |rounds| rounds.parse().expect("a number"))
}

async fn connect(members: &[Server]) -> Client {
    let addresses: Vec<_> = members.iter().map(|member| member.address().to_string()).collect();
    Client::connect(&format!("etcd://{}/locks?ttl_ms=10000", addresses.join(","))).await.unwrap()
}

async fn is_queued(client: &Client, count: usize) {
    while client.queue("job").await.unwrap().contenders.len() != count {}
}

#[tokio::test]
async fn locks_outlive_every_leader_that_is_killed_or_stopped_and_are_handed_on() {
    let members = Server::cluster(3, &[]).unwrap();
    let (holder, waiter) = (connect(&members).await, connect(&members).await);
    let [job, other] = ["job", "other"].map(|name| holder.mutex(name).unwrap());
    let held = job.acquire().await.unwrap();
    let waiting = tokio::spawn(async move { waiter.mutex("job").unwrap().acquire().await });
    is_queued(&holder, 2).await;
    for number in 0..2 * rounds() {
        let leaders = || members.iter().filter(|member| member.is_leader()).collect::<Vec<_>>();
        // A stopped leader may call itself the leader for a moment after it continues.
        assert!(wait_until(PATIENCE, || leaders().len() == 1));
        let leader = leaders()[0];
        match number % 2 {
            0 => leader.kill(),
            _ => leader.pause(),
        }
        // A grant needs the next leader.
        other.acquire().await.unwrap().release().await.unwrap();
        assert!(held.check().is_ok(), "{:?} after fault {number}", held.check());
        leader.heal().unwrap();
    }
    let token = held.token();
    held.release().await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    assert!(next.token() > token);
}

#[tokio::test]
async fn the_holder_of_a_revoked_lease_is_notified_within_a_second_of_the_next_grant() {
    const ROUNDS: u32 = 20;
    let server = Server::start(&[]).unwrap();
    let url = format!("etcd://{}/locks?ttl_ms=60000", server.address());
    let (mut first, mut most) = (0, Duration::ZERO);
    for _ in 0..ROUNDS {
        let [holder, rival] = [Client::connect(&url).await.unwrap(), Client::connect(&url).await.unwrap()];
        let held = holder.mutex("job").unwrap().acquire().await.unwrap();
        let waiting = tokio::spawn({
            let rival = rival.clone();
            async move { (rival.mutex("job").unwrap().acquire().await.unwrap(), Instant::now()) }
        });
        is_queued(&holder, 2).await;
        let key = key_of_holder(&server);
        let lease = key.trim_start_matches("locks/job/").split('-').next().unwrap();
        server.control(&["lease", "revoke", lease]).unwrap();
        let lost = async { (held.lost().await, Instant::now()) };
        let ((loss, lost), waited) = future::join(lost, waiting).await;
        let (guard, granted) = waited.unwrap();
        assert_eq!(loss, fencelock::Loss::Expired);
        first += u32::from(lost <= granted);
        most = most.max(lost.saturating_duration_since(granted));
        guard.release().await.unwrap();
        rival.close().await.unwrap();
    }
    println!(
        "the notice of the loss preceded the next grant in {first} rounds of {ROUNDS}, or followed within {most:?}"
    );
    assert!(most < Duration::from_secs(1), "{most:?}");
}

#[tokio::test]
async fn a_defragmentation_delays_grants_and_loses_no_lock() {
    let server = Arc::new(Server::start(&[]).unwrap());
    let url = format!("etcd://{}/locks?ttl_ms=10000", server.address());
    let [holder, waiter] = [Client::connect(&url).await.unwrap(), Client::connect(&url).await.unwrap()];
    let held = holder.mutex("job").unwrap().acquire().await.unwrap();
    let waiting = tokio::spawn(async move { waiter.mutex("job").unwrap().acquire().await });
    is_queued(&holder, 2).await;
    // The member answers no request while it copies these values.
    let value = "x".repeat(100_000);
    (0..200).for_each(|number| drop(server.control(&["put", &format!("filler/{number}"), &value]).unwrap()));
    let member = Arc::clone(&server);
    let defragmenting = tokio::task::spawn_blocking(move || member.control(&["defrag"]));
    let (other, mut longest) = (holder.mutex("other").unwrap(), Duration::ZERO);
    while !defragmenting.is_finished() {
        let start = Instant::now();
        other.acquire().await.unwrap().release().await.unwrap();
        longest = longest.max(start.elapsed());
    }
    defragmenting.await.unwrap().unwrap();
    println!("the longest acquire and release during the defragmentation took {longest:?}");
    held.check().unwrap();
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

/// The first key of the queue.
fn key_of_holder(server: &Server) -> String {
    let find = ["get", "locks/job/", "--prefix", "--keys-only", "--sort-by=CREATE", "--limit=1"];
    server.control(&find).unwrap().trim().to_owned()
}

/// Writes `token` to the key `report` in a transaction that compares the revision that made `key`, and returns the revision of the write.
fn write(server: &Server, key: &str, token: u64) -> Option<u64> {
    let mut control = Command::new("etcdctl");
    control.env("ETCDCTL_API", "3").args([&format!("--endpoints={}", server.address()), "-w", "json", "txn"]);
    let mut control = control.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let txn = format!("create(\"{key}\") = \"{token}\"\n\nput report {token}\n\n\n");
    control.stdin.take().unwrap().write_all(txn.as_bytes()).unwrap();
    let answer = control.wait_with_output().unwrap();
    assert!(answer.status.success());
    let answer = String::from_utf8(answer.stdout).unwrap();
    let revision = answer.split("\"revision\":").nth(1).unwrap().split([',', '}']).next().unwrap();
    answer.contains("\"succeeded\":true").then(|| revision.parse().unwrap())
}

/// Acquires the lock `grants` times, and writes while another client breaks the grant. Returns the revision and the token of every accepted
/// write, and the number of refused ones.
async fn write_while_broken(server: Arc<Server>, grants: usize) -> (Vec<(u64, u64)>, usize) {
    let url = format!("etcd://{}/locks?ttl_ms=60000", server.address());
    let [client, breaker] = [Client::connect(&url).await.unwrap(), Client::connect(&url).await.unwrap()];
    let (mut accepted, mut refused) = (Vec::new(), 0);
    for _ in 0..grants {
        let guard = client.mutex("job").unwrap().acquire().await.unwrap();
        let token = guard.token().unwrap().get();
        let key = block_in_place(|| key_of_holder(&server));
        let mut attempt = || match block_in_place(|| write(&server, &key, token)) {
            Some(revision) => accepted.push((revision, token)),
            None => refused += 1,
        };
        attempt();
        let queue = breaker.queue("job").await.unwrap();
        let breaking = breaker.break_grant("job", &queue.contenders[0], "a drill");
        let writing = async {
            // The next holder writes meanwhile.
            for _ in 0..5 {
                attempt();
                tokio::task::yield_now().await;
            }
        };
        let (broken, ()) = future::join(breaking, writing).await;
        assert!(broken.unwrap());
    }
    (accepted, refused)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_write_of_an_older_grant_is_accepted_by_a_transaction_that_compares_the_create_revision() {
    const WRITERS: usize = 3;
    const GRANTS: usize = 10;
    let server = Arc::new(Server::start(&[]).unwrap());
    let writer = |_| tokio::spawn(write_while_broken(Arc::clone(&server), GRANTS));
    let (mut accepted, mut refused) = (Vec::new(), 0);
    for written in (0..WRITERS).map(writer).collect::<Vec<_>>() {
        let (writes, refusals) = written.await.unwrap();
        accepted.extend(writes);
        refused += refusals;
    }
    accepted.sort_unstable();
    let stale = accepted.windows(2).filter(|pair| pair[0].1 > pair[1].1).count();
    println!("{} writes accepted, {refused} stale ones refused, {stale} stale ones accepted", accepted.len());
    assert!(refused > 0 && accepted.len() >= WRITERS * GRANTS);
    assert_eq!(stale, 0);
}

#[tokio::test]
async fn a_full_etcd_grants_nothing_new_and_held_locks_are_renewed_and_released() {
    let server = Server::start(&["--quota-backend-bytes", "1000000"]).unwrap();
    let client = Client::connect(&format!("etcd://{}/locks?ttl_ms=3000", server.address())).await.unwrap();
    let [held, wanted] = ["held", "wanted"].map(|name| client.mutex(name).unwrap());
    let guard = held.acquire().await.unwrap();
    let value = "x".repeat(100_000);
    assert!(wait_until(PATIENCE, || server.control(&["put", "filler", &value]).is_err()));
    assert_eq!(wanted.acquire().await.unwrap_err().kind(), ErrorKind::Exhausted);
    // The pause is longer than the ttl, so that renewals must succeed.
    tokio::time::sleep(Duration::from_secs(5)).await;
    guard.check().unwrap();
    guard.release().await.unwrap();
    let status = server.control(&["endpoint", "status", "-w", "fields"]).unwrap();
    let revision = status.lines().find_map(|line| line.strip_prefix("\"Revision\" : ")).unwrap();
    for arguments in [&["compact", revision][..], &["defrag"], &["alarm", "disarm"]] {
        server.control(arguments).unwrap();
    }
    wanted.acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_lock_outlives_the_tokens_of_its_login() {
    let server = Server::start(&["--auth-token-ttl", "1"]).unwrap();
    server.demand_users(&[]).unwrap();
    let url = format!("etcd://me:s3cret@{}/locks?ttl_ms=6000", server.address());
    let [holder, waiter] = [Client::connect(&url).await.unwrap(), Client::connect(&url).await.unwrap()];
    let held = holder.mutex("job").unwrap().acquire().await.unwrap();
    let waiting = tokio::spawn(async move { waiter.mutex("job").unwrap().acquire().await });
    is_queued(&holder, 2).await;
    let logins = server.requests_for("Authenticate").unwrap();
    // Renewals and looks come every two seconds.
    assert!(wait_until(PATIENCE, || server.requests_for("Authenticate").unwrap() >= logins + 6));
    held.check().unwrap();
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

/// Writes the path and the answer of each call behind the messages.
struct Calls;

impl ServiceGenerator for Calls {
    fn generate(&mut self, service: Service, text: &mut String) {
        for call in service.methods {
            let (request, answer) = (call.input_type, call.output_type);
            let path = format!("{}.{}/{}", service.package, service.proto_name, call.proto_name);
            *text += &format!("impl super::connection::Rpc for {request} {{ type Answer = {answer};");
            *text += &format!("const PATH: &'static str = {path:?}; }}\n");
        }
    }
}

#[test]
fn the_messages_are_those_that_the_schema_generates() {
    let room = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fencelock/src/stores/etcd");
    let schema = protox::compile([room.join("etcd.proto")], [&room]).unwrap();
    let generated = tempfile::tempdir().unwrap();
    prost_build::Config::new()
        .service_generator(Box::new(Calls))
        .out_dir(generated.path())
        .compile_fds(schema)
        .unwrap();
    let generated = std::fs::read_to_string(generated.path().join("etcdserverpb.rs")).unwrap();
    assert_eq!(std::fs::read_to_string(room.join("proto.rs")).unwrap(), generated);
}
