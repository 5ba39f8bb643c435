//! Writers in PostgreSQL, which keeps the times of commits.

use std::io;

use fencelock::Client;
use fencelock_testbed::postgres::{OWNER, Server, Settings};
use tokio_postgres::NoTls;

use super::{Fault, Ledger, TTL, Writer, pause};

const TABLES: &str = "CREATE TABLE account (value bigint NOT NULL); INSERT INTO account VALUES (0);
    CREATE TABLE entry (token bigint NOT NULL, began timestamptz NOT NULL)";

pub(super) fn start() -> io::Result<Ledger> {
    let server = Server::start(Settings::default().with("track_commit_timestamp = on").with("fsync = off"))?;
    server.sql(OWNER, &format!("SET ROLE {OWNER}; {TABLES}"))?;
    Ok(Ledger {
        address: server.address(),
        end: format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{OWNER}'"),
        left: format!("SELECT count(*) FROM pg_stat_activity WHERE usename = '{OWNER}'"),
        entries: "SELECT token, began, pg_xact_commit_timestamp(xmin) AS committed FROM entry",
        sql: Box::new(move |sql| server.sql(OWNER, sql)),
    })
}

pub(super) async fn write(writer: &Writer) -> Result<(), Fault> {
    let Writer { address, holds, level } = writer;
    let url = format!("postgres://{OWNER}:secret@{address}/{OWNER}");
    let client = Client::connect(&format!("{url}?ttl_ms={}&margin_ms=50", TTL.as_millis())).await?;
    let mutex = client.mutex("account")?;
    loop {
        let (database, connection) = tokio::time::timeout(TTL * 4, tokio_postgres::connect(&url, NoTls)).await??;
        let driver = tokio::spawn(connection);
        let written = async {
            loop {
                let guard = mutex.acquire_within(TTL * 20).await?;
                let token = guard.token().ok_or("no token")?.to_i64();
                if !holds {
                    guard.check()?;
                }
                database.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}")).await?;
                if *holds {
                    let limit = "SELECT fencelock.hold('account', $1, interval '1 second')";
                    database.execute(limit, &[&token]).await?;
                }
                let row = database.query_one("SELECT value, clock_timestamp()::text FROM account", &[]).await?;
                let (value, began): (i64, String) = (row.get(0), row.get(1));
                pause(token).await;
                if !holds {
                    guard.check()?;
                }
                database.execute("UPDATE account SET value = $1", &[&(value + 1)]).await?;
                database.batch_execute(&format!("INSERT INTO entry VALUES ({token}, '{began}'); COMMIT")).await?;
                guard.release().await?;
            }
        };
        let _ended: Result<(), Fault> = tokio::time::timeout(TTL * 30, written).await?;
        // The server rolls back what is open.
        driver.abort();
    }
}
