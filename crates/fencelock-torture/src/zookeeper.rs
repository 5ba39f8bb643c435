//! ZooKeeper as something that breaks.

mod agreement;
mod limits;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fencelock_lab::{Outage, Site};
use fencelock_testbed::zookeeper::{Ensemble, Server, Settings};
use fencelock_testbed::{Proxy, Way};

use self::limits::Hands;
use crate::{Bed, Ways};

/// The fields that every answer begins with, in bytes: its length, the number of the request, the transaction, the error.
const HEADER: &[usize] = &[4, 4, 8, 4];

/// The fields of a node's `Stat`, in bytes, as `zookeeper.jute` has them.
const STAT: &[usize] = &[8, 8, 8, 8, 4, 4, 4, 8, 4, 4, 8];

/// The memory of a server that is alone, in mebibytes: a hundred workers ask it at once for queues of more than a mebibyte each.
const HEAP_ALONE: usize = 512;

/// A server or three, with a parent node and ways to it of their own.
#[derive(Debug)]
pub struct ZooKeeper {
    ensemble: Arc<Ensemble>,
    ways: Ways,
    parent: String,
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
    /// Servers set up so that sessions as short as [`ZooKeeper::TTL`] are granted and failures are noticed soon.
    ///
    /// # Errors
    /// When they do not start.
    pub fn start(servers: usize) -> io::Result<Arc<Ensemble>> {
        let settings = Settings { servers, links: servers > 1, ..Settings::default() };
        // Without digests the data of a server that is alone can be changed by hand.
        let alone = |settings: Settings| settings.with("digest.enabled", false).heap(HEAP_ALONE);
        let settings = if servers > 1 { settings } else { alone(settings) };
        // No test here is about the power going, and the disk is shared by all of them.
        Ensemble::start(settings.with("forceSync", "no")).map(Arc::new)
    }

    /// How long sessions live in the drills: six ticks.
    pub const TTL: Duration = Duration::from_secs(3);

    /// The site of one drill: locks under `parent`, and ways for `clients` clients.
    ///
    /// # Errors
    /// Whatever the system says.
    pub fn site(ensemble: &Arc<Ensemble>, parent: &str, clients: usize) -> io::Result<Self> {
        let addresses: Vec<SocketAddr> = ensemble.servers().map(Server::address).collect();
        let ways = Ways::start(clients, &addresses)?;
        let (ensemble, parent) = (Arc::clone(ensemble), parent.to_owned());
        Ok(Self { ensemble, ways, parent, reached: Mutex::default(), remarks: Mutex::default() })
    }

    /// The node under which the locks are.
    #[must_use]
    pub fn parent(&self) -> &str {
        &self.parent
    }

    /// The store as a client opens it that knows this server only, and comes by the way of `client`.
    #[must_use]
    pub fn url_of_server(&self, client: usize, server: usize) -> String {
        self.url_at(&self.ways.of(client)[server].address().to_string())
    }

    fn url_at(&self, servers: &str) -> String {
        Self::url(servers, &self.parent, self.ensemble.tick_ms())
    }

    /// The store on `servers`, whose sessions live for [`ZooKeeper::TTL`].
    pub(crate) fn url(servers: &str, parent: &str, tick_ms: u64) -> String {
        // Queues that do not fit into an answer are to be had with fewer nodes.
        format!("zk://{servers}{parent}?tick_ms={tick_ms}&ttl_ms={}&max_answer_bytes=1048575", Self::TTL.as_millis())
    }

    fn reached(&self) -> MutexGuard<'_, Vec<Reached>> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Servers that contradict each other are nothing that a store could make good.
    fn restore_agreement(&self) -> io::Result<()> {
        if self.ensemble.len() == 1 {
            return Ok(());
        }
        let restored = agreement::restore(&self.ensemble)?;
        let remark = |number| format!("server {number} had lost transactions, and was given a new copy of the data");
        self.remarks.lock().unwrap_or_else(PoisonError::into_inner).extend(restored.into_iter().map(remark));
        Ok(())
    }

    fn any_server(&self, random: u64) -> usize {
        usize::try_from(random % self.ensemble.len() as u64).unwrap_or(0)
    }
}

/// A server that is not `leader`: `any`, or the next one.
pub(crate) fn other_than(leader: usize, any: usize, count: usize) -> usize {
    if any == leader { (any + 1) % count } else { any }
}

