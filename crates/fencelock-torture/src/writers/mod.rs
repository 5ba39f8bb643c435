//! Writers whose lock is part of their transaction, and such that only look at it before they write, while they are stopped, killed, held
//! back and cut off.
//!
//! Each takes the lock, begins a transaction, makes the grant part of it (or asks the guard whether it is still valid), reads a balance,
//! and writes it back, one higher, with its token. The server's own times of these commits then tell what came of it.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{scope, sleep};
use std::time::Duration;

use clap::ValueEnum;
use fencelock::Client;
use fencelock_testbed::postgres::{OWNER, Server, Settings};
use fencelock_testbed::process::{Process, bound};
use fencelock_testbed::{Proxy, Way, wait_until};
use tokio_postgres::NoTls;

/// How long sessions live.
const TTL: Duration = Duration::from_millis(500);
/// How long whoever is stopped, held back or cut off is so.
const OUTAGE: Duration = Duration::from_millis(900);
/// How long the first section is waited for.
const PATIENCE: Duration = Duration::from_secs(120);

const TABLES: &str = "CREATE TABLE account (value bigint NOT NULL); INSERT INTO account VALUES (0);
    CREATE TABLE entry (token bigint NOT NULL, began timestamptz NOT NULL)";

/// How writers make sure that they hold the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Check {
    /// The grant is part of the transaction.
    Hold,
    /// The guard is asked, right before each statement.
    Look,
}

/// What came of a drill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// How often somebody was hurt.
    pub faults: usize,
    /// Transactions that were committed.
    pub sections: u64,
    /// Commits with a token that is lower than one committed before.
    pub stale: u64,
    /// Transactions that began to hold the lock before an earlier one had committed.
    pub overlaps: u64,
    /// Writes that another one overwrote unseen.
    pub lost: u64,
}

impl Outcome {
    /// Whether nothing was wrong.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.stale == 0 && self.overlaps == 0 && self.lost == 0
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { faults, sections, stale, overlaps, lost } = self;
        write!(
            f,
            "{faults} faults, {sections} sections: {stale} stale commits, {overlaps} overlaps, {lost} lost writes"
        )
    }
}

/// Lets `writers` processes write at this isolation level until so many faults befell them.
///
/// # Errors
/// Whatever the system says.
pub fn drill(writer: &Path, way: Check, level: &str, writers: usize, faults: usize, seed: u64) -> io::Result<Outcome> {
    let settings = Settings::default().with("track_commit_timestamp = on").with("fsync = off");
    let server = Server::start(settings)?;
    server.sql(OWNER, &format!("SET ROLE {OWNER}; {TABLES}"))?;
    let done = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    scope(|all| {
        for number in 0..writers {
            let (server, done, failed) = (&server, &done, &failed);
            all.spawn(move || {
                let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number as u64 + 1));
                if let Err(error) = hurt(server, writer, way, level, random, (done, faults)) {
                    *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                }
            });
        }
    });
    if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    count(&server, done.into_inner())
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// One writer with a way of its own, and what befalls it.
fn hurt(
    server: &Server,
    writer: &Path,
    way: Check,
    level: &str,
    mut random: Random,
    (done, faults): (&AtomicUsize, usize),
) -> io::Result<()> {
    let proxy = Proxy::start(server.address())?;
    let start = || {
        let mut command: Command = bound(writer);
        let way = if way == Check::Hold { "hold" } else { "look" };
        command.args([&proxy.address().to_string(), way, level]).stdin(Stdio::null()).stdout(Stdio::null());
        Process::start(command)
    };
    let mut process = start()?;
    // On a busy machine, connecting alone can take longer than all the faults.
    let has_written = || server.sql(OWNER, "SELECT count(*) > 0 FROM entry").is_ok_and(|said| said.trim() == "t");
    if !wait_until(PATIENCE, has_written) {
        return Err(io::Error::other("nobody wrote anything"));
    }
    while done.fetch_add(1, Ordering::Relaxed) < faults {
        sleep(Duration::from_millis(20 + random.below(300)));
        match random.below(4) {
            0 => {
                process.pause()?;
                sleep(OUTAGE);
                process.resume()?;
            }
            1 => {
                process.kill()?;
                process = start()?;
            }
            2 => {
                proxy.hold_existing(Way::Up);
                sleep(OUTAGE);
                proxy.heal();
            }
            _ => {
                proxy.hold(Way::Both);
                sleep(OUTAGE);
                proxy.heal();
            }
        }
        if process.ended()?.is_some() {
            return Err(io::Error::other("a writer gave up"));
        }
    }
    // One who counted a fault that was too much takes it back.
    done.fetch_sub(1, Ordering::Relaxed);
    process.kill()
}

fn count(server: &Server, faults: usize) -> io::Result<Outcome> {
    let number = |sql: &str| server.sql(OWNER, sql)?.trim().parse().map_err(io::Error::other);
    // What a killed writer sent may still be on its way to its commit.
    server.sql(OWNER, "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = 'fencelock'")?;
    let told = "SELECT token, began, pg_xact_commit_timestamp(xmin) AS committed FROM entry";
    Ok(Outcome {
        faults,
        sections: number("SELECT count(*) FROM entry")?,
        stale: number(&format!(
            "SELECT count(*) FROM (SELECT token, max(token) OVER (ORDER BY committed, token ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest FROM ({told}) AS e) AS s WHERE token < highest"
        ))?,
        overlaps: number(&format!(
            "SELECT count(*) FROM (SELECT began, max(committed) OVER (ORDER BY began, token ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS last FROM ({told}) AS e) AS s WHERE began < last"
        ))?,
        lost: number("SELECT (SELECT count(*) FROM entry) - (SELECT value FROM account)")?,
    })
}

/// One writer: `ADDRESS hold|look LEVEL`. Writes until it is killed.
pub fn writer_main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, way, level] = arguments.as_slice() else { return ExitCode::FAILURE };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return ExitCode::FAILURE;
    };
    runtime.block_on(async {
        loop {
            // Whatever went wrong: from the beginning.
            if write(address, way == "hold", level).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    })
}

type Fault = Box<dyn std::error::Error>;

async fn write(address: &str, holds: bool, level: &str) -> Result<(), Fault> {
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
                if holds {
                    let limit = "SELECT fencelock.hold('account', $1, interval '1 second')";
                    database.execute(limit, &[&token]).await?;
                }
                let row = database.query_one("SELECT value, clock_timestamp()::text FROM account", &[]).await?;
                let (value, began): (i64, String) = (row.get(0), row.get(1));
                tokio::time::sleep(Duration::from_millis(u64::from(token as u8 % 16))).await;
                if !holds {
                    guard.check()?;
                }
                database.execute("UPDATE account SET value = $1", &[&(value + 1)]).await?;
                database.batch_execute(&format!("INSERT INTO entry VALUES ({token}, '{began}'); COMMIT")).await?;
                guard.release().await?;
            }
        };
        let ended: Result<(), Fault> = tokio::time::timeout(TTL * 30, written).await?;
        driver.abort();
        if !database.is_closed() && ended.is_err() {
            // The next one rolls back by ending this connection.
            drop(database);
        }
    }
}
