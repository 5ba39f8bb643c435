//! A family of rows is one scene, one file each: its `measure` chooses the contestants, runs the rounds on each network, and keeps their
//! figures. Where stores differ, in the shapes of a scene or in their counters, the family has the rule.

mod aged;
pub(crate) mod contended;
mod counts;
mod cycle;
mod hand_over;
mod held;

use anyhow::Result;

use crate::run::Run;
use crate::what::{Store, Way};

/// A family of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Family {
    /// Acquire and release without contention; on a database with the server's processor.
    Cycle,
    /// 64 tasks of one process, each on a name of its own.
    Apart,
    /// 8 tasks in each of 8 processes, each on a name of its own.
    Services,
    /// 32 tasks of one process on one name.
    Together,
    /// 8 tasks in each of 4 processes, all on one name.
    Processes,
    HandOver,
    /// Requests and notifications.
    Counts,
    /// Locks held and waited for.
    Held,
    /// The cycle during an open transaction of another program.
    Aged,
    /// The cycle on three masters.
    Redlock,
}

impl Family {
    /// The families of a run, in the order of measurement: families that leave many rows in their server come last.
    pub(crate) fn on(store: Store, as_used: bool) -> impl Iterator<Item = Self> {
        use clap::ValueEnum as _;
        let is_on = move |family: &Self| match family {
            Self::Cycle | Self::HandOver | Self::Held => true,
            Self::Apart => as_used || store.has_server(),
            _ if as_used => false,
            Self::Together => true,
            Self::Processes => store != Store::Memory,
            Self::Counts => matches!(store, Store::Redis | Store::ZooKeeper),
            Self::Services | Self::Aged => store.is_sql(),
            Self::Redlock => store == Store::Redis,
        };
        Self::value_variants().iter().copied().filter(is_on)
    }

    pub(crate) fn measure(self, run: &mut Run) -> Result<()> {
        let start = std::time::Instant::now();
        eprintln!("measuring: {}, {self:?}", run.bench.store.name());
        match self {
            Self::Cycle => cycle::measure(run)?,
            Self::Apart => contended::measure(run, Way::Apart)?,
            Self::Services => contended::measure(run, Way::Services)?,
            Self::Together => contended::measure(run, Way::Together)?,
            Self::Processes => contended::measure(run, Way::Processes)?,
            Self::HandOver => hand_over::measure(run)?,
            Self::Counts => counts::measure(run)?,
            Self::Held => held::measure(run)?,
            Self::Aged => aged::measure(run)?,
            Self::Redlock => run.on(Store::Redlock, cycle::measure)?,
        }
        eprintln!("measured: {self:?}, in {:.0} s", start.elapsed().as_secs_f64());
        Ok(())
    }
}