impl Bed for Arc<Ensemble> {
    type Site = ZooKeeper;

    fn site(&self, name: &str, clients: usize) -> io::Result<ZooKeeper> {
        ZooKeeper::site(self, &format!("/{name}"), clients)
    }

    fn heal(&self) -> io::Result<()> {
        Ensemble::heal(self)
    }
}

impl ZooKeeper {
    /// Does `work` while nothing reaches the servers: a node that is created between a snapshot and the end of the server that wrote
    /// it is in the log, with the number that its parent had, and would undo the change in the snapshot.
    fn unseen(&self, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.ways.all().for_each(|proxy| proxy.hold(Way::Both));
        let done = work();
        self.ways.all().for_each(Proxy::release);
        done
    }
}

impl Site for ZooKeeper {
    fn url(&self, worker: usize) -> String {
        self.url_at(&self.ways.connect_string(worker))
    }

    fn ttl(&self) -> Duration {
        Self::TTL
    }

    fn can(&self, outage: Outage) -> bool {
        match outage {
            Outage::FollowerCut | Outage::LeaderCutOff => self.ensemble.len() > 1,
            Outage::NumbersEnd => self.ensemble.len() == 1,
            other => !other.is_of_memory_and_clock(),
        }
    }

    fn strike(&self, outage: Outage, worker: usize, random: u64) -> io::Result<()> {
        let any = self.any_server(random);
        match outage {
            Outage::LeaderKilled => self.ensemble.server(self.ensemble.leader()).kill(),
            Outage::LeaderPaused => self.ensemble.server(self.ensemble.leader()).pause(),
            Outage::LeaderCutOff => {
                let leader = self.ensemble.leader();
                self.ways.before(leader).for_each(|proxy| proxy.hold(Way::Both));
                self.ensemble.others(leader).for_each(|other| self.ensemble.link(other, leader).hold(Way::Both));
            }
            Outage::FollowerCut => {
                let leader = self.ensemble.leader();
                self.ensemble.link(other_than(leader, any, self.ensemble.len()), leader).hold(Way::Both);
            }
            Outage::WorkerCut => self.ways.cut(worker),
            Outage::WorkerHoled => self.ways.of(worker).iter().for_each(|proxy| proxy.hole(Way::Both)),
            Outage::WorkerHeldBack => self.ways.of(worker).iter().for_each(|proxy| proxy.hold_existing(Way::Up)),
            Outage::ServerHoled => self.ways.before(any).for_each(|proxy| proxy.hole(Way::Both)),
            Outage::ServerRestarted => self.ensemble.server(any).restart()?,
            Outage::ConnectionsReset => self.ways.all().for_each(fencelock_testbed::Proxy::reset),
            Outage::AnswerCut => {
                self.ways.of(worker).iter().for_each(|proxy| proxy.cut_after(random % Outage::ANSWER_BYTES, Way::Down))
            }
            Outage::NumbersEnd => {
                self.reached().push(Reached::NumbersEnd);
                self.unseen(|| limits::end_numbers(&self.ensemble, &self.parent, random))?;
            }
            Outage::QueuesOverflow => {
                let hands = limits::overflow_queues(&self.ensemble, &self.parent)?;
                self.reached().push(Reached::QueuesOverflow(hands));
            }
            other => return Err(io::Error::new(io::ErrorKind::Unsupported, format!("{other:?}"))),
        }
        Ok(())
    }

    fn cuts(&self) -> u64 {
        self.ways.all().map(Proxy::cuts).sum()
    }

    fn answer_fields(&self, name: &str) -> Vec<u64> {
        let node = "_c_00000000-0000-0000-0000-000000000000-lock-0000000000".len();
        let path = self.parent.len() + "/".len() + name.len() + "/".len() + node;
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
        self.remarks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn heal(&self) -> io::Result<()> {
        self.ways.heal();
        self.ensemble.heal()?;
        self.restore_agreement()?;
        let reached = std::mem::take(&mut *self.reached());
        reached.into_iter().try_for_each(|reached| match reached {
            Reached::NumbersEnd => self.unseen(|| limits::begin_numbers(&self.ensemble, &self.parent)),
            Reached::QueuesOverflow(hands) => hands.into_iter().try_for_each(Hands::leave),
        })
    }
}
