//! fencelock as a driver: the same orders as the programs in `interop/`, but for the workloads, which the benchmark has
//! workers of its own for.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::ErrorKind as IoErrorKind;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use fencelock::{Client, ErrorKind, Guard};
use tokio::runtime::Runtime;

/// Takes orders until stdin ends. What follows a `?` in `servers` are options for the URL of the store.
pub(crate) fn serve(servers: &str, session_timeout_ms: u64) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    let ttl = Duration::from_millis(session_timeout_ms);
    let servers = servers.to_owned();
    let mut ours = Ours { runtime, ttl, servers, clients: HashMap::new(), held: HashMap::new(), handles: 0 };
    println!("ready");
    for line in std::io::stdin().lines() {
        let words = line?;
        let words: Vec<&str> = words.split(' ').collect();
        match ours.obey(&words) {
            Ok(answer) => println!("{answer}"),
            Err(fault) => println!("failed {}", format!("{fault:#}").replace('\n', " ")),
        }
    }
    Ok(())
}

struct Ours {
    runtime: Runtime,
    ttl: Duration,
    servers: String,
    /// By dialect and parent.
    clients: HashMap<(String, String), Client>,
    held: HashMap<u64, Guard>,
    handles: u64,
}

impl Ours {
    fn obey(&mut self, words: &[&str]) -> Result<String> {
        match *words {
            ["version"] => Ok(format!("done fencelock={}", env!("CARGO_PKG_VERSION"))),
            ["acquire", dialect, parent, name, wait_ms] => {
                match self.acquire(dialect, parent, name, wait_ms.parse().ok())? {
                    None => Ok("busy".to_owned()),
                    Some((handle, at)) => Ok(format!("done handle={handle} at={at}")),
                }
            }
            ["release", handle] => {
                let guard = self.held.remove(&handle.parse()?).context("no such handle")?;
                let at = now();
                self.runtime.block_on(guard.release())?;
                Ok(format!("done at={at}"))
            }
            ["end", handle] => {
                self.held.remove(&handle.parse()?);
                Ok("done".to_owned())
            }
            ["count", dialect, parent, name, turns, file] => {
                self.count((dialect, parent, name), turns.parse()?, file)?;
                Ok("done".to_owned())
            }
            _ => bail!("no such order: {}", words.join(" ")),
        }
    }

    /// A handle, and when we had the lock; nothing when time ran out. Without a time, however long it takes.
    fn acquire(&mut self, dialect: &str, parent: &str, name: &str, wait_ms: Option<u64>) -> Result<Option<(u64, u64)>> {
        let lock = self.client(dialect, parent)?.mutex(name)?.purpose("interop");
        let acquired = self.runtime.block_on(async {
            match wait_ms {
                None => lock.acquire().await,
                Some(limit) => lock.acquire_within(Duration::from_millis(limit)).await,
            }
        });
        let at = now();
        match acquired {
            Ok(guard) => {
                self.handles += 1;
                self.held.insert(self.handles, guard);
                Ok(Some((self.handles, at)))
            }
            Err(fault) if matches!(fault.kind(), ErrorKind::Busy | ErrorKind::TimedOut) => Ok(None),
            Err(fault) => Err(fault.into()),
        }
    }

    fn client(&mut self, dialect: &str, parent: &str) -> Result<Client> {
        let key = (dialect.to_owned(), parent.to_owned());
        if let Some(client) = self.clients.get(&key) {
            return Ok(client.clone());
        }
        let (servers, options) = self.servers.split_once('?').unwrap_or((&self.servers, ""));
        let url = format!("zk://{servers}{parent}?dialect={dialect}&{options}");
        let client = self.runtime.block_on(Client::builder().ttl(self.ttl).connect(url.trim_end_matches('&')))?;
        self.clients.insert(key, client.clone());
        Ok(client)
    }

    fn count(&mut self, (dialect, parent, name): (&str, &str, &str), turns: u64, file: &str) -> Result<()> {
        let lock = self.client(dialect, parent)?.mutex(name)?.purpose("interop");
        for _ in 0..turns {
            let guard = self.runtime.block_on(lock.acquire())?;
            add_one(file)?;
            self.runtime.block_on(guard.release())?;
        }
        Ok(())
    }
}

/// Loses counts, and says so, when two do it at once.
fn add_one(file: &str) -> Result<()> {
    let occupied = format!("{file}.occupied");
    match OpenOptions::new().write(true).create_new(true).open(&occupied) {
        Err(fault) if fault.kind() == IoErrorKind::AlreadyExists => bail!("two holders at once"),
        opened => drop(opened?),
    }
    let number: u64 = fs::read_to_string(file)?.trim().parse()?;
    // Whoever else believes to hold the lock gets its chance here.
    std::thread::sleep(Duration::from_millis(1));
    fs::write(file, (number + 1).to_string())?;
    Ok(fs::remove_file(occupied)?)
}

/// Nanoseconds on `CLOCK_MONOTONIC`, which all processes of a machine share.
pub(crate) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
