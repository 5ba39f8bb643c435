//! The nodes of a Cluster, and the owner of each slot according to the nodes.

use std::collections::HashMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select;
use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::task::AbortHandle;

use super::possession::Custody;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::address::HostPort;
use crate::store::Tasks;
use crate::stores::redis::sentinel::{dialled, newest};
use crate::stores::redis::wire::{Address, Config, fault, is_unknown_command, shake_hands};
use crate::sync::Mutex;
use crate::time::{Clock, Moment};

/// The shortest time between two questions to the nodes, for all slots together.
const NEXT: Duration = Duration::from_millis(100);
/// How many nodes are asked at once: all of these at first and after a failure, otherwise half.
const ASKED: usize = 6;
/// How long a connection to a node serves further questions. A connection that is silent for longer may be cut unnoticed.
const KEPT: Duration = Duration::from_secs(10);

const NO_NODE: &str = "this is no node of a Redis Cluster: for a server write redis://host:6379/0, for a primary that Sentinels watch redis+sentinel://host1:26379,host2,host3/NAME";

/// The nodes of one Cluster.
#[derive(Debug)]
pub(crate) struct Nodes {
    /// The URL without secrets.
    shown: String,
    /// The settings of a connection to any node.
    config: Config,
    /// The nodes that the URL names.
    seeds: Vec<HostPort>,
    /// The addresses to dial, for nodes that are named by an address which only their own network knows.
    map: Vec<(HostPort, HostPort)>,
    known: tokio::sync::Mutex<Known>,
    /// The connections for questions, and the task of each.
    wires: Mutex<HashMap<HostPort, (MultiplexedConnection, AbortHandle)>>,
}

/// The newest answer, when the nodes were asked, and the error if none answered then.
#[derive(Debug, Default)]
struct Known {
    view: Ownership,
    asked: Option<Moment>,
    failure: Option<Error>,
}

/// The clock, where the tasks of connections run, and how long the nodes may take to answer.
type Asking<'a> = (&'a Arc<dyn Clock>, &'a Tasks, Duration);

/// The owners of the slots, according to one node.
#[derive(Debug, Default)]
pub(crate) struct Ownership {
    /// Whether the node serves requests, and the number of the newest configuration that it has seen: a later one has a higher number.
    pub(super) newness: (bool, u64),
    pub(super) owners: Vec<(RangeInclusive<u16>, HostPort)>,
    nodes: Vec<HostPort>,
    /// The node that gave this answer, under the address that was dialled.
    said_by: Option<HostPort>,
}

impl Nodes {
    pub(super) fn new(shown: String, config: Config, seeds: Vec<HostPort>, map: Vec<(HostPort, HostPort)>) -> Self {
        let (known, wires) = Default::default();
        Self { shown, config, seeds, map, known, wires }
    }

    /// The routes to the nodes that the URL names.
    pub(super) fn named(&self) -> impl Iterator<Item = Config> {
        self.seeds.iter().map(|node| self.config.at(node.clone()))
    }

    /// The route to the server at an address, by these nodes.
    pub(super) fn way_to(self: &Arc<Self>, address: impl FnOnce(Arc<Self>) -> Address, min_replicas: u32) -> Config {
        let mut config = self.config.clone();
        (config.address, config.min_replicas) = (address(Arc::clone(self)), min_replicas);
        config
    }

    /// The address to dial for a node with this name.
    pub(super) fn dialled(&self, named: &HostPort) -> HostPort {
        dialled(&self.map, named)
    }

