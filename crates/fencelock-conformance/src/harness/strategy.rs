//! What is done to the workers of a drill.

use std::fmt;
use std::io;

use super::fleet::Fleet;
use super::rng::Rng;

/// A way to hurt processes, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Strategy {
    /// Nothing is done.
    Calm,
    /// Processes are killed in the middle of whatever they do.
    KillAnybody,
    /// Processes are killed that hold a lock.
    KillHolders,
    /// Processes are killed that wait and hold nothing.
    KillWaiters,
    /// Processes are stopped that hold a lock, and go on later.
    StopHolders,
    /// Processes are stopped and continued, or killed, in the middle of whatever they do.
    Everything,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Calm, Self::KillAnybody, Self::KillHolders, Self::KillWaiters, Self::StopHolders, Self::Everything];

    /// Hurts once: first whoever is stopped already, else somebody else.
    pub(super) fn strike(self, fleet: &mut Fleet, rng: &mut Rng, toll: &mut Toll) -> io::Result<()> {
        let stopped: Vec<usize> = numbers(fleet, |fleet, number| fleet.workers[number].is_stopped);
        if let Some(number) = rng.choose(&stopped) {
            return match self == Self::Everything && rng.below(3) == 0 {
                true => kill(fleet, number, toll),
                false => fleet.go_on(number),
            };
        }
        let holders = numbers(fleet, |fleet, number| fleet.workers[number].view.holds());
        let waiters =
            numbers(fleet, |fleet, number| fleet.workers[number].view.waits() && !fleet.workers[number].view.holds());
        let all = numbers(fleet, |_, _| true);
        match (self, rng.choose(&holders), rng.choose(&waiters), rng.choose(&all)) {
            (Self::KillAnybody, _, _, Some(number))
            | (Self::KillHolders, Some(number), _, _)
            | (Self::KillWaiters, _, Some(number), _) => kill(fleet, number, toll),
            (Self::StopHolders, Some(number), _, _) => stop(fleet, number, toll),
            (Self::Everything, _, _, Some(number)) if rng.below(2) == 0 => stop(fleet, number, toll),
            (Self::Everything, _, _, Some(number)) => kill(fleet, number, toll),
            _ => Ok(()),
        }
    }
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

/// What was done, so that a test can tell that it tested something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Toll {
    /// Processes killed.
    pub killed: usize,
    /// Those of them that held a lock.
    pub killed_holders: usize,
    /// Those of them that waited for one.
    pub killed_waiters: usize,
    /// Processes stopped.
    pub stopped: usize,
    /// Those of them that held a lock.
    pub stopped_holders: usize,
}

impl fmt::Display for Toll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { killed, killed_holders, killed_waiters, stopped, stopped_holders } = self;
        write!(f, "{killed} killed ({killed_holders} holders, {killed_waiters} waiters), ")?;
        write!(f, "{stopped} stopped ({stopped_holders} holders)")
    }
}
