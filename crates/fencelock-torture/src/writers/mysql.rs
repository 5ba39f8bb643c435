//! Writers in MariaDB, which keeps the times of commits for tables of its own history (`WITH SYSTEM VERSIONING`, by transactions).

use std::io;

use fencelock::Client;
use fencelock::mysql::Schema;
use fencelock_testbed::mysql::{OWNER, Server, Settings};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};

use super::{Fault, Ledger, TTL, Writer, pause};

const TABLES: &str = "CREATE TABLE account (value BIGINT NOT NULL) ENGINE = InnoDB; INSERT INTO account VALUES (0);
    CREATE TABLE entry (token BIGINT NOT NULL, began DATETIME(6) NOT NULL, since BIGINT UNSIGNED GENERATED ALWAYS AS ROW START,
    upto BIGINT UNSIGNED GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (since, upto)) ENGINE = InnoDB WITH SYSTEM VERSIONING";

pub(super) fn start() -> io::Result<Ledger> {
    // No drill here is about the power going.
    let server = Server::start(Settings::default().with("--innodb-flush-log-at-trx-commit=0"))?;
    server.sql(&format!("USE {OWNER}; {TABLES}"))?;
    // A client of so short a ttl as a writer's has no time to make the tables of the locks.
    let schema = Schema::of(&server.url()).map_err(io::Error::other)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(schema.migrate(&[])).map_err(io::Error::other)?;
    Ok(Ledger {
        address: server.address(),
        end: format!("KILL USER {OWNER}"),
        left: format!("SELECT COUNT(*) FROM information_schema.processlist WHERE user = '{OWNER}'"),
        entries: "SELECT e.token, e.began, r.commit_timestamp AS committed FROM entry AS e JOIN mysql.transaction_registry AS r ON r.transaction_id = e.since",
        sql: Box::new(move |sql| server.sql(&format!("USE {OWNER}; {sql}"))),
    })
}

pub(super) async fn write(writer: &Writer) -> Result<(), Fault> {
    let Writer { address, holds, level } = writer;
    let url = format!("mysql://{OWNER}:secret@{address}/{OWNER}");
    let client = Client::connect(&format!("{url}?ttl_ms={}&margin_ms=50", TTL.as_millis())).await?;
    let mutex = client.mutex("account")?;
    let options = Opts::from_url(&format!("{url}?prefer_socket=false"))?;
    loop {
        let mut database = tokio::time::timeout(TTL * 4, Conn::new(options.clone())).await??;
        let written = async {
            database.query_drop(format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}")).await?;
            loop {
                let guard = mutex.acquire_within(TTL * 20).await?;
                let token = guard.token().ok_or("no token")?.to_i64();
                if !holds {
                    guard.check()?;
                }
                database.query_drop("START TRANSACTION").await?;
                if *holds {
                    database.exec_drop("CALL fencelock_hold('account', ?)", (token,)).await?;
                }
                let row = database.query_first("SELECT value, CAST(SYSDATE(6) AS CHAR) FROM account").await?;
                let (value, began): (i64, String) = row.ok_or("the account is gone")?;
                pause(token).await;
                if !holds {
                    guard.check()?;
                }
                database.exec_drop("UPDATE account SET value = ?", (value + 1,)).await?;
                database.exec_drop("INSERT INTO entry (token, began) VALUES (?, ?)", (token, began)).await?;
                database.query_drop("COMMIT").await?;
                guard.release().await?;
            }
        };
        // The server rolls back what is open when the connection ends.
        let _ended: Result<(), Fault> = tokio::time::timeout(TTL * 30, written).await?;
    }
}
