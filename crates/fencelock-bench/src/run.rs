//! One run of the benchmarks: whom it measures where, and what other clients failed at.

use std::cell::RefCell;

use anyhow::Result;

use crate::bench::{Bench, Store};
use crate::contestant::Contestant;
use crate::crew::{Crew, Placement};
use crate::families::{Row, take_turns};
use crate::protocol::Order;
use crate::site::{Kept, Network, Site, start};

/// One run, and the store that it measures.
pub(crate) struct Run {
    pub(crate) bench: Bench,
    pub(crate) site: Box<dyn Site>,
    /// What other clients failed at.
    pub(crate) faults: RefCell<Vec<String>>,
}

impl Run {
    /// With the store's server, if it has one.
    pub(crate) fn new(bench: Bench) -> Result<Self> {
        let site = start(&bench)?;
        Ok(Self { bench, site, faults: RefCell::default() })
    }

    /// Works on another store, on a server of its own that ends afterwards.
    pub(crate) fn on<T>(&mut self, store: Store, work: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        let own = std::mem::replace(&mut self.bench.store, store);
        let site = std::mem::replace(&mut self.site, start(&self.bench)?);
        let done = work(self);
        (self.bench.store, self.site) = (own, site);
        done
    }

    /// What is measured there: the servers, and the versions of the clients.
    pub(crate) fn description(&self) -> Result<Vec<String>> {
        let mut said: Vec<_> = self.site.describe()?.into_iter().collect();
        for peer in self.bench.present(&Contestant::DRIVEN) {
            let version = || self.crew(peer, 1, Network::Loopback, Placement::Free)?.0[0].version();
            said.push(self.round(peer, "its version", version)?.unwrap_or_else(|| peer.title().to_owned()));
        }
        Ok(said)
    }

    /// What one round of `contestant` found. Another client may fail without ending the run: nothing then, and the report
    /// says so.
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

    /// Lets everybody take turns at `what` on `network`, and makes one row of all rounds of a contestant. A round in which
    /// another client fails has found nothing.
    pub(crate) fn rows<T, U>(
        &self,
        contestants: &[Contestant],
        network: Network,
        what: &str,
        round: impl Fn(Contestant) -> Result<T>,
        over: impl Fn(Vec<T>) -> U,
    ) -> Result<Vec<Row<U>>> {
        let turn = |contestant| self.round(contestant, what, || round(contestant));
        let found = take_turns(contestants, self.bench.effort.rounds, turn)?;
        let row = |(contestant, rounds)| Row { contestant, network, figure: over(rounds) };
        Ok(found.into_iter().map(row).collect())
    }

    /// Measures on each way to the store, its server on any core.
    pub(crate) fn everywhere<T>(&self, measure: impl Fn(Network) -> Result<Vec<T>>) -> Result<Vec<T>> {
        self.site.keep(Kept::Any)?;
        let mut rows = Vec::new();
        for &network in self.site.networks() {
            self.site.delays(network == Network::Delay);
            rows.extend(measure(network)?);
        }
        self.site.is_on(Network::Loopback)?;
        Ok(rows)
    }

    /// Lets a client of another language compile what it runs, which nobody looks at. Nothing is delayed afterwards.
    pub(crate) fn warm(&self, contestant: Contestant, crew: &mut Crew) -> Result<()> {
        self.site.delays(false);
        if contestant.is_driven() {
            crew.0[0].ask(Order::Cycle { count: 2 * self.bench.effort.cycles })?;
        }
        Ok(())
    }

    /// Workers on something that nobody has locked before.
    pub(crate) fn crew(
        &self,
        contestant: Contestant,
        processes: u64,
        network: Network,
        placement: Placement,
    ) -> Result<Crew> {
        Crew::on(&self.bench, contestant, processes, &self.site.target(network), placement)
    }

    /// The same where a server keeps to no core, and workers then neither.
    pub(crate) fn crowd(&self, contestant: Contestant, processes: u64, network: Network) -> Result<Crew> {
        let placement = if self.bench.store.has_server() { Placement::Free } else { Placement::Dealt };
        self.crew(contestant, processes, network, placement)
    }
}
