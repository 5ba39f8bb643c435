//! The store of a run, mostly a server of its own: the network to it, and its counters.

pub(crate) mod here;
pub(crate) mod mysql;
pub(crate) mod postgres;
pub(crate) mod redis;
pub(crate) mod zookeeper;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use fencelock_testbed::{Proxy, wait_until};

use crate::crew::Target;
use crate::machine::Cores;
use crate::what::Network;

/// How long bytes are held, each way.
const DELAY: Duration = Duration::from_millis(2);

/// Two looks must be so far apart that a request and its answer fit between them, and what is put off by 20 ms.
const BETWEEN_LOOKS: Duration = Duration::from_millis(40);

/// The cores that a server keeps to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// That of a client that is alone.
    First,
    /// The other one.
    Second,
    Any,
}

impl Kept {
    pub(crate) fn among(self, cores: Cores) -> Vec<usize> {
        match self {
            Self::First => vec![cores.first],
            Self::Second => vec![cores.second],
            Self::Any => vec![cores.first, cores.second],
        }
    }
}

/// What the server has received and sent on the connections of its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) requests: u64,
    /// Answers and notifications.
    pub(crate) sent: u64,
}

impl Traffic {
    /// Requests, and notifications, since `before`.
    pub(crate) fn since(self, before: Self) -> (f64, f64) {
        let (requests, sent) = (self.requests - before.requests, self.sent - before.sent);
        (requests as f64, sent as f64 - requests as f64)
    }
}

/// A program of the server's that has begun a transaction, and goes with this.
#[derive(Debug)]
pub(crate) struct OpenTransaction(std::process::Child);

impl OpenTransaction {
    /// Begins it by these statements, the last of which answers a line.
    fn begin(mut program: Command, statements: &str) -> Result<Self> {
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("no such program")?;
        let mut transaction = child.stdin.take().context("the program has no input")?;
        writeln!(transaction, "{statements}")?;
        transaction.flush()?;
        let mut began = String::new();
        BufReader::new(child.stdout.take().context("the program has no output")?).read_line(&mut began)?;
        child.stdin = Some(transaction);
        Ok(Self(child))
    }
}

impl Drop for OpenTransaction {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where a store is: a server and the proxy before it, or [this machine](here::Here).
pub(crate) trait Site {
    /// What the server is, for the line that says what was measured.
    fn describe(&self) -> Result<Option<String>>;

    /// What delays the way to each server; none where there is no server.
    fn proxies(&self) -> &[Proxy];

    /// The ways to it on which a scene is measured.
    fn networks(&self) -> &'static [Network] {
        &[Network::Loopback, Network::Delay]
    }

    /// Something that nobody has locked yet.
    fn target(&self, network: Network) -> Target;

    /// Lets the server keep to these cores.
    fn keep(&self, to: Kept) -> Result<()>;

    /// What it has received and sent so far.
    fn traffic(&self) -> Result<Traffic>;

    /// How many watches are set; none where there is no such thing.
    fn watches(&self) -> Result<u64> {
        Ok(0)
    }

    /// Waits until so many watches are set, where there is such a thing.
    fn has_watches(&self, _count: u64) -> Result<()> {
        Ok(())
    }

    /// How many sessions watch nodes that are theirs, counted by node: the deletion of each of these tells its owner.
    fn own_watches(&self) -> Result<usize> {
        Ok(0)
    }

    /// A transaction of somebody else that has seen what is there, and ends when it is dropped.
    fn open_transaction(&self) -> Result<OpenTransaction> {
        bail!("there are no transactions here")
    }

    /// How many requests it undid so far in favour of others, where it does so and counts them.
    fn undone(&self) -> Result<u64> {
        Ok(0)
    }

    /// Processor time of the server's processes so far, where a cycle is charged with it.
    fn processor_time(&self) -> Result<Option<Duration>> {
        Ok(None)
    }

    /// Whether the proxy delays; what is not measured need not wait.
    fn delays(&self, delays: bool) {
        for proxy in self.proxies() {
            proxy.delay(if delays { DELAY } else { Duration::ZERO });
        }
    }

    /// Waits until the first proxy has carried so many bytes more to the server, or until nothing comes any more.
    fn carries(&self, bytes: u64) {
        let [proxy, ..] = self.proxies() else { return };
        let (before, _) = proxy.bytes();
        wait_until(Duration::from_secs(20), || proxy.bytes().0 >= before + bytes);
    }

    /// Waits until nobody asks for anything: everybody has its place, and watches what it wants to watch.
    fn is_quiet(&self) -> Result<()> {
        let mut before = self.traffic()?;
        let mut fault = None;
        let quiet = wait_until(Duration::from_secs(20), || {
            std::thread::sleep(BETWEEN_LOOKS);
            match self.traffic() {
                Ok(now) => std::mem::replace(&mut before, now) == now,
                Err(failed) => {
                    fault = Some(failed);
                    true
                }
            }
        });
        ensure!(quiet, "the server does not come to rest");
        fault.map_or(Ok(()), Err)
    }
}
