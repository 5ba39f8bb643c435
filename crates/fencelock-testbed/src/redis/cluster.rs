//! A Cluster: three primaries that share the slots, and a replica of each.

use std::io;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::hands::Reply;
use super::server::Server;
use super::settings::{Role, Settings};
use crate::process::Process;
use crate::wait_for;

const PRIMARIES: usize = 3;
const SLOTS: usize = 16_384;

/// A Redis Cluster.
#[derive(Debug)]
pub struct Cluster {
    /// The nodes: at first three primaries, then the replica of each in the same order.
    pub nodes: Vec<Server>,
}

impl Cluster {
    /// Starts a Cluster of nodes with these settings, with replicas or without, and waits until every node knows all slots. The other nodes
    /// give a node up that is silent for `timeout_ms`.
    ///
    /// # Panics
    /// When Redis is not installed, with the command that installs it.
    pub fn start(with_replicas: bool, timeout_ms: u32, settings: &Settings) -> io::Result<Self> {
        let count = if with_replicas { 2 * PRIMARIES } else { PRIMARIES };
        let settings = Settings { role: Role::ClusterMember, ..settings.clone() };
        let settings = settings.with(&format!("cluster-node-timeout {timeout_ms}"));
        let nodes = (0..count).map(|_| Server::start(settings.clone())).collect::<io::Result<Vec<_>>>()?;
        let cluster = Self { nodes };
        for (index, node) in cluster.nodes.iter().enumerate() {
            if index < PRIMARIES {
                let slots = index * SLOTS / PRIMARIES..(index + 1) * SLOTS / PRIMARIES;
                let slots: Vec<_> = slots.map(|slot| slot.to_string()).collect();
                node.ask(
                    &["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str)).collect::<Vec<_>>(),
                )?;
                node.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()])?;
            }
            let bus = node.bus().map(|bus| bus.to_string()).unwrap_or_default();
            let address = [node.address().ip().to_string(), node.address().port().to_string()];
            let meet = ["CLUSTER", "MEET", &address[0], &address[1], &bus];
            cluster.nodes[0].ask(&meet[..if bus.is_empty() { 4 } else { 5 }])?;
        }
        let knows_all =
            |node: &Server| info(node, "cluster_known_nodes").is_some_and(|known| known == count.to_string());
        wait_for("the nodes know each other", || cluster.nodes.iter().all(knows_all))?;
        for (replica, primary) in cluster.nodes[PRIMARIES..].iter().zip(&cluster.nodes) {
            let id = primary.ask(&["CLUSTER", "MYID"])?.to_string();
            // The replica refuses the command until it knows the primary by this id.
            wait_for("a node becomes a replica", || replica.ask(&["CLUSTER", "REPLICATE", &id]).is_ok())?;
        }
        cluster.wait_until_whole()?;
        Ok(cluster)
    }

    /// Waits until every node that runs knows an owner of each slot, and every replica that runs is in sync.
    pub fn wait_until_whole(&self) -> io::Result<()> {
        let is_whole = |node: &Server| {
            let is_ok = info(node, "cluster_state").is_some_and(|state| state == "ok");
            is_ok && node.info("master_link_status").map_or(true, |status| status == "up")
        };
        let running = || self.nodes.iter().filter(|node| node.is_running());
        wait_for("the Cluster is whole", || running().all(is_whole))?;
        // A primary counts its replicas only once they are in sync.
        let replicas = running().filter(|node| node.info("role").is_ok_and(|role| role == "slave")).count();
        let counted =
            || running().filter_map(|node| node.info("connected_slaves").ok()?.parse::<usize>().ok()).sum::<usize>();
        wait_for("the primaries have their replicas", || counted() >= replicas)
    }

    /// The URL of a store, with these options.
    #[must_use]
    pub fn url(&self, options: &str) -> String {
        let nodes: Vec<_> = self.nodes.iter().map(|node| node.address().to_string()).collect();
        let query = if options.is_empty() { String::new() } else { format!("?{options}") };
        format!("redis+cluster://{}{query}", nodes.join(","))
    }

    /// A prefix of keys that no other test of this process uses.
    #[must_use]
    pub fn prefix(&self) -> String {
        static DRAWN: AtomicU32 = AtomicU32::new(0);
        format!("t{}", DRAWN.fetch_add(1, Ordering::Relaxed))
    }

    /// The node that serves a slot, by the vote of the nodes that answer.
    pub fn owner(&self, slot: u16) -> io::Result<&Server> {
        // A node that stands still accepts the connection, and would hold up its asker for 20 s.
        let asked = self.nodes.iter().filter(|node| !is_stopped(node));
        let named: Vec<SocketAddr> = asked.filter_map(|node| owner_by(node, slot).ok()).collect();
        let votes = |address: &SocketAddr| named.iter().filter(|other| *other == address).count();
        let by_most = named.iter().max_by_key(|address| votes(address));
        let owner = by_most.and_then(|address| self.nodes.iter().find(|node| node.address() == *address));
        owner.ok_or_else(|| io::Error::other(format!("no node names the owner of slot {slot}")))
    }

    /// The slot of a key.
    pub fn slot(&self, key: &str) -> io::Result<u16> {
        let node = self.nodes.iter().find(|node| node.is_running()).ok_or_else(|| io::Error::other("no node runs"))?;
        node.ask(&["CLUSTER", "KEYSLOT", key])?.to_string().parse().map_err(io::Error::other)
    }

    /// The slots in which there are keys that begin with `prefix`.
    pub fn slots_in_use(&self, prefix: &str) -> io::Result<Vec<u16>> {
        let mut slots = Vec::new();
        for node in self.nodes.iter().filter(|node| node.is_running()) {
            for key in node.ask(&["KEYS", &format!("{prefix}*")])?.items() {
                slots.push(self.slot(&key.to_string())?);
            }
        }
        slots.sort_unstable();
        slots.dedup();
        Ok(slots)
    }

    /// Moves a slot with all its keys to another primary, as `redis-cli --cluster reshard` does.
    pub fn move_slot(&self, slot: u16, to: &Server) -> io::Result<()> {
        let from = self.owner(slot)?;
        let (slot, to_address) = (slot.to_string(), to.address());
        let (to_id, from_id) = (to.ask(&["CLUSTER", "MYID"])?.to_string(), from.ask(&["CLUSTER", "MYID"])?.to_string());
        to.ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id])?;
        from.ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id])?;
        loop {
            let keys = from.ask(&["CLUSTER", "GETKEYSINSLOT", &slot, "10"])?;
            let keys: Vec<String> = keys.items().iter().map(ToString::to_string).collect();
            if keys.is_empty() {
                break;
            }
            let (host, port) = (to_address.ip().to_string(), to_address.port().to_string());
            let migrate = ["MIGRATE", &host, &port, "", "0", "5000", "KEYS"];
            from.ask(&migrate.into_iter().chain(keys.iter().map(String::as_str)).collect::<Vec<_>>())?;
        }
        for node in [to, from] {
            node.ask(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id])?;
        }
        // A node that does not know the newest epoch takes the next slot with an older one, loses the slot again, and deletes the keys.
        let epoch = |node: &Server| info(node, "cluster_current_epoch");
        let knows = |node: &Server| {
            slot.parse().is_ok_and(|slot| owner_by(node, slot).is_ok_and(|owner| owner == to_address))
                && epoch(node) == epoch(to)
        };
        let running = self.nodes.iter().filter(|node| node.is_running() && !is_stopped(node));
        wait_for("the nodes know the new owner", || running.clone().all(knows))
    }

    /// Waits until another node than `old` serves this slot.
    pub fn wait_until_replaced(&self, slot: u16, old: SocketAddr) -> io::Result<()> {
        let is_replaced = || {
            let owner = self.owner(slot).ok().filter(|owner| owner.address() != old);
            owner.is_some_and(|owner| {
                owner.info("role").is_ok_and(|role| role == "master")
                    && info(owner, "cluster_state").is_some_and(|state| state == "ok")
            })
        };
        wait_for("a replica is promoted", is_replaced)
    }
}

