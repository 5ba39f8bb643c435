//! A run of the benchmarks: its store, its figures, and the failures of other clients.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use anyhow::Result;
use fencelock_testbed::{Proxy, wait_until};

use crate::bench::Bench;
use crate::contestant::Contestant;
use crate::crew::{Crew, Placement};
use crate::machine;
use crate::measured::{Figures, Measured};
use crate::protocol::Order;
use crate::site::{Site, etcd, here, mysql, postgres, redis, zookeeper};
use crate::what::{Network, Store};

/// How long bytes are held, each way.
const DELAY: Duration = Duration::from_millis(2);

/// The fewest masters of which one may fail.
const MASTERS: usize = 3;

/// A run, and the store that it measures.
pub(crate) struct Run {
    pub(crate) bench: Bench,
    pub(crate) site: Box<dyn Site>,
    proxies: Vec<Proxy>,
    pub(crate) measured: RefCell<Measured>,
    /// The failures of other clients.
    pub(crate) faults: RefCell<Vec<String>>,
    /// The number of the next new lock.
    locks: Cell<u64>,
}

/// Starts the store's server and a proxy before each address, which keep to the second core; or uses the store on this machine.
fn start(bench: &Bench) -> Result<(Box<dyn Site>, Vec<Proxy>)> {
    machine::pinned(&[bench.cores.second], || {
        let site: Box<dyn Site> = match bench.store {
            Store::Redis => Box::new(redis::Redis::start(1)?),
            Store::Redlock => Box::new(redis::Redis::start(MASTERS)?),
            Store::Postgres => Box::new(postgres::Postgres::start()?),
            Store::Mysql => Box::new(mysql::Mysql::start()?),
            Store::ZooKeeper => Box::new(zookeeper::ZooKeeper::start()?),
            Store::Etcd => Box::new(etcd::Etcd::start()?),
            store @ (Store::Memory | Store::File) => Box::new(here::Here::new(store, bench.scratch.path())?),
        };
        let proxies = site.servers().iter().map(|server| Proxy::start(server.address())).collect::<Result<_, _>>()?;
        Ok((site, proxies))
    })
}

impl Run {
    /// With the store's server, if it has one.
    pub(crate) fn new(bench: Bench) -> Result<Self> {
        let (site, proxies) = start(&bench)?;
        Ok(Self {
            bench,
            site,
            proxies,
            measured: RefCell::default(),
            faults: RefCell::default(),
            locks: Cell::default(),
        })
    }

    /// Works on another store, on a server of its own that ends afterwards.
    pub(crate) fn on<T>(&mut self, store: Store, work: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        let own = std::mem::replace(&mut self.bench.store, store);
        let (site, proxies) = start(&self.bench)?;
        let outer = (std::mem::replace(&mut self.site, site), std::mem::replace(&mut self.proxies, proxies));
        let done = work(self);
        self.bench.store = own;
        (self.site, self.proxies) = outer;
        done
    }

    /// The servers, and the versions of the clients.
    pub(crate) fn description(&self) -> Result<Vec<String>> {
        let mut said: Vec<_> = self.site.describe()?.into_iter().collect();
        for peer in self.bench.contestants(&[]).into_iter().filter(|contestant| contestant.is_driven()) {
            let version = || self.crew(peer, 1, Network::Loopback, Placement::Free)?.0[0].version();
            said.push(self.round(peer, "its version", version)?.unwrap_or_else(|| peer.title().to_owned()));
        }
        Ok(said)
    }

    /// The result of one round of `contestant`. Another client may fail without ending the run: the report names it.
    pub(crate) fn round<T>(
        &self,
        contestant: Contestant,
        what: &str,
        round: impl FnOnce() -> Result<T>,
    ) -> Result<Option<T>> {
        match round() {
            Err(fault) if contestant.is_peer() => {
                let (who, fault) = (contestant.title(), format!("{fault:#}"));
                let fault = fault.strip_prefix(&format!("{who}: ")).unwrap_or(&fault);
                let fault = format!("{what}, {who}: {fault}");
                eprintln!("{fault}");
                self.faults.borrow_mut().push(fault);
                Ok(None)
            }
            found => found.map(Some),
        }
    }

