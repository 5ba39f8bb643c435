//! The servers of drills and scenes, and the site that breaks servers of every store.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fencelock_lab::history::{Lapse, LogWriter};
use fencelock_lab::{Outage, Site};
use fencelock_testbed::{Proxy, Server, Way};

use crate::Ways;

/// How long sessions live in drills and scenes: six ticks of ZooKeeper.
pub const TTL: Duration = Duration::from_secs(3);

/// How far a clock jumps, in seconds.
const JUMP: i64 = 60;

/// How long an answer may lie unread in a client on a busy machine.
const UNREAD: Duration = Duration::from_secs(1);

/// The servers of one store: the parts in which stores differ. [`Breakable`] does the rest.
pub trait Bed: fmt::Debug + Send + Sync {
    /// The servers. A store without servers has none.
    fn servers(&self) -> Vec<&dyn Server>;

    /// The URL of the store by these addresses, one for each server. The site `name` has locks of its own.
    fn url(&self, ways: &[SocketAddr], name: &str) -> String;

    /// Sets the servers up for the site `name`.
    fn prepare(&self, name: &str) -> io::Result<()> {
        let _ = name;
        Ok(())
    }

    /// Whether each client has proxies before the servers.
    fn has_proxies(&self) -> bool {
        true
    }

    /// Runs `work` where the servers can be reached.
    fn inside(&self, work: &mut (dyn FnMut() + Send)) -> io::Result<()> {
        work();
        Ok(())
    }

    /// The number of the server that decides.
    fn leader(&self) -> usize {
        0
    }

    /// Whether the servers can have this outage.
    fn can(&self, outage: Outage) -> bool {
        can_usually(self.servers().len(), outage)
    }

    /// Whether the layout has readers, writers and permits.
    fn shares(&self) -> bool {
        true
    }

    /// Whether a server that is killed forgets all leases.
    fn forgets(&self) -> bool {
        false
    }

    /// Cuts a server off from one other server, or from all of them.
    fn cut_off(&self, server: usize, from: Option<usize>) -> io::Result<()> {
        let _ = (server, from);
        Ok(())
    }

    /// Sets how many seconds the wall clock of the server is off.
    ///
    /// # Errors
    /// When the server has no clock of its own.
    fn set_clock(&self, name: &str, seconds: i64) -> io::Result<()> {
        let _ = name;
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("a clock that is {seconds} s off")))
    }

    /// Makes an outage that only the servers of this store have.
    fn strike(&self, site: &Breakable, outage: Outage, random: u64) -> io::Result<()> {
        let _ = (site, random);
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("{outage:?}")))
    }

    /// More bytes than any answer to an acquire has.
    fn answer_bytes(&self) -> u64 {
        Outage::ANSWER_BYTES
    }

    /// See [`Site::answer_fields`].
    fn answer_fields(&self, name: &str, lock: &str) -> Vec<u64> {
        let _ = (name, lock);
        Vec::new()
    }

    /// See [`Site::remarks`].
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }

    /// Mends the servers, and returns once all of them serve. Repeatable.
    fn heal(&self, site: &Breakable) -> io::Result<()> {
        let _ = site;
        self.servers().into_iter().try_for_each(Server::heal)
    }
}

/// Whether this outage is possible with `servers` servers that keep all data on disk and have this machine's clock.
pub(crate) fn can_usually(servers: usize, outage: Outage) -> bool {
    match outage {
        Outage::FollowerCut | Outage::NumbersEnd | Outage::QueuesOverflow => false,
        Outage::LeaderCutOff => servers == 1,
        other => servers > 0 && !other.is_of_memory_and_clock(),
    }
}

/// The site of one drill or scene: servers, with locks and routes of its own.
#[derive(Debug)]
pub struct Breakable {
    bed: Arc<dyn Bed>,
    pub(crate) ways: Ways,
    /// The word that separates the site's locks from those of other sites.
    pub(crate) name: String,
    past: Mutex<Past>,
}

/// How wrong the clock is, and when leases ended early.
#[derive(Debug, Default)]
struct Past {
    clock: i64,
    lapses: Vec<Lapse>,
}

impl Breakable {
    /// A site whose locks are kept apart by `name`, with routes for `clients` clients.
    pub fn new(bed: &Arc<dyn Bed>, name: &str, clients: usize) -> io::Result<Self> {
        let addresses: Vec<SocketAddr> = bed.servers().iter().map(|server| server.address()).collect();
        let ways = Ways::start(if bed.has_proxies() { clients } else { 0 }, &addresses)?;
        bed.prepare(name)?;
        Ok(Self { bed: Arc::clone(bed), ways, name: name.to_owned(), past: Mutex::default() })
    }

