//! A family of rows is one scene: everybody who takes part is measured in it, on each way to the store. One file each:
//! its `measure` says who takes part, what a round is and what becomes of all rounds; its `table` says the rows, where readers
//! need more than its goals. Where
//! stores differ, in the shapes of a scene or in what can be counted, the family says so.

pub(crate) mod aged;
pub(crate) mod contended;
pub(crate) mod counts;
pub(crate) mod cycle;
pub(crate) mod hand_over;
pub(crate) mod held;

use std::time::Duration;

use anyhow::Result;

use crate::bench::Store;
use crate::contestant::Contestant;
use crate::protocol::now;
use crate::report::Table;
use crate::run::Run;
use crate::site::Network;
use crate::stats::Times;
use contended::{Contended, Way};

/// A family of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Family {
    Cycle,
    Apart,
    Together,
    Processes,
    HandOver,
    Counts,
    Held,
    /// The cycle beside an open transaction.
    Aged,
    /// The cycle on three masters.
    Redlock,
}

impl Family {
    /// In the order in which they are measured: those that leave most behind come last on their server.
    const ALL: [Self; 9] = [
        Self::Cycle,
        Self::Apart,
        Self::Together,
        Self::Processes,
        Self::HandOver,
        Self::Counts,
        Self::Held,
        Self::Aged,
        Self::Redlock,
    ];

    /// Those of a store.
    pub(crate) fn on(store: Store) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |family| match family {
            Self::Cycle | Self::Together | Self::HandOver | Self::Held => true,
            Self::Processes => store != Store::Memory,
            Self::Apart => store.has_server(),
            Self::Counts => matches!(store, Store::Redis | Store::ZooKeeper),
            Self::Aged => matches!(store, Store::Postgres | Store::Mysql),
            Self::Redlock => store == Store::Redis,
        })
    }

    pub(crate) fn measure(self, run: &mut Run, measured: &mut Measured) -> Result<()> {
        let start = std::time::Instant::now();
        eprintln!("measuring: {self:?}");
        match self {
            Self::Cycle => measured.cycle = cycle::measure(run)?,
            Self::Apart => measured.contended.extend(contended::measure(run, Way::Apart)?),
            Self::Together => measured.contended.extend(contended::measure(run, Way::Together)?),
            Self::Processes => measured.contended.extend(contended::measure(run, Way::Processes)?),
            Self::HandOver => measured.hand_over = hand_over::measure(run)?,
            Self::Counts => measured.counts = counts::measure(run)?,
            Self::Held => measured.held = held::measure(run)?,
            Self::Aged => measured.aged = aged::measure(run)?,
            Self::Redlock => {
                measured.redlock = run.on(Store::Redlock, |run| {
                    measured.said.extend(run.description()?);
                    cycle::measure(run)
                })?;
            }
        }
        eprintln!("measured: {self:?}, in {:.0} s", start.elapsed().as_secs_f64());
        Ok(())
    }
}

/// The rows of each family; none of those that were not asked for.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// The servers, and the clients of other languages.
    pub(crate) said: Vec<String>,
    pub(crate) cycle: Vec<Row<Times>>,
    /// The same on three masters.
    pub(crate) redlock: Vec<Row<Times>>,
    pub(crate) contended: Vec<Row<Contended>>,
    pub(crate) hand_over: Vec<Row<hand_over::HandOver>>,
    pub(crate) counts: Vec<Row<counts::Counts>>,
    pub(crate) held: Vec<Row<held::Held>>,
    pub(crate) aged: Vec<Row<aged::Aged>>,
}

impl Measured {
    /// In the order of the document; none of a family without rows, or of which the goals say all.
    pub(crate) fn tables(&self, run: &Run) -> Vec<Table> {
        let mut tables = vec![
            cycle::table("cycle, p50 (p99)", &self.cycle, run.bench.store),
            cycle::table("cycle, three masters, p50 (p99)", &self.redlock, Store::Redlock),
            contended::table(run, &self.contended),
            hand_over::table(run, &self.hand_over),
        ];
        tables.retain(|table| !table.is_empty());
        tables
    }
}

/// What was measured of one contestant behind one network.
#[derive(Debug, Clone)]
pub(crate) struct Row<T> {
    pub(crate) contestant: Contestant,
    /// Loopback, where there is no server, too.
    pub(crate) network: Network,
    pub(crate) figure: T,
}

/// The figure of `contestant` on `network`, if it took part.
pub(crate) fn figure<T>(rows: &[Row<T>], contestant: Contestant, network: Network) -> Option<&T> {
    find(rows, contestant, network, |_| true)
}

/// The same in one of several shapes of the scene.
fn find<T>(rows: &[Row<T>], contestant: Contestant, network: Network, is_it: impl Fn(&T) -> bool) -> Option<&T> {
    let is_it = |row: &&Row<T>| (row.contestant, row.network) == (contestant, network) && is_it(&row.figure);
    rows.iter().find(is_it).map(|row| &row.figure)
}

/// Lets everybody take turns, so that a noisy moment meets all alike: of each contestant what its rounds found. A round may
/// find nothing; a contestant of whom no round found anything is left out.
pub(crate) fn take_turns<T>(
    contestants: &[Contestant],
    rounds: usize,
    mut round: impl FnMut(Contestant) -> Result<Option<T>>,
) -> Result<Vec<(Contestant, Vec<T>)>> {
    let mut found: Vec<_> = contestants.iter().map(|contestant| (*contestant, Vec::new())).collect();
    for _ in 0..rounds {
        for (contestant, found) in &mut found {
            found.extend(round(*contestant)?);
        }
    }
    found.retain(|(_, found)| !found.is_empty());
    Ok(found)
}

/// The half and the tail, as a table has them; a dash for who did not take part.
fn cell(times: Option<&Times>, network: Network) -> String {
    let (_, write) = network.unit();
    let known = times.filter(|times| times.p50.is_finite());
    known.map_or_else(|| "–".to_owned(), |times| format!("{} ({})", write(times.p50), write(times.p99)))
}

/// When many contend, in nanoseconds of the clock that all processes share.
struct Window {
    start: u64,
    /// From here on it is looked at: until everybody queues, those who came first have the lock more often.
    from: u64,
    end: u64,
}

impl Window {
    /// Time for every process to hear of the start.
    const LEAD_NANOS: u64 = 100_000_000;
    const WARM_NANOS: u64 = 200_000_000;

    fn of(contend: Duration) -> Result<Self> {
        let start = now() + Self::LEAD_NANOS;
        let from = start + Self::WARM_NANOS;
        Ok(Self { start, from, end: from + u64::try_from(contend.as_nanos())? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_a_turn_in_each_round_and_a_contestant_without_figures_has_no_row() {
        let mut turns = Vec::new();
        let contestants = [Contestant::Own, Contestant::Rslock, Contestant::RedisFloor];
        let found = take_turns(&contestants, 2, |contestant| {
            turns.push(contestant);
            Ok((contestant != Contestant::Rslock).then_some(turns.len()))
        });
        assert_eq!(turns, [contestants, contestants].concat());
        assert_eq!(found.unwrap(), [(Contestant::Own, vec![1, 4]), (Contestant::RedisFloor, vec![3, 6])]);
    }
}
