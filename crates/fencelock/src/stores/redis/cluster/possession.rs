//! The proof that a slot moved to another node with all its keys.
//!
//! A node that gives a slot away has moved all keys before, and still owns other slots. A promoted replica takes all slots of its primary. So
//! nothing is lost if the new owner's own `CLUSTER SLOTS` names the last owner as an owner, and the new owner has run since before the last
//! owner's last answer and was not promoted from its stream. For the layout, every other node is another server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redis::{RedisError, RedisResult, Value};

use super::nodes::{ClusterSlot, Ownership};
use crate::error::Result;
use crate::kit::address::HostPort;
use crate::stores::redis::wire::{Address, Config, Connection, Era, Server, is_same_era};
use crate::sync::Mutex;
use crate::time::{Clock, Moment};

/// The owner of one slot, as one link has seen it.
#[derive(Debug, Default)]
pub(super) struct Custody {
    last: Mutex<Option<LastOwner>>,
    /// The node to dial next, for one try.
    pub(super) hint: Mutex<Option<HostPort>>,
    /// The time of sending of the newest request that an owner has served.
    served: AtomicU64,
}

#[derive(Debug)]
struct LastOwner {
    node: HostPort,
    era: Era,
    /// The node's replication stream. A replica that is promoted in its place has the same one.
    stream: Option<String>,
    /// The era that the layout believes the slot to be in.
    known_by: Era,
}

/// A connection to the node that has a slot.
pub(crate) struct Possession {
    slot: ClusterSlot,
    node: HostPort,
    pub(crate) clock: Arc<dyn Clock>,
    /// Whether the node is known, so that its answers count.
    has_arrived: AtomicBool,
}

impl Possession {
    /// Returns `None` for a server that is no node of a Cluster.
    pub(crate) fn of(config: &Config, clock: &Arc<dyn Clock>) -> Option<Self> {
        let (Some(slot), Address::Tcp(node)) = (&config.slot, &config.address) else { return None };
        let (clock, has_arrived) = (Arc::clone(clock), AtomicBool::default());
        Some(Self { slot: slot.clone(), node: node.clone(), clock, has_arrived })
    }

    /// The server of a new connection, as the layout should see it. A node of a Cluster must serve `key`, a key of the slot: a node that
    /// was named by mistake would count as another era. A reader has no key, and needs no era.
    pub(crate) async fn arrived(connection: &Connection, key: Option<String>, server: Server) -> Result<Server> {
        let Some((possession, key)) = connection.possession.as_ref().zip(key) else { return Ok(server) };
        connection.command("connect", redis::cmd("EXISTS").arg(key)).await?;
        let slots = connection.command("connect", redis::cmd("CLUSTER").arg("SLOTS")).await?;
        Ok(possession.of_era(server, &Ownership::read(vec![Value::Nil, slots], &possession.node)))
    }

    /// The node, shown in the era that the layout believes in if the node's own `view` proves that the slot moved here whole.
    fn of_era(&self, mut server: Server, view: &Ownership) -> Server {
        let Some(era) = server.era() else { return server };
        let mut last = self.slot.custody.last.lock();
        let is_known = |last: &&LastOwner| is_same_era(&last.era, &era) || self.is_whole(last, &server, view);
        let known_by = last.as_ref().filter(is_known).map_or_else(|| era.clone(), |last| last.known_by.clone());
        (server.run_id, server.promoted_from) = (Some(known_by.0.clone()), known_by.1.clone());
        *last = Some(LastOwner { node: self.node.clone(), era, stream: server.replication.clone(), known_by });
        self.has_arrived.store(true, Ordering::Relaxed);
        server
    }

    /// Whether this node, which is `server`, received the slot from the last owner and did not replace that owner.
    fn is_whole(&self, last: &LastOwner, server: &Server, view: &Ownership) -> bool {
        let owns = |(_, owner): &(_, HostPort)| self.slot.nodes.dialled(owner) == last.node;
        let is_promoted = last.stream.is_none() || server.promoted_from == last.stream;
        let served = Moment::from_nanos(self.slot.custody.served.load(Ordering::Relaxed));
        let is_another = self.node != last.node && view.owners.iter().any(owns);
        is_another && !is_promoted && server.ran_before(self.clock.now().since(served))
    }

