//! ZooKeeper as something that breaks: a server, three of them, or three on hosts of their own.

mod agreement;
mod limits;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fencelock_lab::Outage;
use fencelock_testbed::zookeeper::{Ensemble, Settings};
use fencelock_testbed::{Network, Proxy, Server, Way};

use self::limits::Hands;
use crate::bed::{Bed, Breakable, TTL, can_usually};

/// The fields that every answer begins with, in bytes: its length, the number of the request, the transaction, the error.
const HEADER: &[usize] = &[4, 4, 8, 4];

/// The fields of a node's `Stat`, in bytes, as `zookeeper.jute` has them.
const STAT: &[usize] = &[8, 8, 8, 8, 4, 4, 4, 8, 4, 4, 8];

/// The memory of a server that is alone, in mebibytes: a hundred workers ask it at once for queues of more than a mebibyte each.
const HEAP_ALONE: usize = 512;

/// A server or three, with a parent node for each site.
#[derive(Debug)]
pub struct ZooKeeper {
    ensemble: Ensemble,
    /// The hosts of the servers, between which packets are dropped: unlike a proxy, nothing accepts bytes and holds them for
    /// later. So connections time out, data is sent again, and attempts to connect are never answered.
    network: Option<Arc<Network>>,
    reached: Mutex<Vec<Reached>>,
    remarks: Mutex<Vec<String>>,
}

/// A limit that was reached on purpose, and is not mended yet.
#[derive(Debug)]
enum Reached {
    NumbersEnd,
    QueuesOverflow(Vec<Hands>),
}

impl ZooKeeper {
    /// Servers set up so that sessions as short as [`TTL`] are granted and failures are noticed soon.
    pub fn start(servers: usize) -> io::Result<Arc<dyn Bed>> {
        let settings = Settings { servers, links: servers > 1, ..Settings::default() };
        // Without digests the data of a server that is alone can be changed by hand.
        let alone = |settings: Settings| settings.with("digest.enabled", false).heap(HEAP_ALONE);
        let settings = if servers > 1 { settings } else { alone(settings) };
        // No test here is about the power going, and the disk is shared by all of them.
        Ok(Arc::new(Self::of(Ensemble::start(settings.with("forceSync", "no"))?, None)))
    }

    /// Three servers, each on a host of its own. Needs root.
    ///
    /// # Errors
    /// Without root, or when the servers do not start.
    pub fn on_hosts() -> io::Result<Arc<dyn Bed>> {
        let network = Arc::new(Network::start(3)?);
        let settings = Settings { servers: 3, network: Some(Arc::clone(&network)), ..Settings::default() };
        Ok(Arc::new(Self::of(Ensemble::start(settings.with("forceSync", "no"))?, Some(network))))
    }

    /// These servers.
    #[must_use]
    pub fn of(ensemble: Ensemble, network: Option<Arc<Network>>) -> Self {
        Self { ensemble, network, reached: Mutex::default(), remarks: Mutex::default() }
    }

    /// The servers.
    #[must_use]
    pub fn ensemble(&self) -> &Ensemble {
        &self.ensemble
    }

    fn reached(&self) -> MutexGuard<'_, Vec<Reached>> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Servers that contradict each other are nothing that a store could make good.
    fn restore_agreement(&self) -> io::Result<()> {
        if self.ensemble.servers().len() == 1 || self.network.is_some() {
            return Ok(());
        }
        let restored = agreement::restore(&self.ensemble)?;
        let remark = |number| format!("server {number} had lost transactions, and was given a new copy of the data");
        self.remarks.lock().unwrap_or_else(PoisonError::into_inner).extend(restored.into_iter().map(remark));
        Ok(())
    }

    /// Does `work` while the servers are cut off. A node created between a snapshot and the server's end is in the log with its
    /// parent's old number, which would undo a change of the snapshot.
    fn unseen(site: &Breakable, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        site.ways.all().for_each(|proxy| proxy.hold(Way::Both));
        let done = work();
        site.ways.all().for_each(Proxy::release);
        done
    }
}

/// The node under which the locks of a site are.
fn parent(name: &str) -> String {
    format!("/{name}")
}

