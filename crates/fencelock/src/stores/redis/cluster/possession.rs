//! Whether a slot came to another node whole.
//!
//! A node that gives a slot away moves all keys before. Nothing is lost where the owner, on the connection that has served the session,
//! says that the slot is another node's now, and is the same primary as before by its own word. A replica that was promoted in the owner's
//! place shows none of this: for the layout it is another server.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{RedisError, RedisResult, Value};

use super::nodes::ClusterSlot;
use crate::error::Result;
use crate::kit::address::HostPort;
use crate::stores::redis::wire::{Address, Config, Connection, Era, Server, is_same_era};
use crate::time::{Clock, Moment};

/// The chain of owners of one slot, as one link has seen it.
#[derive(Debug, Default)]
pub(super) struct Custody {
    chain: Mutex<Chain>,
    /// When the newest request was sent that an owner has served.
    served: AtomicU64,
}

#[derive(Debug, Default)]
struct Chain {
    /// The era of the last owner, and the era that the layout knows the slot by.
    last: Option<(Era, Era)>,
    /// The address of the node to which the last owner gave the slot; when an owner served the slot last; the owner's stream of changes.
    given: Option<(HostPort, Moment, Option<String>)>,
    /// The node that another one has named as the owner, for one try.
    hint: Option<HostPort>,
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
    /// named by mistake would be another era.
    pub(crate) async fn arrived(connection: &Connection, key: Option<String>, server: Server) -> Result<Server> {
        let Some(possession) = &connection.possession else { return Ok(server) };
        if let Some(key) = key {
            connection.command("connect", redis::cmd("EXISTS").arg(key)).await?;
        }
        Ok(possession.of_era(server))
    }

    /// The node with the era of the last owner, if that owner gave the slot to this node.
    fn of_era(&self, mut server: Server) -> Server {
        let mut chain = self.slot.custody.lock();
        let given = chain.given.take();
        let Some(era) = server.era() else { return server };
        let given = given.filter(|(node, at, stream)| {
            let is_promoted = stream.is_none() || era.1 == *stream;
            *node == self.node && !is_promoted && server.ran_before(self.clock.now().since(*at))
        });
        let known_by = match chain.last.take() {
            Some((last, known_by)) if given.is_some() || is_same_era(&last, &era) => known_by,
            _ => era.clone(),
        };
        chain.last = Some((era, known_by.clone()));
        self.has_arrived.store(true, Ordering::Relaxed);
        (server.run_id, server.promoted_from) = (Some(known_by.0), known_by.1);
        server
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
        let server = connection.exchange(&redis::cmd("INFO")).await.map(Server::answered).unwrap_or_default();
        if server.is_replica() {
            self.slot.custody.lock().hint = Some(owner);
            return connection.is_a_replica();
        }
        // The slot left its new owner before the session had arrived there.
        if self.slot.custody.lock().given.as_ref().is_some_and(|(node, ..)| *node == self.node) {
            self.of_era(server.clone());
        }
        {
            let mut chain = self.slot.custody.lock();
            let is_same = chain.last.as_ref().zip(server.era()).is_some_and(|((last, _), now)| is_same_era(last, &now));
            chain.given = is_same.then(|| (self.slot.nodes.dialled(&owner), served, server.replication.clone()));
            chain.hint = Some(owner);
        }
        connection.end();
    }
}

/// The node that serves the slot of a request, as another node says: its host, which is empty for the same one, and its port.
fn moved_to(error: &RedisError) -> Option<(&str, u16)> {
    let said = error.detail().filter(|_| error.code() == Some("MOVED"))?;
    let (host, port) = said.split_whitespace().nth(1)?.rsplit_once(':')?;
    Some((host, port.parse().ok()?))
}