    /// Keeps the figures of a round.
    pub(crate) fn found(&self, contestant: Contestant, network: Network, figures: Figures) {
        self.measured.borrow_mut().add(self.bench.store, network, contestant, figures);
    }

    /// Lets contestants take turns, so that a noisy moment affects all of them alike, and keeps their figures.
    pub(crate) fn turns(
        &self,
        contestants: &[Contestant],
        network: Network,
        what: &str,
        round: impl Fn(Contestant) -> Result<Figures>,
    ) -> Result<()> {
        for _ in 0..self.bench.effort.rounds {
            for &contestant in contestants {
                let figures = self.round(contestant, what, || round(contestant))?;
                self.found(contestant, network, figures.unwrap_or_default());
            }
        }
        Ok(())
    }

    /// The networks of the run.
    pub(crate) fn networks(&self) -> Vec<Network> {
        let is_chosen = |network: &Network| self.bench.on.is_empty() || self.bench.on.contains(network);
        let all: &[_] =
            if self.proxies.is_empty() { &[Network::Loopback] } else { &[Network::Loopback, Network::Delay] };
        all.iter().copied().filter(is_chosen).collect()
    }

    /// Whether the proxies delay; steps that are not measured need not wait.
    pub(crate) fn delays(&self, delays: bool) {
        self.proxies.iter().for_each(|proxy| proxy.delay(if delays { DELAY } else { Duration::ZERO }));
    }

    /// Waits until the first proxy has carried this number of further bytes to the server, or until no more come.
    pub(crate) fn carries(&self, bytes: u64) {
        let Some(proxy) = self.proxies.first() else { return };
        let (before, _) = proxy.bytes();
        wait_until(Duration::from_secs(20), || proxy.bytes().0 >= before + bytes);
    }

    /// Sets `network` up, with the server on a core of its own unless processes keep to none.
    pub(crate) fn is_on(&self, network: Network) -> Result<()> {
        self.delays(network == Network::Delay);
        let (first, second) = (self.bench.cores.first, self.bench.cores.second);
        match network {
            _ if self.bench.as_used => self.site.keep(&[first, second]),
            Network::OneCore => self.site.keep(&[first]),
            Network::Loopback | Network::Delay => self.site.keep(&[second]),
        }
    }

    /// Measures on each network, with the server on any core.
    pub(crate) fn everywhere(&self, measure: impl Fn(Network) -> Result<()>) -> Result<()> {
        self.site.keep(&[self.bench.cores.first, self.bench.cores.second])?;
        for network in self.networks() {
            self.delays(network == Network::Delay);
            measure(network)?;
        }
        self.is_on(Network::Loopback)
    }

    /// Lets a client of another language compile its code before it is measured. Nothing is delayed afterwards.
    pub(crate) fn warm(&self, contestant: Contestant, crew: &mut Crew) -> Result<()> {
        self.delays(false);
        if contestant.is_driven() {
            crew.0[0].ask(Order::Cycle { count: 2 * self.bench.effort.cycles })?;
        }
        Ok(())
    }

    /// Workers on a lock that is new.
    pub(crate) fn crew(
        &self,
        contestant: Contestant,
        processes: u64,
        network: Network,
        placement: Placement,
    ) -> Result<Crew> {
        let placement = if self.bench.as_used { Placement::AsUsed } else { placement };
        let number = self.locks.get();
        self.locks.set(number + 1);
        let addresses: Vec<_> = match network {
            Network::OneCore | Network::Loopback => self.site.servers().iter().map(|server| server.address()).collect(),
            Network::Delay => self.proxies.iter().map(Proxy::address).collect(),
        };
        let servers = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        Crew::on(&self.bench, contestant, processes, &self.site.target(&servers, number), placement)
    }

    /// As [`Self::crew`], where neither a server nor its workers keep to a core.
    pub(crate) fn crowd(&self, contestant: Contestant, processes: u64, network: Network) -> Result<Crew> {
        let placement = if self.bench.store.has_server() { Placement::Free } else { Placement::Dealt };
        self.crew(contestant, processes, network, placement)
    }
}
