//! Members of etcd that are killed, full, or of another schema.

use std::path::Path;
use std::time::Duration;

use fencelock::{Client, ErrorKind};
use fencelock_testbed::etcd::Server;
use fencelock_testbed::{PATIENCE, wait_until};

/// How often the leader is killed.
const KILLS: usize = 5;

async fn connect(members: &[Server]) -> Client {
    let addresses: Vec<_> = members.iter().map(|member| member.address().to_string()).collect();
    Client::connect(&format!("etcd://{}/locks?ttl_ms=30000", addresses.join(","))).await.unwrap()
}

#[tokio::test]
async fn locks_outlive_every_leader_that_is_killed_and_are_handed_on() {
    let members = Server::cluster(3, &[]).unwrap();
    let (holder, waiter) = (connect(&members).await, connect(&members).await);
    let [job, other] = ["job", "other"].map(|name| holder.mutex(name).unwrap());
    let held = job.acquire().await.unwrap();
    let waiting = tokio::spawn(async move { waiter.mutex("job").unwrap().acquire().await });
    while holder.queue("job").await.unwrap().contenders.len() != 2 {}
    for _ in 0..KILLS {
        let leader = || members.iter().find(|member| member.is_leader());
        assert!(wait_until(PATIENCE, || leader().is_some()));
        let leader = leader().unwrap();
        leader.kill();
        // A grant needs the next leader.
        other.acquire().await.unwrap().release().await.unwrap();
        assert!(held.check().is_ok(), "{:?}", held.check());
        leader.restart().unwrap();
        leader.wait_until_serving().unwrap();
    }
    let token = held.token();
    held.release().await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    assert!(next.token() > token);
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

#[test]
fn the_messages_are_those_that_the_schema_generates() {
    let room = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fencelock/src/stores/etcd");
    let schema = protox::compile([room.join("etcd.proto")], [&room]).unwrap();
    let generated = tempfile::tempdir().unwrap();
    prost_build::Config::new().out_dir(generated.path()).compile_fds(schema).unwrap();
    let generated = std::fs::read_to_string(generated.path().join("etcd.rs")).unwrap();
    assert_eq!(std::fs::read_to_string(room.join("proto.rs")).unwrap(), generated);
}
