//! The ends of drills with failovers: nothing is left by clients that departed, and memory stays flat. `FENCELOCK_SOAK_MINUTES` makes the
//! drills longer.

use std::time::{Duration, Instant};

use fencelock_testbed::redis::{Reply, Server};

use super::lab::{client, soon, until};

/// By how much memory may grow in a soak, in KiB: allocators keep some of it.
const GROWTH: u64 = 4096;

/// A drill with at least `failovers` failovers, as long as the soak.
pub(crate) struct Soak {
    start: Instant,
    length: Duration,
    failovers: u32,
    at_least: u32,
    /// The memory after the first failovers.
    early: (u64, u64),
}

impl Soak {
    pub(crate) fn of(at_least: u32) -> Self {
        let minutes = std::env::var("FENCELOCK_SOAK_MINUTES").map_or(0, |minutes| minutes.parse().expect("a number"));
        Self { start: Instant::now(), length: Duration::from_secs(60 * minutes), failovers: 0, at_least, early: (0, 0) }
    }

    /// Counts a failover to `primary` that was ridden out.
    pub(crate) fn count(&mut self, primary: &Server) {
        self.failovers += 1;
        let memory = memory(primary);
        println!("failover {}: client {} KiB, primary {} KiB", self.failovers, memory.0, memory.1);
        if self.failovers == self.at_least {
            self.early = memory;
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.failovers >= self.at_least && self.start.elapsed() >= self.length
    }

    /// Judges the memory of this process and of `primary` at the end of a soak. In a short drill, other tests use the memory of this process.
    pub(crate) fn judge(self, primary: &Server) {
        let late = memory(primary);
        for (early, late, what) in [(self.early.0, late.0, "client"), (self.early.1, late.1, "primary")] {
            let is_flat = self.length.is_zero() || late <= early + GROWTH;
            assert!(is_flat, "the {what} had {early} KiB, and has {late} KiB after {} failovers", self.failovers);
        }
    }
}

/// The memory of this process and of a server, in KiB.
fn memory(server: &Server) -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let used = server.info("used_memory").unwrap();
    (resident.trim().trim_end_matches(" kB").parse().unwrap(), used.parse::<u64>().unwrap() / 1024)
}

/// Waits until no server has a session, a place or a subscription of clients that were closed. The next holder of each lock removes the
/// places of sessions that a failover ended.
pub(crate) async fn until_nothing_is_left(url: &str, names: &[&str], servers: &[Server]) {
    let last = client(url, 6000).await;
    for name in names {
        soon(last.mutex(*name).unwrap().acquire()).await.unwrap().release().await.unwrap();
    }
    soon(last.close()).await.unwrap();
    // A replica has what its primary has, and a node of a Cluster refers to the primary.
    for server in servers.iter().filter(|server| server.info("role").unwrap() == "master") {
        until("no session, no place and no subscription is left", async || left(server).is_empty()).await;
    }
}

fn left(server: &Server) -> Vec<String> {
    let list = |request: &[&str]| -> Vec<String> {
        server.ask(request).unwrap().items().iter().map(Reply::to_string).collect()
    };
    let mut left =
        [list(&["KEYS", "*:session:*"]), list(&["KEYS", "*:queue:*"]), list(&["PUBSUB", "CHANNELS", "*session*"])]
            .concat();
    for bucket in list(&["KEYS", "*:bucket"]) {
        // A bucket keeps its numbers, in fields that begin with a dot.
        left.extend(list(&["HKEYS", &bucket]).into_iter().filter(|field| !field.starts_with('.')));
    }
    left
}