    /// Asks the nodes, unless another caller did so just now, and reads the newest answer.
    pub(super) async fn ask<T>(&self, with: Asking<'_>, read: impl FnOnce(&Ownership) -> T) -> Result<T> {
        let (clock, tasks, patience) = with;
        let mut known = self.known.lock().await;
        if known.asked.is_none_or(|asked| clock.now() >= asked.after(NEXT)) {
            let mut all = self.seeds.clone();
            all.extend(
                known.view.nodes.iter().map(|node| self.dialled(node)).filter(|node| !self.seeds.contains(node)),
            );
            fastrand::shuffle(&mut all);
            all.truncate(if known.asked.is_some() && known.failure.is_none() { ASKED / 2 } else { ASKED });
            let asks = all.iter().map(|node| (node, self.ask_one(node, clock, tasks)));
            let words = (&*self.shown, "no node of the Cluster answers", "node", "nodes");
            // Prefers a primary's answer: requests that any node may serve go there.
            let newness = |view: &Ownership| (view.newness, self.answering(view).is_some());
            let view = newest(asks, newness, (&**clock, patience), words).await;
            known.asked = Some(clock.now());
            known.failure = view.map(|view| known.view = view).err();
            if known.failure.is_some() {
                self.wires.lock().clear();
            }
        }
        match &known.failure {
            Some(error) => Err(error.again()),
            None => Ok(read(&known.view)),
        }
    }

    async fn ask_one(&self, node: &HostPort, clock: &Arc<dyn Clock>, tasks: &Tasks) -> Result<Ownership> {
        let kept = self.wires.lock().get(node).filter(|(_, task)| !task.is_finished()).cloned();
        let mut wire = match kept {
            Some((wire, _)) => wire,
            None => {
                let (wire, driver) = shake_hands(&self.config.at(node.clone()), None, &**clock).await?;
                let (clock, end) = (Arc::clone(clock), clock.now().after(KEPT));
                let task = tasks.spawn(async move { drop(select(driver, clock.sleep_until(end)).await) });
                self.wires.lock().insert(node.clone(), (wire.clone(), task));
                wire
            }
        };
        let mut both = redis::pipe();
        both.cmd("CLUSTER").arg("INFO").cmd("CLUSTER").arg("SLOTS");
        let answers = wire.send_packed_commands(&both, 0, 2).await;
        let answers = answers.and_then(|answers| answers.into_iter().map(Value::extract_error).collect());
        answers.map(|answers| Ownership::read(answers, node)).map_err(|error| {
            if is_unknown_command(&error) || error.detail().is_some_and(|said| said.contains("cluster support")) {
                return Error::new(ErrorKind::Unsupported, "connect", NO_NODE).with("cause", error.to_string());
            }
            fault("connect", &error)
        })
    }

    /// The address to dial for the owner of a slot, or for a primary that has just answered, and its name among the nodes. The owner must
    /// still confirm its role itself. A Cluster that serves no slots is not dialled.
    pub(crate) async fn find(&self, with: Asking<'_>, slot: Option<u16>) -> Result<(HostPort, HostPort)> {
        let named = self.ask(with, |view| {
            let owner = view.owners.iter().find(|(slots, _)| slot.is_some_and(|slot| slots.contains(&slot)));
            let any = || self.answering(view).or_else(|| fastrand::choice(&view.owners)).filter(|_| slot.is_none());
            owner.or_else(any).filter(|_| view.newness.0).map(|(_, owner)| owner.clone())
        });
        let named = named.await?.ok_or_else(|| self.unserved())?;
        Ok((self.dialled(&named), named))
    }

    /// The node that gave this view, if it is a primary by the address of its seed.
    fn answering<'a>(&self, view: &'a Ownership) -> Option<&'a (RangeInclusive<u16>, HostPort)> {
        view.owners.iter().find(|(_, owner)| Some(self.dialled(owner)) == view.said_by)
    }

    pub(super) fn unserved(&self) -> Error {
        let message = "no node of the Cluster serves the slot of the lock, or the Cluster serves no slots: primaries are away (CLUSTER INFO)";
        Error::new(ErrorKind::Unreachable, "connect", message).with("server", self).retryable()
    }
}

impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// A slot of a Cluster, for one link.
#[derive(Debug, Clone)]
pub(crate) struct ClusterSlot {
    pub(crate) nodes: Arc<Nodes>,
    pub(super) number: u16,
    pub(super) custody: Arc<Custody>,
}

impl ClusterSlot {
    /// The owner of the slot, as [`Nodes::find`] returns it.
    pub(crate) async fn find(&self, with: Asking<'_>) -> Result<(HostPort, HostPort)> {
        if let Some(named) = self.custody.hint.lock().take() {
            return Ok((self.nodes.dialled(&named), named));
        }
        self.nodes.find(with, Some(self.number)).await
    }
}

