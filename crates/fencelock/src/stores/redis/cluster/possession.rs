//! Whether a slot came to another node whole.
//!
//! A node that gives a slot away moves all keys before. Nothing is lost where the last owner says that the slot is another node's now, and is
//! the same primary as before by its own word. A replica that was promoted in the owner's place shows none of this: for the layout it is
//! another server. A session whose connection ended while its slot moved asks the last owner, before it believes a new one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{RedisError, RedisResult, Value};

use super::nodes::ClusterSlot;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::address::HostPort;
use crate::stores::redis::wire::{Address, Config, Connection, Era, Server, is_same_era};
use crate::time::{Clock, Moment};

/// How often the last owner is asked about another node that serves the slot. Without its answer that node counts as another server.
const TRIES: u8 = 2;

/// The chain of owners of one slot, as one link has seen it.
#[derive(Debug, Default)]
pub(super) struct Custody {
    chain: Mutex<Chain>,
    /// When the newest request was sent that an owner has served.
    served: AtomicU64,
}

#[derive(Debug, Default)]
struct Chain {
    last: Option<LastOwner>,
    /// The address of the node to which the last owner gave the slot, and when an owner served the slot last.
    given: Option<(HostPort, Moment)>,
    /// The node to dial next, for one try.
    hint: Option<HostPort>,
    /// How often the last owner was asked since it served the slot.
    tries: u8,
}

#[derive(Debug)]
struct LastOwner {
    node: HostPort,
    era: Era,
    /// Its stream of changes, which a replica has that is promoted in its place.
    stream: Option<String>,
    /// The era that the layout knows the slot by.
    known_by: Era,
}

impl Custody {
    fn lock(&self) -> MutexGuard<'_, Chain> {
        self.chain.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn take_hint(&self) -> Option<HostPort> {
        self.lock().hint.take()
    }
}

/// A connection to the node that has a slot.
pub(crate) struct Possession {
    slot: ClusterSlot,
    node: HostPort,
    clock: Arc<dyn Clock>,
    /// Whether the node is known, so that its answers count.
    has_arrived: AtomicBool,
    /// The turn of the caller that asks what became of the slot.
    turn: tokio::sync::Mutex<()>,
}

impl Possession {
    /// Returns `None` for a server that is no node of a Cluster.
    pub(crate) fn of(config: &Config, clock: &Arc<dyn Clock>) -> Option<Self> {
        let (Some(slot), Address::Tcp(node)) = (&config.slot, &config.address) else { return None };
        let (clock, has_arrived, turn) = (Arc::clone(clock), AtomicBool::default(), Default::default());
        Some(Self { slot: slot.clone(), node: node.clone(), clock, has_arrived, turn })
    }

    /// The server of a new connection as the layout is to see it. A node of a Cluster has to serve `key`, a key of the slot; a node that was
    /// named by mistake would be another era. A reader has no such key, and no use for eras.
    pub(crate) async fn arrived(connection: &Connection, key: Option<String>, server: Server) -> Result<Server> {
        let Some((possession, key)) = connection.possession.as_ref().zip(key) else { return Ok(server) };
        connection.command("connect", redis::cmd("EXISTS").arg(key)).await?;
        possession.of_era(server)
    }

