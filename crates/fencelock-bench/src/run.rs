//! One run of the benchmarks: whom it measures where, and what other clients failed at.

use std::cell::RefCell;

use anyhow::Result;

use crate::bench::{Bench, Store};
use crate::contestant::Contestant;
use crate::crew::{Crew, Placement};
use crate::network::server::{Network, Site, start};
use crate::protocol::Order;
use crate::rows::take_turns;

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

    /// Goes on with another store, on a server of its own. The former server ends.
    pub(crate) fn moves_to(&mut self, store: Store) -> Result<()> {
        self.bench.store = store;
        self.site = start(&self.bench)?;
        Ok(())
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

    /// Lets everybody take turns at `what`; a round in which another client fails has found nothing.
    pub(crate) fn turns<T>(
        &self,
        contestants: &[Contestant],
        what: &str,
        round: impl Fn(Contestant) -> Result<T>,
    ) -> Result<Vec<(Contestant, Vec<T>)>> {
        let turn = |contestant| self.round(contestant, what, || round(contestant));
        take_turns(contestants, self.bench.effort.rounds, turn)
    }

    /// Lets a client of another language compile what it runs, which nobody looks at. Nothing is delayed afterwards.
    pub(crate) fn warm(&self, contestant: Contestant, crew: &mut Crew) -> Result<()> {
        self.site.delays(false);
        if contestant.is_driven() {
            crew.0[0].ask(Order::Cycle { count: 2 * self.bench.effort.cycles })?;
        }
        Ok(())
    }

    /// Workers on something that nobody has locked before, one core for each in turns.
    pub(crate) fn crew(&self, contestant: Contestant, processes: u64) -> Result<Crew> {
        let target = self.site.target(Network::Loopback);
        Crew::on(&self.bench, contestant, processes, &target, Placement::Dealt)
    }
}