/// The Cluster that all tests of a process share. No test may break it or move its slots.
pub fn shared_cluster() -> &'static Cluster {
    static SHARED: OnceLock<Cluster> = OnceLock::new();
    SHARED.get_or_init(|| Cluster::start(true, 60_000, &Settings::default()).expect("a Cluster"))
}

/// Whether the process of a node was paused.
fn is_stopped(node: &Server) -> bool {
    let id = node.process().as_ref().map(Process::id);
    let stat = id.and_then(|id| std::fs::read_to_string(format!("/proc/{id}/stat")).ok());
    stat.is_some_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T')))
}

/// A value of `CLUSTER INFO`.
fn info(node: &Server, key: &str) -> Option<String> {
    let info = node.ask(&["CLUSTER", "INFO"]).ok()?.to_string();
    let value = info.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    Some(value.trim().to_owned())
}

fn owner_by(node: &Server, slot: u16) -> io::Result<SocketAddr> {
    let number = |reply: &Reply| reply.to_string().parse::<u16>().unwrap_or(u16::MAX);
    let ranges = node.ask(&["CLUSTER", "SLOTS"])?;
    let range = ranges.items().iter().find(|range| {
        let range = range.items();
        range.len() > 2 && (number(&range[0])..=number(&range[1])).contains(&slot)
    });
    let owner = range.map(|range| range.items()[2].items()).unwrap_or_default();
    let [host, port, ..] = owner else { return Err(io::Error::other("no owner")) };
    format!("{host}:{port}").parse().map_err(io::Error::other)
}
