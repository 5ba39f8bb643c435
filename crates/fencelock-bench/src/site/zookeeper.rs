//! A ZooKeeper server of the run.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use fencelock_testbed::wait_until;
use fencelock_testbed::zookeeper::{Ensemble, Settings};

use super::{Site, Traffic};
use crate::crew::Target;

/// ZooKeeper's default for `tickTime`.
const TICK_MS: u64 = 2000;

#[derive(Debug)]
pub(crate) struct ZooKeeper {
    ensemble: Ensemble,
}

impl ZooKeeper {
    pub(crate) fn start() -> Result<Self> {
        let java = [
            "-Xmx1g",
            // Empty containers stay for the run: their removal would disturb the measured contestant.
            "-Dznode.container.checkIntervalMs=86400000",
        ];
        let settings = Settings { tick_ms: TICK_MS, java: java.map(str::to_owned).into(), ..Settings::default() };
        let ensemble = Ensemble::start(settings).context("no ZooKeeper")?;
        Ok(Self { ensemble })
    }
}

impl Site for ZooKeeper {
    fn servers(&self) -> Vec<&dyn fencelock_testbed::Server> {
        vec![self.ensemble.server(0)]
    }

    fn describe(&self) -> Result<Option<String>> {
        let words = self.ensemble.server(0).word("srvr").context("srvr")?;
        let version = words.split_once("version: ").map_or("?", |(_, rest)| rest);
        let version = version.split(['-', ',']).next().unwrap_or_default();
        Ok(Some(format!(
            "ZooKeeper {version}, a single server with its defaults (every transaction is synced to the disk)"
        )))
    }

    fn target(&self, servers: &str, number: u64) -> Target {
        let parent = format!("/bench-{number}");
        Target { url: format!("zk://{servers}{parent}?tick_ms={TICK_MS}"), file: parent.into() }
    }

    fn traffic(&self) -> Result<Traffic> {
        let connections = self.ensemble.server(0).word("cons").context("cons")?;
        // Connections without a session ask for such words only.
        let sessions = connections.lines().filter(|line| line.contains("sid="));
        let mut traffic = Traffic { requests: 0, sent: 0 };
        for line in sessions {
            traffic.requests += field(line, "recved=").context("cons tells no recved")?;
            traffic.sent += field(line, "sent=").context("cons tells no sent")?;
        }
        Ok(traffic)
    }

    fn watches(&self) -> Result<u64> {
        self.ensemble.server(0).monitor("zk_watch_count").context("mntr")
    }

    fn has_watches(&self, count: u64) -> Result<()> {
        let mut fault = None;
        let reached = wait_until(Duration::from_secs(60), || {
            std::thread::sleep(Duration::from_millis(5));
            self.watches().map_err(|failed| fault = Some(failed)).is_ok_and(|watches| watches >= count)
        });
        fault.filter(|_| !reached).map_or(Ok(()), Err)?;
        ensure!(reached, "fewer than {count} watches are set");
        Ok(())
    }

    fn own_watches(&self) -> Result<usize> {
        let server = self.ensemble.server(0);
        let (owned, watched) = (server.word("dump").context("dump")?, server.word("wchc").context("wchc")?);
        Ok(by_session(&owned).intersection(&by_session(&watched)).count())
    }
}

/// Pairs of a session and a path: each session is a line, and each of its paths an indented line below.
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
    fn watchers_are_read_alike_from_every_form_of_the_answer() {
        let dump = "ephemeral nodes dump:\nSessions with Ephemerals (2):\n0x1a:\n\t/b/x\n0x1b:\n\t/b/y\nConnections dump:\n\tz\n";
        let watched = "0x1b\n\t/b/x\n\t/b/y\n";
        assert_eq!(by_session(dump), HashSet::from([("0x1a", "/b/x"), ("0x1b", "/b/y")]));
        assert_eq!(by_session(dump).intersection(&by_session(watched)).count(), 1);
    }

    #[test]
    fn the_description_of_a_connection_is_read() {
        let line = " /127.0.0.1:40532[1](queued=0,recved=12,sent=15,sid=0x1000,lop=PING)";
        assert_eq!((field(line, "recved="), field(line, "sent="), field(line, "lost=")), (Some(12), Some(15), None));
        let traffic = |requests, sent| Traffic { requests, sent };
        assert_eq!(traffic(12, 15).since(traffic(2, 2)), (10.0, 3.0));
    }
}
