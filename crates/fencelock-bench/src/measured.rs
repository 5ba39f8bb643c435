//! The figures of a run: for each contestant, scene and network, one for every round.

use crate::contestant::Contestant;
use crate::stats::median;
use crate::what::{Network, Store, What};

/// The figures of one round.
pub(crate) type Figures = Vec<(What, f64)>;

#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) store: Store,
    pub(crate) network: Network,
    pub(crate) contestant: Contestant,
    pub(crate) what: What,
    /// The figures in the order of the rounds.
    pub(crate) rounds: Vec<f64>,
}

impl Row {
    /// The median of the rounds; of fairness the worst round, of deadlocks all of them.
    pub(crate) fn value(&self) -> f64 {
        let rounds = self.rounds.iter().copied();
        match self.what {
            What::Served(_) => rounds.fold(f64::INFINITY, f64::min),
            What::Undone(_) => rounds.sum(),
            _ => median(rounds),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Measured(pub(crate) Vec<Row>);

impl Measured {
    pub(crate) fn add(&mut self, store: Store, network: Network, contestant: Contestant, figures: Figures) {
        for (what, figure) in figures {
            let is_it = |row: &&mut Row| {
                (row.store, row.network, row.contestant, row.what) == (store, network, contestant, what)
            };
            match self.0.iter_mut().find(is_it) {
                Some(row) => row.rounds.push(figure),
                None => self.0.push(Row { store, network, contestant, what, rounds: vec![figure] }),
            }
        }
    }

    /// The row of a contestant that was measured.
    pub(crate) fn row(&self, store: Store, network: Network, contestant: Contestant, what: What) -> Option<&Row> {
        let is_it =
            |row: &&Row| (row.store, row.network, row.contestant, row.what) == (store, network, contestant, what);
        self.0.iter().find(is_it)
    }

    pub(crate) fn value(&self, store: Store, network: Network, contestant: Contestant, what: What) -> Option<f64> {
        self.row(store, network, contestant, what).map(Row::value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::what::Way;

    #[test]
    fn of_rounds_the_median_counts_but_the_worst_fairness_and_every_deadlock() {
        let mut measured = Measured::default();
        let value = |measured: &Measured, what| measured.value(Store::Mysql, Network::Loopback, Contestant::Own, what);
        for figure in [1.0, 4.0, 2.0] {
            let whats = [What::Cycle, What::Served(Way::Together), What::Undone(Way::Together)];
            let figures = whats.map(|what| (what, figure)).to_vec();
            measured.add(Store::Mysql, Network::Loopback, Contestant::Own, figures);
        }
        assert_eq!(value(&measured, What::Cycle), Some(2.0));
        assert_eq!(value(&measured, What::Served(Way::Together)), Some(1.0));
        assert_eq!(value(&measured, What::Undone(Way::Together)), Some(7.0));
        assert_eq!(value(&measured, What::Undone(Way::Processes)), None);
    }
}
