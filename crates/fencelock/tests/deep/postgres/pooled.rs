//! A pooler that changes servers, one without room, and one that keeps requests of an older connection.

use fencelock::{Loss, Name};
use fencelock_testbed::postgres::{OWNER, Pooler, Server, Settings};

use super::lab::{acquire, acquiring, client, connection, queued, server, soon, until};

fn by(pooler: &Pooler, server: &Server) -> String {
    server.url().replace(&server.address().to_string(), &pooler.address().to_string())
}

/// The standby lacks a grant, and no connection of a client ends: the pooler leads their next transactions to it.
#[tokio::test]
async fn where_a_pooler_leads_to_a_promoted_standby_a_grant_that_is_missing_there_is_lost_and_no_other_client_has_it() {
    let primary = server(Settings::default());
    let pooler = Pooler::start(primary.address(), "transaction").unwrap();
    let url = by(&pooler, &primary);
    let (holder, other) = (client(&url, 20_000).await, client(&url, 20_000).await);
    acquire(&other, "before").await.release().await.unwrap();
    let kept = acquire(&other, "kept").await;
    let standby = Server::start(Settings { standby_of: Some(primary.address()), ..Settings::default() }).unwrap();
    until("the standby has it", async || {
        standby
            .sql(OWNER, "SELECT count(*) FROM fencelock.place WHERE name = 'kept'")
            .is_ok_and(|said| said.trim() == "1")
    })
    .await;
    standby.sql("postgres", "ALTER SYSTEM SET primary_conninfo = ''").unwrap();
    standby.sql("postgres", "SELECT pg_reload_conf()").unwrap();
    until("the standby receives nothing", async || {
        standby.sql("postgres", "SELECT count(*) FROM pg_stat_wal_receiver").is_ok_and(|said| said.trim() == "0")
    })
    .await;
    let guard = acquire(&holder, "job").await;
    pooler.command("PAUSE").unwrap();
    standby.promote().unwrap();
    pooler.lead_to(standby.address()).unwrap();
    pooler.command("RESUME").unwrap();
    let error = soon(async {
        loop {
            match other.mutex("job").unwrap().try_acquire().await {
                Err(error) if error.is_contention() => return error,
                Err(error) => assert!(error.is_retryable(), "{error}"),
                Ok(_) => panic!("two holders"),
            }
        }
    })
    .await;
    assert!(error.to_string().contains("no client is granted a lock until"), "{error}");
    assert!(matches!(soon(guard.lost()).await, Loss::Removed));
    kept.check().unwrap();
    standby.sql(OWNER, "UPDATE fencelock.layout SET quiet_until = 'epoch'").unwrap();
    soon(acquire(&other, "job").await.release()).await.unwrap();
    soon(kept.release()).await.unwrap();
}

#[tokio::test]
async fn a_pool_without_room_is_an_outage_and_leaves_one_holder() {
    let own = server(Settings::default());
    let pooler = Pooler::start(own.address(), "transaction\ndefault_pool_size = 1\nquery_wait_timeout = 1").unwrap();
    let url = by(&pooler, &own);
    let (one, other) = (client(&url, 20_000).await, client(&own.url(), 20_000).await);
    acquire(&one, "before").await.release().await.unwrap();
    let user = connection(&url).await;
    user.batch_execute("BEGIN").await.unwrap();
    let guard = acquire(&other, "job").await;
    let error = soon(async {
        loop {
            match one.mutex("job").unwrap().try_acquire().await {
                Err(error) if error.is_contention() => {}
                outcome => return outcome.unwrap_err(),
            }
        }
    })
    .await;
    assert!(error.is_retryable(), "{error}");
    let waiter = acquiring(&one, "job");
    user.batch_execute("COMMIT").await.unwrap();
    until("it waits", async || queued(&other, "job").await == 2).await;
    soon(guard.release()).await.unwrap();
    soon(soon(waiter).await.unwrap().unwrap().release()).await.unwrap();
}

/// A paused pooler keeps the requests of connections that their client gave up, and sends them on later.
#[tokio::test]
async fn a_request_that_a_pooler_kept_while_its_client_went_on_elsewhere_leaves_no_place() {
    let own = server(Settings::default());
    let pooler = Pooler::start(own.address(), "transaction").unwrap();
    let both = format!("postgres://fencelock:secret@{},{}/fencelock", pooler.address(), own.address());
    let (one, looker) = (client(&both, 6_000).await, client(&own.url(), 20_000).await);
    acquire(&one, "before").await.release().await.unwrap();
    pooler.command("PAUSE").unwrap();
    let waiter = acquiring(&one, "job");
    let guard = soon(waiter).await.unwrap().unwrap();
    pooler.command("RESUME").unwrap();
    assert_eq!(queued(&looker, "job").await, 1);
    soon(guard.release()).await.unwrap();
    soon(acquire(&looker, "job").await.release()).await.unwrap();
    assert!(looker.queue(&Name::new("job").unwrap()).await.unwrap().contenders.is_empty());
}
