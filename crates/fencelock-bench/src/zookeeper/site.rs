//! The server that a run measures, the delay before it, and what it says of its clients.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use fencelock_testbed::zookeeper::{Ensemble, Settings};
use fencelock_testbed::{Proxy, wait_until};

use crate::crew::Target;
use crate::machine::{self, Cores};

/// How long bytes are held, each way.
const DELAY: Duration = Duration::from_millis(2);

/// ZooKeeper's default for `tickTime`.
const TICK_MS: u64 = 2000;

/// What is between a client and the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    Loopback,
    /// A proxy that holds bytes for [`DELAY`] each way.
    Delay,
}

impl Network {
    pub(crate) const ALL: [Self; 2] = [Self::Loopback, Self::Delay];

    /// As a table names it.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Delay => "2 ms each way",
        }
    }
}

/// What the server has received and sent on the connections of its sessions.
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

#[derive(Debug)]
pub(crate) struct Site {
    ensemble: Ensemble,
    proxy: Proxy,
    cores: Cores,
    made: AtomicU64,
}

impl Site {
    pub(crate) fn start(cores: Cores) -> Result<Self> {
        let java = [
            "-Xmx1g",
            // Empty containers stay for the run: their removal would meet whoever is measured just then.
            "-Dznode.container.checkIntervalMs=86400000",
        ];
        let settings = Settings { tick_ms: TICK_MS, java: java.map(str::to_owned).into(), ..Settings::default() };
        let ensemble = Ensemble::start(settings).context("no ZooKeeper")?;
        // Its threads keep to the second core, as the server does.
        let proxy = machine::pinned(&[cores.second], || Ok(Proxy::start(ensemble.server(0).address())?))?;
        let site = Self { ensemble, proxy, cores, made: AtomicU64::new(0) };
        site.is_alone(true)?;
        Ok(site)
    }

    /// What the server is, for the line that says what was measured.
    pub(crate) fn describe(&self) -> Result<String> {
        let words = self.ensemble.server(0).word("srvr").context("srvr")?;
        let version = words.split_once("version: ").map_or("?", |(_, rest)| rest);
        let version = version.split(['-', ',']).next().unwrap_or_default();
        Ok(format!("one ZooKeeper {version} with its defaults (every transaction is synced to the disk)"))
    }

    /// Whether the server keeps to the second core, so that a client can have the first for itself.
    pub(crate) fn is_alone(&self, alone: bool) -> Result<()> {
        let Cores { first, second, .. } = self.cores;
        let id = self.ensemble.server(0).process_id().context("the server is gone")?;
        let cores = [second, first];
        machine::pin_process(id, if alone { &cores[..1] } else { &cores })
    }

    /// A place that nobody has locked anything in.
    pub(crate) fn target(&self, network: Network) -> Target {
        let address = match network {
            Network::Loopback => self.ensemble.server(0).address(),
            Network::Delay => self.proxy.address(),
        };
        let parent = format!("/bench-{}", self.made.fetch_add(1, Ordering::Relaxed));
        Target { url: format!("zk://{address}{parent}?tick_ms={TICK_MS}"), file: parent.into() }
    }

    /// Whether the proxy delays; what is not measured need not wait.
    pub(crate) fn delays(&self, delays: bool) {
        self.proxy.delay(if delays { DELAY } else { Duration::ZERO });
    }

    /// Waits until the proxy has carried so many bytes more to the server, or until nothing comes any more.
    pub(crate) fn carries(&self, bytes: u64) {
        let (before, _) = self.proxy.bytes();
        wait_until(Duration::from_secs(20), || self.proxy.bytes().0 >= before + bytes);
    }

    /// What every session there is has sent and received so far.
    pub(crate) fn traffic(&self) -> Result<Traffic> {
        let connections = self.ensemble.server(0).word("cons").context("cons")?;
        // Those without a session only ask for such words.
        let sessions = connections.lines().filter(|line| line.contains("sid="));
        let mut traffic = Traffic { requests: 0, sent: 0 };
        for line in sessions {
            traffic.requests += field(line, "recved=").context("cons tells no recved")?;
            traffic.sent += field(line, "sent=").context("cons tells no sent")?;
        }
        Ok(traffic)
    }

    /// How many watches are set.
    pub(crate) fn watches(&self) -> Result<u64> {
        self.ensemble.server(0).monitor("zk_watch_count").context("mntr")
    }

    /// Waits until so many watches are set.
    pub(crate) fn has_watches(&self, count: u64) -> Result<()> {
        let mut fault = None;
        let reached = wait_until(Duration::from_secs(60), || {
            std::thread::sleep(Duration::from_millis(5));
            self.watches().map_err(|failed| fault = Some(failed)).is_ok_and(|watches| watches >= count)
        });
        fault.filter(|_| !reached).map_or(Ok(()), Err)?;
        ensure!(reached, "fewer than {count} watches are set");
        Ok(())
    }

    /// How many sessions watch nodes that are theirs, counted by node: the deletion of each of these tells its owner.
    pub(crate) fn own_watches(&self) -> Result<usize> {
        let server = self.ensemble.server(0);
        let (owned, watched) = (server.word("dump").context("dump")?, server.word("wchc").context("wchc")?);
        Ok(by_session(&owned).intersection(&by_session(&watched)).count())
    }

    /// Waits until nobody asks for anything: everybody has its place, and watches what it wants to watch.
    pub(crate) fn is_quiet(&self) -> Result<()> {
        let mut before = self.traffic()?;
        let mut fault = None;
        let quiet = wait_until(Duration::from_secs(20), || {
            // Two looks must be so far apart that a request and its answer fit between them, and what is put off by 20 ms.
            std::thread::sleep(Duration::from_millis(40));
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

/// Pairs of a session and a path, where each session has a line and each of its paths an indented one below.
fn by_session(words: &str) -> HashSet<(&str, &str)> {
    let mut session = "";
    let mut pairs = HashSet::new();
    for line in words.lines() {
        match line.strip_prefix('\t') {
            Some(path) if session.starts_with("0x") => {
                pairs.insert((session, path));
            }
            Some(_) => {}
            None => session = line.trim_end_matches(':'),
        }
    }
    pairs
}

fn field(line: &str, key: &str) -> Option<u64> {
    let (_, rest) = line.split_once(key)?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    rest[..digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_watches_what_is_read_alike_wherever_the_server_says_it() {
        let dump = "ephemeral nodes dump:\nSessions with Ephemerals (2):\n0x1a:\n\t/b/x\n0x1b:\n\t/b/y\nConnections dump:\n\tz\n";
        let watched = "0x1b\n\t/b/x\n\t/b/y\n";
        assert_eq!(by_session(dump), HashSet::from([("0x1a", "/b/x"), ("0x1b", "/b/y")]));
        assert_eq!(by_session(dump).intersection(&by_session(watched)).count(), 1);
    }

    #[test]
    fn what_a_connection_says_of_itself_is_read() {
        let line = " /127.0.0.1:40532[1](queued=0,recved=12,sent=15,sid=0x1000,lop=PING)";
        assert_eq!((field(line, "recved="), field(line, "sent="), field(line, "lost=")), (Some(12), Some(15), None));
        let traffic = |requests, sent| Traffic { requests, sent };
        assert_eq!(traffic(12, 15).since(traffic(2, 2)), (10.0, 3.0));
    }
}
