//! Writers on a database, while they are stopped, killed, held back and cut off. Their lock is part of their transaction, or they only look
//! at the guard before they write.
//!
//! Each writer takes the lock, begins a transaction, makes the grant part of it (or asks the guard whether it is still valid), reads a
//! balance, and writes it back, one higher, with its token. The server's times of these commits show late writes.

mod mysql;
mod postgres;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

use clap::ValueEnum;
use fencelock_testbed::process::{Process, bound};
use fencelock_testbed::{Proxy, Way, wait_for};

/// How long sessions live.
const TTL: Duration = Duration::from_millis(500);
/// How long a writer is stopped, held back or cut off.
const OUTAGE: Duration = Duration::from_millis(900);

/// The database with the writers' locks and tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Database {
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    Mysql,
}

impl Database {
    /// The isolation levels of the database.
    #[must_use]
    pub const fn levels(self) -> &'static [&'static str] {
        match self {
            Self::Postgres => &["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"],
            Self::Mysql => &["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"],
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
        }
    }

    /// A server with the account and the entries.
    fn start(self) -> io::Result<Ledger> {
        match self {
            Self::Postgres => postgres::start(),
            Self::Mysql => mysql::start(),
        }
    }
}

type Statements = dyn Fn(&str) -> io::Result<String> + Sync;

/// A server with the tables `account(value)` and `entry(token, began)`, and its statements.
struct Ledger {
    address: SocketAddr,
    /// Ends every writer's connection.
    end: String,
    /// Counts the connections of writers.
    left: String,
    /// Selects the entries, with the time of each commit.
    entries: &'static str,
    /// Runs statements.
    sql: Box<Statements>,
}

impl Ledger {
    /// The number that a query returns.
    fn number(&self, sql: &str) -> io::Result<u64> {
        (self.sql)(sql)?.trim().parse().map_err(io::Error::other)
    }

    /// Ends every writer's connection, and counts the outcomes of the faults.
    fn count(&self, faults: usize) -> io::Result<Outcome> {
        // The last requests of a killed writer may still be on their way to a commit.
        (self.sql)(&self.end)?;
        wait_for("connections of writers end", || self.number(&self.left).is_ok_and(|count| count == 0))?;
        let entries = self.entries;
        Ok(Outcome {
            faults,
            sections: self.number("SELECT count(*) FROM entry")?,
            stale: self.number(&format!(
                "SELECT count(*) FROM (SELECT token, max(token) OVER (ORDER BY committed, token ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest FROM ({entries}) AS e) AS s WHERE token < highest"
            ))?,
            overlaps: self.number(&format!(
                "SELECT count(*) FROM (SELECT began, max(committed) OVER (ORDER BY began, token ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS last FROM ({entries}) AS e) AS s WHERE began < last"
            ))?,
            lost: self.number("SELECT abs((SELECT count(*) FROM entry) - (SELECT value FROM account))")?,
        })
    }
}

/// How writers make sure that they hold the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Check {
    /// The grant is part of the transaction.
    Hold,
    /// The guard is asked, right before each statement.
    Look,
}

/// The outcome of a drill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// How many faults the writers met.
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

/// Does this for each number on a thread of its own, and returns the first error.
pub fn on_threads(count: usize, work: impl Fn(usize) -> io::Result<()> + Sync) -> io::Result<()> {
    let work = &work;
    scope(|all| {
        let all: Vec<_> = (0..count).map(|number| all.spawn(move || work(number))).collect();
        all.into_iter().try_for_each(|one| one.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))))
    })
}

/// A drill of writers.
#[derive(Debug, Clone, Copy)]
pub struct Drill<'a> {
    /// The writer's program.
    pub program: &'a Path,
    /// The database.
    pub database: Database,
    /// How a writer makes sure that it holds the lock.
    pub check: Check,
    /// The isolation level of their transactions.
    pub level: &'a str,
    /// How many writers there are.
    pub writers: usize,
    /// How many faults there are, each of one writer.
    pub faults: usize,
    /// The seed that draws the faults and their writers.
    pub seed: u64,
}

impl Drill<'_> {
    /// Lets the writers write through all faults.
    pub fn run(&self) -> io::Result<Outcome> {
        let ledger = self.database.start()?;
        let done = AtomicUsize::new(0);
        on_threads(self.writers, |number| {
            self.hurt(&ledger, fastrand::Rng::with_seed(self.seed.wrapping_add(number as u64)), &done)
        })?;
        ledger.count(done.into_inner())
    }

    /// Runs a writer behind a proxy of its own, and stops, kills and cuts it off at random.
    fn hurt(&self, ledger: &Ledger, mut random: fastrand::Rng, done: &AtomicUsize) -> io::Result<()> {
        let proxy = Proxy::start(ledger.address)?;
        let start = || {
            let mut command: Command = bound(self.program);
            let check = if self.check == Check::Hold { "hold" } else { "look" };
            let way = proxy.address().to_string();
            command.args([self.database.word(), &way, check, self.level]).stdin(Stdio::null()).stdout(Stdio::null());
            Process::start(command)
        };
        let mut process = start()?;
        // On a busy machine, connecting alone can take longer than all the faults.
        let has_written = || ledger.number("SELECT count(*) FROM entry").is_ok_and(|count| count > 0);
        wait_for("a writer writes", has_written)?;
        while done.fetch_add(1, Ordering::Relaxed) < self.faults {
            sleep(Duration::from_millis(20 + random.u64(..300)));
            match random.u8(..4) {
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
        // A thread that counted a fault too many takes it back.
        done.fetch_sub(1, Ordering::Relaxed);
        process.kill()
    }
}

/// The arguments of a writer.
struct Writer {
    address: String,
    holds: bool,
    level: String,
}

/// A writer: `DATABASE ADDRESS hold|look LEVEL`. Writes until it is killed.
pub fn writer_main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [database, address, way, level] = arguments.as_slice() else { return ExitCode::FAILURE };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return ExitCode::FAILURE;
    };
    let writer = Writer { address: address.clone(), holds: way == "hold", level: level.clone() };
    runtime.block_on(async {
        loop {
            let written = match database == Database::Mysql.word() {
                true => mysql::write(&writer).await,
                false => postgres::write(&writer).await,
            };
            // After any failure: from the beginning.
            if written.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    })
}

/// How long a section lasts.
async fn pause(token: i64) {
    tokio::time::sleep(Duration::from_millis(u64::from(token as u8 % 16))).await;
}

pub(crate) type Fault = Box<dyn std::error::Error>;