impl Ownership {
    /// Reads `CLUSTER INFO` and `CLUSTER SLOTS` of `node`, which stands for every host that is not named.
    pub(crate) fn read(answers: Vec<Value>, node: &HostPort) -> Self {
        let mut answers = answers.into_iter();
        let info: String = answers.next().and_then(|info| redis::from_redis_value(info).ok()).unwrap_or_default();
        let field =
            |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
        let epoch = field("cluster_current_epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
        let newness = (field("cluster_state") != Some("fail"), epoch);
        let mut view = Self { newness, said_by: Some(node.clone()), ..Self::default() };
        let Some(Value::Array(ranges)) = answers.next() else { return view };
        for range in ranges {
            let Value::Array(range) = range else { continue };
            let [Value::Int(first), Value::Int(last), nodes @ ..] = &range[..] else { continue };
            let named = nodes.iter().filter_map(|one| {
                let Value::Array(one) = one else { return None };
                let [host, Value::Int(port), ..] = &one[..] else { return None };
                let host = redis::from_redis_value::<String>(host.clone()).unwrap_or_default();
                let host = if matches!(&*host, "" | "?") { node.host.clone() } else { host };
                Some(HostPort { host, port: u16::try_from(*port).ok()? })
            });
            let named: Vec<_> = named.collect();
            if let (Ok(first), Ok(last), Some(owner)) = (u16::try_from(*first), u16::try_from(*last), named.first()) {
                view.owners.push((first..=last, owner.clone()));
            }
            view.nodes.extend(named);
        }
        view.nodes.sort_by_key(ToString::to_string);
        view.nodes.dedup();
        view
    }
}

#[cfg(test)]
mod tests {
    use super::super::url;
    use super::*;
    use crate::store::StoreUrl;
    use crate::stores::memory::VirtualClock;
    use crate::time::SystemClock;

    impl Nodes {
        /// From now on `said_by` has just said that each of these owns a slot.
        pub(crate) async fn learned(&self, said_by: &str, owners: &[&str], clock: &dyn Clock) {
            let named = |node: &str| HostPort { host: node.to_owned(), port: 6379 };
            let owners = (0..).zip(owners).map(|(slot, owner)| (slot..=slot, named(owner))).collect();
            let view = Ownership { newness: (true, 1), owners, said_by: Some(named(said_by)), ..Ownership::default() };
            *self.known.lock().await = Known { view, asked: Some(clock.now()), failure: None };
        }
    }

    #[tokio::test]
    async fn requests_of_any_node_go_to_a_primary_that_has_just_answered() {
        let (url, clock) = (StoreUrl::parse("redis+cluster://a").unwrap(), VirtualClock::new());
        let Address::Nodes(nodes) = url::config(url).unwrap().address else { unreachable!() };
        nodes.learned("b", &["a", "b", "c"], &clock).await;
        let with = (&(Arc::new(clock) as Arc<dyn Clock>), &Tasks::here().unwrap(), Duration::from_secs(1));
        for (slot, host) in [None; 50].map(|any| (any, "b")).into_iter().chain([(Some(2), "c"), (Some(0), "a")]) {
            let (dialled, _) = nodes.find(with, slot).await.unwrap();
            assert_eq!(dialled.host, host);
        }
        assert!(nodes.find(with, Some(3)).await.unwrap_err().is_retryable());
    }

    #[tokio::test]
    async fn an_outage_is_no_answer_for_callers_that_come_shortly_after() {
        let url = StoreUrl::parse("redis+cluster://127.0.0.1:1").unwrap();
        let Address::Nodes(nodes) = url::config(url).unwrap().address else { unreachable!() };
        for _ in 0..2 {
            let with = (&(Arc::new(SystemClock) as Arc<dyn Clock>), &Tasks::here().unwrap(), Duration::from_millis(10));
            let error = nodes.ask(with, |_| ()).await.unwrap_err();
            assert!(error.kind() == ErrorKind::Unreachable && error.is_retryable(), "{error}");
        }
    }
}