impl Bed for ZooKeeper {
    fn servers(&self) -> Vec<&dyn Server> {
        self.ensemble.servers().iter().map(|server| server as &dyn Server).collect()
    }

    fn url(&self, ways: &[SocketAddr], name: &str) -> String {
        let (ways, tick_ms) = (ways.iter().map(SocketAddr::to_string).collect::<Vec<_>>(), self.ensemble.tick_ms());
        // Queues that do not fit into an answer are to be had with fewer nodes.
        let limits = format!("ttl_ms={}&max_answer_bytes=1048575", TTL.as_millis());
        format!("zk://{}{}?tick_ms={tick_ms}&{limits}", ways.join(","), parent(name))
    }

    fn has_proxies(&self) -> bool {
        self.network.is_none()
    }

    fn inside(&self, work: &mut (dyn FnMut() + Send)) -> io::Result<()> {
        match &self.network {
            Some(network) => network.inside(work),
            None => {
                work();
                Ok(())
            }
        }
    }

    fn leader(&self) -> usize {
        self.ensemble.leader()
    }

    fn can(&self, outage: Outage) -> bool {
        let (count, is_here) = (self.ensemble.servers().len(), self.network.is_none());
        match outage {
            Outage::FollowerCut | Outage::LeaderCutOff => count > 1,
            Outage::NumbersEnd => count == 1,
            Outage::QueuesOverflow => is_here,
            Outage::LeaderKilled | Outage::LeaderPaused => true,
            other => is_here && can_usually(count, other),
        }
    }

    fn cut_off(&self, server: usize, from: Option<usize>) -> io::Result<()> {
        let hold = |follower: usize, leader: usize| self.ensemble.link(follower, leader).hold(Way::Both);
        match (&self.network, from) {
            (Some(network), Some(leader)) => network.cut(server, leader)?,
            (Some(network), None) => network.pull_cable(server)?,
            (None, Some(leader)) => hold(server, leader),
            (None, None) => self.ensemble.others(server).for_each(|other| hold(other, server)),
        }
        Ok(())
    }

    fn strike(&self, site: &Breakable, outage: Outage, random: u64) -> io::Result<()> {
        match outage {
            Outage::NumbersEnd => {
                // A counter of ZooKeeper never falls, so a second strike leaves no number.
                let few = if self.reached().is_empty() { random } else { 0 };
                self.reached().push(Reached::NumbersEnd);
                Self::unseen(site, || limits::end_numbers(&self.ensemble, &parent(&site.name), few))
            }
            Outage::QueuesOverflow => {
                let hands = limits::overflow_queues(&self.ensemble, &parent(&site.name))?;
                self.reached().push(Reached::QueuesOverflow(hands));
                Ok(())
            }
            other => Err(io::Error::new(io::ErrorKind::Unsupported, format!("{other:?}"))),
        }
    }

    fn answer_fields(&self, name: &str, lock: &str) -> Vec<u64> {
        let node = "_c_00000000-0000-0000-0000-000000000000-lock-0000000000".len();
        let path = parent(name).len() + "/".len() + lock.len() + "/".len() + node;
        let created = [HEADER, &[4, path / 2, path - path / 2], STAT].concat();
        let listed = [HEADER, &[4, 4, node], STAT].concat();
        let mut end = 0;
        let ends = created.iter().chain(&listed).map(|bytes| {
            end += *bytes as u64;
            end
        });
        [0].into_iter().chain(ends).collect()
    }

    fn remarks(&self) -> Vec<String> {
        std::mem::take(&mut *self.remarks.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn heal(&self, site: &Breakable) -> io::Result<()> {
        if let Some(network) = &self.network {
            network.heal()?;
        }
        self.ensemble.heal()?;
        self.restore_agreement()?;
        let reached = std::mem::take(&mut *self.reached());
        reached.into_iter().try_for_each(|reached| match reached {
            Reached::NumbersEnd => Self::unseen(site, || limits::begin_numbers(&self.ensemble, &parent(&site.name))),
            Reached::QueuesOverflow(hands) => hands.into_iter().try_for_each(Hands::leave),
        })
    }
}