    /// Notes when the node served the slot, or where the slot has gone, which ends the connection. An answer that is no error says that the
    /// node has the slot.
    pub(crate) fn answered(&self, connection: &Connection, sent: Moment, answer: &RedisResult<Value>) {
        if let Some((host, port)) = answer.as_ref().err().and_then(moved_to) {
            let host = if matches!(host, "" | "?") { &self.node.host } else { host };
            *self.slot.custody.hint.lock() = Some(HostPort { host: host.to_owned(), port });
            connection.end();
        } else if answer.is_ok() && self.has_arrived.load(Ordering::Relaxed) {
            self.slot.custody.served.fetch_max(sent.as_nanos(), Ordering::Relaxed);
        }
    }
}

/// The host and port of the slot's owner, from another node's answer. An empty host is that node's own.
fn moved_to(error: &RedisError) -> Option<(&str, u16)> {
    let said = error.detail().filter(|_| error.code() == Some("MOVED"))?;
    let (host, port) = said.split_whitespace().nth(1)?.rsplit_once(':')?;
    Some((host, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::url;
    use super::*;
    use crate::store::StoreUrl;
    use crate::stores::memory::VirtualClock;

    /// A link that was connected to the node `a`, which served the slot.
    struct Lab(Config, VirtualClock);

    impl Lab {
        fn new() -> Self {
            let url = StoreUrl::parse("redis+cluster://a").unwrap();
            let Address::Nodes(nodes) = url::config(url).unwrap().address else { unreachable!() };
            let slot = |nodes| Address::Owner(ClusterSlot { nodes, number: 0, custody: Arc::default() });
            let lab = Self(nodes.way_to(slot, 0), VirtualClock::new());
            assert_eq!(lab.arrives("a", "", &["a"]), "a");
            lab
        }

        /// The `run_id` that the layout sees at this node, which serves the slot and names these owners.
        fn arrives(&self, node: &str, promoted_from: &str, owners: &[&str]) -> String {
            let config = self.0.at(named(node));
            let possession = Possession::of(&config, &(Arc::new(self.1.clone()) as Arc<dyn Clock>)).unwrap();
            let mut view = Ownership::default();
            view.owners.extend(owners.iter().map(|owner| (0..=1, named(owner))));
            possession.of_era(server(node, promoted_from), &view).run_id.unwrap()
        }
    }

    fn named(node: &str) -> HostPort {
        HostPort { host: node.to_owned(), port: 6379 }
    }

    /// A node that has run for an hour.
    fn server(node: &str, promoted_from: &str) -> Server {
        let info = format!(
            "run_id:{node}\r\nmaster_replid:{node}1\r\nmaster_replid2:{promoted_from}\r\nuptime_in_seconds:3600\r\n"
        );
        Server::answered(Value::BulkString(info.into_bytes()))
    }

    #[test]
    fn a_slot_that_moves_keeps_its_era_as_long_as_each_owner_names_the_last_one() {
        let lab = Lab::new();
        assert_eq!(lab.arrives("b", "", &["a", "b"]), "a");
        assert_eq!(lab.arrives("c", "x1", &["c", "b"]), "a");
        assert_eq!(lab.arrives("c", "x1", &["c"]), "a");
        assert_eq!(lab.arrives("a", "", &["a", "c"]), "a");
    }

    #[test]
    fn a_last_owner_without_slots_is_another_era() {
        assert_eq!(Lab::new().arrives("b", "", &["b", "c"]), "b");
    }

    #[test]
    fn a_promoted_replica_of_the_last_owner_is_another_era_for_any_owners_of_slots() {
        let lab = Lab::new();
        assert_eq!(lab.arrives("b", "a1", &["a", "b"]), "b");
        assert_eq!(lab.arrives("c", "b1", &["b", "c"]), "c");
    }

    #[test]
    fn a_last_owner_that_was_promoted_anew_is_another_era() {
        let lab = Lab::new();
        lab.arrives("a", "b1", &["a"]);
        let era = lab.0.at(named("a"));
        let possession = Possession::of(&era, &(Arc::new(lab.1.clone()) as Arc<dyn Clock>)).unwrap();
        assert_eq!(possession.slot.custody.last.lock().as_ref().unwrap().known_by.1.as_deref(), Some("b1"));
    }

    #[test]
    fn a_node_that_was_started_since_the_last_answer_is_another_era() {
        let lab = Lab::new();
        lab.1.advance(Duration::from_secs(3600));
        assert_eq!(lab.arrives("b", "", &["a", "b"]), "b");
    }
}
