//! The store of a run, mostly a server of its own: the network to it, and its counters.

pub(crate) mod etcd;
pub(crate) mod here;
pub(crate) mod mysql;
pub(crate) mod postgres;
pub(crate) mod redis;
pub(crate) mod zookeeper;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use fencelock_testbed::{Server, wait_until};

use crate::crew::Target;
use crate::machine;

/// The pause between two looks. A request and its reply fit into the pause, and so does work that is delayed by 20 ms.
const BETWEEN_LOOKS: Duration = Duration::from_millis(40);

/// The messages of the server on the connections of its clients.
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

/// A client program of the server with an open transaction. The drop of this value ends the program.
#[derive(Debug)]
pub(crate) struct OpenTransaction(std::process::Child);

impl OpenTransaction {
    /// Begins the transaction by these statements, the last of which returns a line.
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
        // The program may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The place of a store: a server and the proxy before it, or [this machine](here::Here).
pub(crate) trait Site {
    /// The server and its version.
    fn describe(&self) -> Result<Option<String>> {
        Ok(None)
    }

    /// The servers, if there are any.
    fn servers(&self) -> Vec<&dyn Server> {
        Vec::new()
    }

    fn processes(&self) -> Vec<u32> {
        self.servers().into_iter().flat_map(Server::processes).collect()
    }

    /// The lock with the number `number`, on `servers`.
    fn target(&self, servers: &str, number: u64) -> Target;

    /// Lets the servers keep to these cores, with the threads and processes that they start later.
    fn keep(&self, cores: &[usize]) -> Result<()> {
        self.processes().into_iter().try_for_each(|id| {
            let pinned = machine::pin_process(id, cores);
            // Processes of PostgreSQL that clean up start and end.
            if Path::new(&format!("/proc/{id}")).exists() { pinned } else { Ok(()) }
        })
    }

    /// The messages of the servers so far.
    fn traffic(&self) -> Result<Traffic> {
        Ok(Traffic { requests: 0, sent: 0 })
    }

    /// How many watches are set; none on a server without watches.
    fn watches(&self) -> Result<u64> {
        Ok(0)
    }

    /// Waits until `count` watches are set, on a server with watches.
    fn has_watches(&self, _count: u64) -> Result<()> {
        Ok(())
    }

    /// How many nodes are watched by the sessions that own them: the deletion of each notifies its owner.
    fn own_watches(&self) -> Result<usize> {
        Ok(0)
    }

    /// A transaction of another program that has read the database, and ends when it is dropped.
    fn open_transaction(&self) -> Result<OpenTransaction> {
        bail!("there are no transactions here")
    }

    /// The number of requests that the server rolled back because of a deadlock, if the server counts them.
    fn undone(&self) -> Result<u64> {
        Ok(0)
    }

    /// Processor time of the servers' processes so far. The time of a process that ends between two looks is missed; measured connections
    /// do not end.
    fn processor_time(&self) -> Duration {
        self.processes().into_iter().map(|id| machine::threads_time(id).unwrap_or_default()).sum()
    }

    /// Waits until no client sends a request: every waiter has its place and its watches.
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