    /// The node with the era that the layout knows the slot by, if the last owner gave the slot to this node. Returns an error as long as the
    /// last owner may still say so.
    fn of_era(&self, mut server: Server) -> Result<Server> {
        let Some(era) = server.era() else { return Ok(server) };
        let chain = &mut *self.slot.custody.lock();
        let known_by = match &chain.last {
            None => era.clone(),
            Some(last) => {
                let is_promoted = last.stream.is_none() || era.1 == last.stream;
                let is_whole = match &chain.given {
                    Some((node, at)) if *node == self.node => {
                        !is_promoted && server.ran_before(self.clock.now().since(*at))
                    }
                    _ if is_same_era(&last.era, &era) => true,
                    _ if is_promoted || chain.tries == TRIES => false,
                    given => {
                        chain.tries += 1;
                        chain.hint = Some(given.as_ref().map_or(&last.node, |(node, _)| node).clone());
                        let message = "the last owner of the slot is asked whether it gave the slot away";
                        return Err(Error::new(ErrorKind::Unreachable, "connect", message).retryable());
                    }
                };
                if is_whole { last.known_by.clone() } else { era.clone() }
            }
        };
        (server.run_id, server.promoted_from) = (Some(known_by.0.clone()), known_by.1.clone());
        let last = LastOwner { node: self.node.clone(), era, stream: server.replication.clone(), known_by };
        *chain = Chain { last: Some(last), ..Chain::default() };
        self.has_arrived.store(true, Ordering::Relaxed);
        Ok(server)
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Notes when the node served the slot, or where the slot has gone. An answer that is no error says that the node has the slot.
    pub(crate) async fn answered(&self, connection: &Connection, sent: Moment, answer: &RedisResult<Value>) {
        if let Some(owner) = answer.as_ref().err().and_then(moved_to) {
            self.lost(connection, owner).await;
        } else if answer.is_ok() && self.has_arrived.load(Ordering::Relaxed) {
            self.slot.custody.served.fetch_max(sent.as_nanos(), Ordering::Relaxed);
        }
    }

    /// The node says that another one has the slot. Asks whether the node is the same primary still, and ends the connection.
    async fn lost(&self, connection: &Connection, (host, port): (&str, u16)) {
        let _turn = self.turn.lock().await;
        if !connection.is_alive() {
            return;
        }
        let host = if matches!(host, "" | "?") { &self.node.host } else { host };
        let owner = HostPort { host: host.to_owned(), port };
        let served = Moment::from_nanos(self.slot.custody.served.load(Ordering::Relaxed));
        // Without an answer the node is asked again, on another connection.
        if let Ok(info) = connection.exchange(&redis::cmd("INFO")).await {
            let server = Server::answered(info);
            if server.is_replica() {
                self.slot.custody.lock().hint = Some(owner);
                return connection.is_a_replica();
            }
            self.gave(&server, owner, served);
        }
        connection.end();
    }

    /// Notes that this node, which is `server`, names another owner. Only the last owner's answer is a proof.
    fn gave(&self, server: &Server, owner: HostPort, served: Moment) {
        // The slot left its new owner before the session had arrived there.
        if self.slot.custody.lock().given.as_ref().is_some_and(|(node, _)| *node == self.node) {
            let _ = self.of_era(server.clone());
        }
        let chain = &mut *self.slot.custody.lock();
        let last = chain.last.as_mut().zip(server.era()).filter(|(last, now)| is_same_era(&last.era, now));
        if let Some((last, _)) = last {
            last.stream.clone_from(&server.replication);
            chain.given = Some((self.slot.nodes.dialled(&owner), served));
        }
        chain.hint = Some(owner);
    }
}

/// The node that serves the slot of a request, as another node says: its host, which is empty for the same one, and its port.
fn moved_to(error: &RedisError) -> Option<(&str, u16)> {
    let said = error.detail().filter(|_| error.code() == Some("MOVED"))?;
    let (host, port) = said.split_whitespace().nth(1)?.rsplit_once(':')?;
    Some((host, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::url;
    use super::*;
    use crate::store::StoreUrl;
    use crate::stores::memory::VirtualClock;

    /// A link that was connected to the node `a`, which served the slot.
    struct Lab(Arc<Config>);

    impl Lab {
        fn new() -> Self {
            let (nodes, ..) = url::read(StoreUrl::parse("redis+cluster://a").unwrap()).unwrap();
            let lab = Self(Arc::new(Arc::new(nodes).way_to(0, 0)).of_one_link());
            lab.arrives("a", "").unwrap();
            lab
        }

        fn at(&self, node: &str) -> Possession {
            let config = self.0.at(named(node));
            Possession::of(&config, &(Arc::new(VirtualClock::new()) as Arc<dyn Clock>)).unwrap()
        }

        /// The `run_id` that the layout sees at this node, which serves the slot.
        fn arrives(&self, node: &str, promoted_from: &str) -> Result<Option<String>> {
            self.at(node).of_era(server(node, promoted_from)).map(|server| server.run_id)
        }

        fn names(&self, node: &str, owner: &str) {
            self.at(node).gave(&server(node, ""), named(owner), Moment::ORIGIN);
        }

        fn next(&self) -> Option<HostPort> {
            self.at("a").slot.custody.take_hint()
        }
    }

    fn named(node: &str) -> HostPort {
        HostPort { host: node.to_owned(), port: 6379 }
    }

    fn server(node: &str, promoted_from: &str) -> Server {
        let info = format!(
            "run_id:{node}\r\nmaster_replid:{node}1\r\nmaster_replid2:{promoted_from}\r\nuptime_in_seconds:9000\r\n"
        );
        Server::answered(Value::BulkString(info.into_bytes()))
    }

    fn seen(node: &str) -> Option<String> {
        Some(node.to_owned())
    }

    #[test]
    fn an_unknown_node_counts_once_the_last_owner_says_that_it_gave_the_slot_away() {
        let lab = Lab::new();
        assert!(lab.arrives("b", "").unwrap_err().is_retryable());
        assert_eq!(lab.next(), Some(named("a")));
        lab.names("a", "b");
        assert_eq!(lab.arrives("b", "").unwrap(), seen("a"));
        assert_eq!(lab.arrives("b", "").unwrap(), seen("a"));
    }

    #[test]
    fn a_last_owner_that_says_nothing_is_another_era() {
        let lab = Lab::new();
        (0..TRIES).for_each(|_| drop(lab.arrives("b", "").unwrap_err()));
        assert_eq!(lab.arrives("b", "").unwrap(), seen("b"));
    }

    #[test]
    fn a_replica_of_the_last_owner_that_was_promoted_is_another_era_at_once() {
        let lab = Lab::new();
        assert_eq!(lab.arrives("b", "a1").unwrap(), seen("b"));
        lab.names("b", "c");
        assert_eq!(lab.arrives("c", "b1").unwrap(), seen("c"));
    }

    #[test]
    fn the_word_of_another_node_neither_proves_nor_disproves_anything() {
        let lab = Lab::new();
        lab.names("c", "b");
        assert!(lab.arrives("b", "").is_err());
        lab.names("a", "b");
        lab.names("c", "b");
        assert_eq!(lab.arrives("b", "").unwrap(), seen("a"));
    }

    #[test]
    fn a_slot_that_left_its_new_owner_first_is_followed() {
        let lab = Lab::new();
        lab.names("a", "b");
        assert!(lab.arrives("c", "").is_err());
        assert_eq!(lab.next(), Some(named("b")));
        lab.names("b", "c");
        assert_eq!(lab.arrives("c", "").unwrap(), seen("a"));
    }
}
