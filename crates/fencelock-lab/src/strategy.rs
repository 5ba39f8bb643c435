//! The faults of the workers of a drill, and of their store.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::time::Duration;

use fencelock::ErrorKind;

use super::fleet::Fleet;
use super::site::{Outage, Site};

/// A named plan of faults for processes, servers and networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Strategy {
    /// No fault is made.
    Calm,
    /// Processes are killed at any moment.
    KillAnybody,
    /// Processes are killed that hold a lock.
    KillHolders,
    /// Processes are killed that wait and hold nothing.
    KillWaiters,
    /// Processes that hold a lock are stopped, and continue later.
    StopHolders,
    /// Processes are stopped and continued, or killed, at any moment.
    Everything,
    /// Processes that hold a lock are stopped until their session has certainly ended, and then continue.
    StopHoldersPastTheirSession,
    /// The store has this outage, which is mended well before it can end a session.
    Brief(Outage),
    /// The store has this outage until the sessions that depend on the broken part have ended.
    Long(Outage),
    /// Everything that the store's site can do and everything above, one at a time, in random order.
    Storm,
}

impl Strategy {
    /// Strategies that need nothing but processes.
    pub const PROCESSES: [Self; 6] =
        [Self::Calm, Self::KillAnybody, Self::KillHolders, Self::KillWaiters, Self::StopHolders, Self::Everything];

    /// Whether `site` allows this strategy.
    #[must_use]
    pub fn is_possible(self, site: &dyn Site) -> bool {
        match self {
            Self::Brief(outage) | Self::Long(outage) => site.can(outage),
            Self::StopHoldersPastTheirSession => site.ttl() > Duration::ZERO,
            _ => true,
        }
    }

    /// The kind of error with which the store refuses during the fault, besides the errors that every fault explains.
    pub(super) fn refusal(self) -> Option<ErrorKind> {
        match self {
            Self::Brief(outage) | Self::Long(outage) => outage.refusal(),
            _ => None,
        }
    }

    /// Makes one fault: first for a worker that is stopped already, else for another worker or the store.
    pub(super) fn strike(self, fleet: &mut Fleet, rng: &mut fastrand::Rng, toll: &mut Toll) -> io::Result<()> {
        if self == Self::Storm {
            return one_of_all(fleet, rng).strike(fleet, rng, toll);
        }
        let stopped: Vec<usize> = numbers(fleet, |fleet, number| fleet.workers[number].is_stopped);
        if let Some(number) = rng.choice(&stopped).copied() {
            return match self == Self::Everything && rng.usize(..3) == 0 {
                true => kill(fleet, number, toll),
                false => fleet.go_on(number),
            };
        }
        let ttl = fleet.site().ttl();
        match self {
            Self::Brief(outage) => befall(outage, ttl / 6, fleet, rng, toll),
            Self::Long(outage) => befall(outage, ttl * 7 / 4, fleet, rng, toll),
            _ => self.hurt_one(fleet, rng, toll),
        }
    }

    fn hurt_one(self, fleet: &mut Fleet, rng: &mut fastrand::Rng, toll: &mut Toll) -> io::Result<()> {
        if matches!(self, Self::KillHolders | Self::StopHolders | Self::StopHoldersPastTheirSession) {
            fleet.wait_for_a_holder()?;
        }
        let holders = numbers(fleet, |fleet, number| fleet.workers[number].view.holds());
        let waiters =
            numbers(fleet, |fleet, number| fleet.workers[number].view.waits() && !fleet.workers[number].view.holds());
        let all = numbers(fleet, |_, _| true);
        match (self, rng.choice(&holders).copied(), rng.choice(&waiters).copied(), rng.choice(&all).copied()) {
            (Self::KillAnybody, _, _, Some(number))
            | (Self::KillHolders, Some(number), _, _)
            | (Self::KillWaiters, _, Some(number), _) => kill(fleet, number, toll),
            (Self::StopHolders, Some(number), _, _) => stop(fleet, number, toll),
            (Self::StopHoldersPastTheirSession, Some(number), _, _) => {
                stop(fleet, number, toll)?;
                let past = fleet.site().ttl() * 7 / 4;
                fleet.watch(past)?;
                fleet.go_on(number)
            }
            (Self::Everything, _, _, Some(number)) if rng.usize(..2) == 0 => stop(fleet, number, toll),
            (Self::Everything, _, _, Some(number)) => kill(fleet, number, toll),
            _ => Ok(()),
        }
    }
}

/// The next fault of a storm.
fn one_of_all(fleet: &Fleet, rng: &mut fastrand::Rng) -> Strategy {
    let outages = Outage::ALL.into_iter().flat_map(|outage| [Strategy::Brief(outage), Strategy::Long(outage)]);
    let others = Strategy::PROCESSES.into_iter().chain([Strategy::StopHoldersPastTheirSession]);
    let site = fleet.site();
    let possible: Vec<Strategy> = outages.chain(others).filter(|strategy| strategy.is_possible(&*site)).collect();
    rng.choice(&possible).copied().unwrap_or(Strategy::Calm)
}

fn befall(
    outage: Outage,
    lasting: Duration,
    fleet: &mut Fleet,
    rng: &mut fastrand::Rng,
    toll: &mut Toll,
) -> io::Result<()> {
    let worker = rng.usize(..fleet.workers.len());
    let site = fleet.site();
    fleet.note(&format!("{outage:?} {worker}"))?;
    site.strike(outage, worker, rng.u64(..))?;
    *toll.outages.entry(outage).or_default() += 1;
    fleet.watch(lasting)?;
    site.heal()?;
    fleet.note("healed")
}

fn numbers(fleet: &Fleet, which: impl Fn(&Fleet, usize) -> bool) -> Vec<usize> {
    (0..fleet.workers.len()).filter(|number| which(fleet, *number)).collect()
}

fn kill(fleet: &mut Fleet, number: usize, toll: &mut Toll) -> io::Result<()> {
    fleet.kill(number)?;
    toll.killed += 1;
    toll.killed_holders += usize::from(fleet.workers[number].view.holds());
    toll.killed_waiters += usize::from(fleet.workers[number].view.waits());
    fleet.replace(number)
}

fn stop(fleet: &mut Fleet, number: usize, toll: &mut Toll) -> io::Result<()> {
    fleet.stop(number)?;
    toll.stopped += 1;
    toll.stopped_holders += usize::from(fleet.workers[number].view.holds());
    Ok(())
}

/// The faults that were made, so that a test can tell that it tested something.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Toll {
    /// Processes killed.
    pub killed: usize,
    /// Killed workers that held a lock.
    pub killed_holders: usize,
    /// Killed workers that waited for a lock.
    pub killed_waiters: usize,
    /// Processes stopped.
    pub stopped: usize,
    /// Stopped workers that held a lock.
    pub stopped_holders: usize,
    /// How often the store had each outage.
    pub outages: BTreeMap<Outage, usize>,
}

impl fmt::Display for Toll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { killed, killed_holders, killed_waiters, stopped, stopped_holders, outages } = self;
        write!(f, "{killed} killed ({killed_holders} holders, {killed_waiters} waiters), ")?;
        write!(f, "{stopped} stopped ({stopped_holders} holders)")?;
        outages.iter().try_for_each(|(outage, count)| write!(f, ", {count} {outage:?}"))
    }
}
