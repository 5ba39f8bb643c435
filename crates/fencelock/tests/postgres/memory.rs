//! Where the memory of a server may lack a holder, no client is granted a lock. More in `tests/deep/postgres/trouble.rs`.

use fencelock::Name;
use fencelock_testbed::postgres::{OWNER, Server, Settings};

use crate::lab::{LONG, acquire, acquiring, client, refusals, server, soon, until};

/// A standby that has the schema.
async fn standby(primary: &Server) -> Server {
    let standby = Server::start(Settings { standby_of: Some(primary.address()), ..Settings::default() }).unwrap();
    let version = "SELECT version FROM fencelock.layout";
    until("the standby has it", async || standby.sql(OWNER, version).is_ok_and(|said| !said.trim().is_empty())).await;
    standby
}

#[tokio::test]
async fn a_promoted_standby_grants_nothing_for_a_ttl_whichever_of_its_numbers_the_owner_may_not_read() {
    for revoked in ["pg_control_system()", "pg_walfile_name(pg_lsn)", "pg_control_system(), pg_current_wal_lsn()"] {
        let primary = server(Settings::default().with("fsync = off"));
        primary.sql(OWNER, &format!("REVOKE EXECUTE ON FUNCTION {revoked} FROM PUBLIC")).unwrap();
        let one = client(&primary.url(), 6_000).await;
        let guard = acquire(&one, "job").await;
        drop(acquire(&client(&primary.url(), 6_000).await, "at once").await);
        let standby = standby(&primary).await;
        standby.promote().unwrap();
        let other = client(&standby.url(), 6_000).await;
        let error = other.mutex("another").unwrap().try_acquire().await.unwrap_err();
        assert!(error.is_contention(), "{revoked}: {error}");
        drop((soon(acquiring(&other, "another")).await.unwrap().unwrap(), guard));
    }
}

#[tokio::test]
async fn a_session_that_ended_is_not_waited_for_after_a_promotion_and_errors_and_queues_say_until_when_none_is_granted()
{
    let primary = server(Settings::default().with("fsync = off"));
    let keeper = client(&primary.url(), 2_000).await;
    for is_closed in [true, false] {
        let long = client(&primary.url(), LONG).await;
        let guard = acquire(&long, "long").await;
        if is_closed {
            soon(guard.release()).await.unwrap();
            soon(long.close()).await.unwrap();
        }
        let standby = standby(&primary).await;
        standby.promote().unwrap();
        let other = client(&standby.url(), 300_000).await;
        for error in refusals(&other, "job", "no client is granted a lock until 2").await {
            assert!(error.contains(", because this server may not know") && !error.contains("held by"), "{error}");
        }
        let queue = other.queue(&Name::new("job").unwrap()).await.unwrap();
        assert!(queue.closed.is_some_and(|closed| closed.contains("because")));
        let quiet_for = standby.sql(OWNER, "SELECT extract(epoch FROM quiet_for) FROM fencelock.layout").unwrap();
        assert_eq!(quiet_for.trim(), if is_closed { "300.000000" } else { "3600.000000" });
        standby.sql(OWNER, "UPDATE fencelock.layout SET quiet_until = 'epoch'").unwrap();
        soon(soon(acquiring(&other, "job")).await.unwrap().unwrap().release()).await.unwrap();
        assert_eq!(other.queue(&Name::new("job").unwrap()).await.unwrap().closed, None);
    }
    keeper.close().await.unwrap();
}
