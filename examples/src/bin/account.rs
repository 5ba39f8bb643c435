//! An account in PostgreSQL whose balance eight processes change, while one of them is stopped again and again.
//!
//! Each change reads the balance and writes it back, one higher, in two statements, so that two at once lose a change. The
//! lock is a part of the transaction: `fencelock.hold` fails unless the grant is current, and keeps it from ending until the
//! commit. A process that was stopped beyond its lease cannot write late.
//!
//! ```console
//! cargo run -p fencelock-examples --bin account -- postgres://user:password@localhost/database
//! ```
//!
//! The program makes the schema `fencelock_example` there, and removes it. `kill` must be installed.

use std::error::Error;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fencelock::postgres::Schema;
use fencelock::{Client, Mutex};
use tokio_postgres::NoTls;

type Result<T = ()> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const TELLERS: usize = 8;
const CHANGES: i64 = 20;
/// How often a teller is stopped.
const STOPS: usize = 3;
/// So many failures in a row are a fault that does not pass.
const PATIENCE: u32 = 200;

/// The argument that makes this program one of its tellers.
const TELLER: &str = "--teller";

const TABLES: &str = "DROP SCHEMA IF EXISTS fencelock_example CASCADE;
    CREATE SCHEMA fencelock_example;
    CREATE TABLE fencelock_example.account (balance bigint NOT NULL);
    CREATE TABLE fencelock_example.entry (teller bigint, number bigint, PRIMARY KEY (teller, number));
    INSERT INTO fencelock_example.account VALUES (0)";

#[tokio::main]
async fn main() -> Result {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [teller, url, number] if teller == TELLER => work(url, number.parse()?).await,
        [url] => run(url).await,
        _ => Err("name the database: postgres://user:password@host/database".into()),
    }
}

/// A connection of our own, for the protected rows.
async fn connect(url: &str) -> Result<tokio_postgres::Client> {
    // Options of the locks follow the `?`.
    let (database, connection) = tokio_postgres::connect(url.split('?').next().unwrap_or(url), NoTls).await?;
    tokio::spawn(connection);
    Ok(database)
}

/// Starts the tellers, stops one of them again and again, and looks at the balance.
async fn run(url: &str) -> Result {
    let database = connect(url).await?;
    database.batch_execute(TABLES).await?;
    // The first client would make the schema; here, eight come at once.
    Schema::of(url)?.migrate(&[]).await?;
    let teller = |number: usize| {
        let mut command = Command::new(std::env::current_exe()?);
        // The first one says when it is in the middle of a change.
        let said = if number == 0 { Stdio::piped() } else { Stdio::null() };
        command.args([TELLER, url, &number.to_string()]).stdin(Stdio::null()).stdout(said).spawn()
    };
    let mut tellers = (0..TELLERS).map(teller).collect::<std::io::Result<Vec<_>>>()?;
    let stops = disturb(&database, &mut tellers[0]).await;
    if stops.is_err() {
        // A stopped teller would stay for ever.
        tellers.iter_mut().for_each(|teller| drop(teller.kill()));
    }
    let stops = stops?;
    for teller in &mut tellers {
        let ended = teller.wait()?;
        assert!(ended.success(), "a teller ended with {ended}");
    }
    let balance: i64 = database.query_one("SELECT balance FROM fencelock_example.account", &[]).await?.get(0);
    assert_eq!(balance, i64::try_from(TELLERS)? * CHANGES, "the balance lost some");
    database.batch_execute("DROP SCHEMA fencelock_example CASCADE").await?;
    println!(
        "{TELLERS} processes, one of them stopped {stops} times, changed the balance {balance} times: it is {balance}"
    );
    Ok(())
}

/// Stops a teller in the middle of a change until the other tellers made changes, and continues it. Returns how often it did so.
async fn disturb(database: &tokio_postgres::Client, teller: &mut Child) -> Result<usize> {
    let made = async || -> Result<i64> {
        let others = "SELECT count(*) FROM fencelock_example.entry WHERE teller <> 0";
        Ok(database.query_one(others, &[]).await?.get(0))
    };
    let mut middles = BufReader::new(teller.stdout.take().ok_or("no pipe")?).lines();
    for stops in 0..STOPS {
        if middles.next().is_none() {
            return Ok(stops);
        }
        send("-STOP", teller)?;
        // The other tellers wait until the server ends its transaction and its lease expires.
        let enough = (made().await? + 10).min(i64::try_from(TELLERS - 1)? * CHANGES);
        while made().await? < enough {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        send("-CONT", teller)?;
    }
    Ok(STOPS)
}

fn send(signal: &str, process: &Child) -> Result {
    let sent = Command::new("kill").args([signal, &process.id().to_string()]).status()?;
    if sent.success() { Ok(()) } else { Err("the teller could not be signalled".into()) }
}

/// A teller, until all of its changes are made.
async fn work(url: &str, teller: i64) -> Result {
    let client =
        Client::builder().ttl(Duration::from_secs(2)).connect_timeout(Duration::from_secs(30)).connect(url).await?;
    let lock = client.mutex("example/account")?.purpose("changing the balance");
    let (mut number, mut failures) = (0, 0);
    let mut database = connect(url).await?;
    while number < CHANGES {
        match change(&mut database, &lock, teller, number).await {
            Ok(()) => (number, failures) = (number + 1, 0),
            Err(error) if failures == PATIENCE => return Err(error),
            // Stopped for too long: the lock was lost, or the server ended the transaction and the connection with it.
            Err(_) => {
                failures += 1;
                if database.is_closed() {
                    database = connect(url).await?;
                }
            }
        }
    }
    client.close().await?;
    Ok(())
}

/// Makes one change, unless it was made already and only the answer was lost.
async fn change(database: &mut tokio_postgres::Client, lock: &Mutex, teller: i64, number: i64) -> Result {
    let guard = lock.acquire().await?;
    let token = guard.require_token()?.to_i64();
    let transaction = database.transaction().await?;
    let hold = "SELECT fencelock.hold('example/account', $1, interval '1 second')";
    transaction.execute(hold, &[&token]).await?;
    let entry = "INSERT INTO fencelock_example.entry VALUES ($1, $2) ON CONFLICT DO NOTHING";
    if transaction.execute(entry, &[&teller, &number]).await? == 1 {
        let balance = "SELECT balance FROM fencelock_example.account";
        let balance: i64 = transaction.query_one(balance, &[]).await?.get(0);
        // Another process that believes to hold the lock gets its chance here.
        let _ = writeln!(std::io::stdout(), "in the middle");
        tokio::time::sleep(Duration::from_millis(if teller == 0 { 100 } else { 5 })).await;
        let write = "UPDATE fencelock_example.account SET balance = $1";
        transaction.execute(write, &[&(balance + 1)]).await?;
    }
    transaction.commit().await?;
    // The change is committed; a failed release does not undo it.
    let _ = guard.release().await;
    Ok(())
}
