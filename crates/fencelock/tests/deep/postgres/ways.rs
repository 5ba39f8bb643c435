//! The ways to a server: several hosts of which one is gone or silent. A pooler: `pooled.rs`.

use fencelock::postgres::Schema;
use fencelock::{Client, ErrorKind};
use fencelock_testbed::postgres::{Server, Settings};

use super::lab::{acquire, client, queued, server, soon, until};

#[tokio::test]
async fn of_several_hosts_the_one_that_takes_writes_is_found_again_after_a_failover() {
    let primary = server(Settings::default());
    let holder = client(&primary.url(), 20_000).await;
    acquire(&holder, "before").await.release().await.unwrap();
    let standby = Server::start(Settings { standby_of: Some(primary.address()), ..Settings::default() }).unwrap();
    let both = format!("postgres://fencelock:secret@{},{}/fencelock", primary.address(), standby.address());
    let one = client(&both, 20_000).await;
    let guard = acquire(&one, "job").await;
    until("the standby has it", async || {
        let asked = "SELECT count(*) FROM fencelock.place WHERE name = 'job'";
        standby.sql("fencelock", asked).is_ok_and(|said| said.trim() == "1")
    })
    .await;
    primary.kill();
    standby.promote().unwrap();
    let other = client(&both, 20_000).await;
    assert_eq!(soon(async { queued(&other, "job").await }).await, 1);
    guard.check().unwrap();
    soon(guard.release()).await.unwrap();
    acquire(&other, "job").await.release().await.unwrap();
}

/// As after the death of the host on which the primary was: no reply says that no server listens.
#[tokio::test]
async fn a_host_that_is_silent_keeps_no_client_from_the_next_one() {
    let (silent, own) = (server(Settings::default()), server(Settings::default()));
    silent.pause();
    let both = format!("postgres://fencelock:secret@{},{}/fencelock", silent.address(), own.address());
    let one = client(&both, 30_000).await;
    let guard = acquire(&one, "job").await;
    let looker = Client::builder().session_when_needed(true).connect(&both).await.unwrap();
    assert_eq!(soon(queued(&looker, "job")).await, 1);
    guard.release().await.unwrap();
    let error = soon(Schema::of(&silent.url()).unwrap().migrate(&[])).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unreachable && error.to_string().contains("no answer"), "{error}");
}