    /// The URL of the store for a client that knows this server only, over the route of `client`.
    #[must_use]
    pub fn url_of_server(&self, client: usize, server: usize) -> String {
        self.bed.url(&self.ways.addresses(client)[server..=server], &self.name)
    }

    fn past(&self) -> MutexGuard<'_, Past> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends leases early, and remembers when.
    fn lapse(&self, ends: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let from = LogWriter::now();
        ends()?;
        let over = LogWriter::now();
        let (by, believed_until) = (over + nanos(UNREAD), over + nanos(TTL));
        self.past().lapses.push(Lapse { from, over, by, believed_until });
        Ok(())
    }

    fn kill(&self, server: &dyn Server) -> io::Result<()> {
        let kill = || {
            server.kill();
            Ok(())
        };
        if self.bed.forgets() { self.lapse(kill) } else { kill() }
    }

    /// Sets the clock. A clock that is set ahead ends leases early.
    fn set_clock(&self, seconds: i64) -> io::Result<()> {
        let before = std::mem::replace(&mut self.past().clock, seconds);
        let set = || self.bed.set_clock(&self.name, seconds);
        if seconds > before { self.lapse(set) } else { set() }
    }
}

impl Site for Breakable {
    fn url(&self, worker: usize) -> String {
        self.bed.url(&self.ways.addresses(worker), &self.name)
    }

    fn ttl(&self) -> Duration {
        // A lock in a directory ends with its process.
        if self.bed.servers().is_empty() { Duration::ZERO } else { TTL }
    }

    fn can(&self, outage: Outage) -> bool {
        self.bed.can(outage)
    }

    fn strike(&self, outage: Outage, worker: usize, random: u64) -> io::Result<()> {
        let servers = self.bed.servers();
        let any = usize::try_from(random % servers.len() as u64).unwrap_or(0);
        let hold = |proxy: &Proxy| proxy.hold(Way::Both);
        let of_worker = self.ways.of(worker).iter();
        match outage {
            Outage::LeaderKilled => self.kill(servers[self.bed.leader()])?,
            Outage::LeaderPaused => servers[self.bed.leader()].pause(),
            Outage::LeaderCutOff => {
                let leader = self.bed.leader();
                self.ways.before(leader).for_each(hold);
                self.bed.cut_off(leader, None)?;
            }
            Outage::FollowerCut => {
                let leader = self.bed.leader();
                let follower = if any == leader { (any + 1) % servers.len() } else { any };
                self.bed.cut_off(follower, Some(leader))?;
            }
            Outage::ServerRestarted => {
                self.kill(servers[any])?;
                servers[any].restart()?;
            }
            Outage::WorkerCut => of_worker.for_each(hold),
            Outage::WorkerHoled => of_worker.for_each(|proxy| proxy.hole(Way::Both)),
            Outage::WorkerHeldBack => of_worker.for_each(|proxy| proxy.hold_existing(Way::Up)),
            Outage::ServerHoled => self.ways.before(any).for_each(|proxy| proxy.hole(Way::Both)),
            Outage::ConnectionsReset => self.ways.all().for_each(Proxy::reset),
            Outage::AnswerCut => {
                of_worker.for_each(|proxy| proxy.cut_after(random % self.bed.answer_bytes(), Way::Down));
            }
            Outage::ClockAhead => self.set_clock(JUMP)?,
            Outage::ClockBehind => self.set_clock(-JUMP)?,
            Outage::MemoryLost => self.lapse(|| self.bed.strike(self, outage, random))?,
            other => self.bed.strike(self, other, random)?,
        }
        Ok(())
    }

    fn cuts(&self) -> u64 {
        self.ways.all().map(Proxy::cuts).sum()
    }

    fn answer_fields(&self, name: &str) -> Vec<u64> {
        self.bed.answer_fields(&self.name, name)
    }

    fn lapses(&self) -> Vec<Lapse> {
        self.past().lapses.clone()
    }

    fn remarks(&self) -> Vec<String> {
        self.bed.remarks()
    }

    fn heal(&self) -> io::Result<()> {
        self.ways.heal();
        if self.past().clock != 0 {
            self.set_clock(0)?;
        }
        self.bed.heal(self)
    }
}
