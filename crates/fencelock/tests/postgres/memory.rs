//! Where the memory of a server may lack a holder, no client is granted a lock. More in `tests/deep/postgres/trouble.rs`.

use fencelock_testbed::postgres::{OWNER, Server, Settings};

use crate::lab::{acquire, acquiring, client, server, soon, until};

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
        acquire(&client(&primary.url(), 6_000).await, "at once").await.release().await.unwrap();
        let standby = standby(&primary).await;
        standby.promote().unwrap();
        let other = client(&standby.url(), 6_000).await;
        let error = other.mutex("another").unwrap().try_acquire().await.unwrap_err();
        assert!(error.is_contention(), "{revoked}: {error}");
        soon(soon(acquiring(&other, "another")).await.unwrap().unwrap().release()).await.unwrap();
        drop(guard);
    }
}
