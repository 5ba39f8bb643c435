//! Helpers of these tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fencelock_testbed::mysql::{KIND, Server, Settings};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use tokio::task::JoinSet;

pub(crate) use crate::patience::*;

/// A database of this test's own on the server that all share.
pub(crate) fn database() -> String {
    let shared = KIND.shared();
    format!("mysql://fencelock:secret@{}{}", shared.address(), shared.namespace())
}

/// A connection of a user's own.
pub(crate) async fn connection(url: &str) -> Conn {
    Conn::new(Opts::from_url(&format!("{url}?prefer_socket=false")).unwrap()).await.unwrap()
}

/// A limit of a second for each statement: an option of MariaDB, and one of MySQL.
pub(crate) const STATEMENTS: [&str; 2] = ["--loose-max-statement-time=1", "--loose-max-execution-time=1000"];

/// Fails if this connection is in a transaction: both servers refuse the statement there.
pub(crate) async fn has_no_transaction(user: &mut Conn) {
    user.query_drop("SET TRANSACTION READ WRITE").await.unwrap();
}

/// Whether the server is MariaDB, and not MySQL.
pub(crate) async fn is_mariadb(user: &mut Conn) -> bool {
    user.query_first::<String, _>("SELECT VERSION()").await.unwrap().unwrap().contains("MariaDB")
}

/// The SQLSTATE of the server's refusal.
pub(crate) fn state<T: std::fmt::Debug>(answer: mysql_async::Result<T>) -> String {
    match answer.unwrap_err() {
        mysql_async::Error::Server(error) => error.state,
        error => panic!("{error}"),
    }
}

/// The number of transactions with this condition. The server refreshes its list only after a tenth of a second without a query: a
/// client that asks all the time gets the same list for ever.
pub(crate) async fn transactions(admin: &mut Conn, condition: &str) -> u64 {
    tokio::time::sleep(Duration::from_millis(200)).await;
    let count = format!("SELECT COUNT(*) FROM information_schema.innodb_trx WHERE {condition}");
    admin.query_first(count).await.unwrap().unwrap()
}

/// Ends `kills` requests of clients in the midst of their cycles (by KILL QUERY, each twentieth by KILL CONNECTION). That may end
/// a procedure between two of its statements, where no handler runs. No lock is lost, no two clients hold it at once, all errors
/// are retryable, and no transaction stays open.
pub(crate) async fn end_requests(clients: usize, names: usize, kills: usize) {
    let server = Server::start(Settings::default()).unwrap();
    let (one, other) = (client(&server.url(), 60_000).await, client(&server.url(), 60_000).await);
    let kept = acquire(&one, "kept").await;
    let inside: Arc<Vec<AtomicUsize>> = Arc::new((0..names).map(|_| AtomicUsize::new(0)).collect());
    let mut cycles = JoinSet::new();
    for number in 0..clients {
        let mutex = client(&server.url(), 60_000).await.mutex(format!("job/{}", number % names)).unwrap();
        let inside = Arc::clone(&inside);
        cycles.spawn(async move {
            loop {
                let guard = match mutex.acquire().await {
                    Ok(guard) => guard,
                    Err(error) if error.is_retryable() => continue,
                    Err(error) => return error.to_string(),
                };
                if inside[number % names].fetch_add(1, Ordering::SeqCst) > 0 {
                    return "two holders".to_owned();
                }
                tokio::task::yield_now().await;
                inside[number % names].fetch_sub(1, Ordering::SeqCst);
                // The client repeats a failed release in the background.
                if let Err(error) = guard.release().await
                    && !error.is_retryable()
                {
                    return error.to_string();
                }
            }
        });
    }
    let mut admin = connection(&format!("mysql://root@{}/fencelock", server.address())).await;
    let busy = "SELECT id FROM information_schema.processlist WHERE user = 'fencelock' AND command <> 'Sleep' AND state <> 'User lock'";
    let mut ended = 0;
    while ended < kills {
        for id in admin.query::<u64, _>(busy).await.unwrap() {
            let what = if ended % 20 == 19 { "CONNECTION" } else { "QUERY" };
            ended += usize::from(admin.query_drop(format!("KILL {what} {id}")).await.is_ok());
        }
        let wrong = cycles.try_join_next();
        assert!(wrong.is_none(), "after {ended}: {wrong:?}");
        tokio::task::yield_now().await;
    }
    cycles.shutdown().await;
    until("no transaction is open", async || transactions(&mut admin, "TRUE").await == 0).await;
    kept.check().unwrap();
    for name in 0..names {
        acquire(&other, &format!("job/{name}")).await.release().await.unwrap();
    }
    soon(kept.release()).await.unwrap();
}
