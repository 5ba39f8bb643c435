//! A writer becomes a reader: which contenders share the lock with it, and which wait.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::cells::Expected;
use crate::driver::value;
use crate::pair::give_back;
use crate::play::{Game, Played, WAKE_BOUND};

/// Whether the contender queues before the downgrade or after it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comes {
    Before,
    After,
}

impl Game<'_> {
    pub(crate) fn downgraded(&mut self) -> Result<Played> {
        let [before, after] = match self.pair.cell.expected {
            Expected::Shares => [Comes::Before, Comes::After].map(|comes| self.is_let_in(comes)),
            // A later contender queues behind the reader, wherever that is.
            Expected::Granted => [self.is_let_in(Comes::Before), self.is_kept_out(Comes::After)],
            Expected::Waits | Expected::Sleeps | Expected::Refused => {
                [Comes::Before, Comes::After].map(|comes| self.is_kept_out(comes))
            }
        };
        let wake = before?.max(after?);
        ensure!(wake <= WAKE_BOUND, "the next one had the lock only after {} ms", wake.as_millis());
        Ok(Played { wake: Some(wake), ..Played::default() })
    }

    /// A contender that excludes readers gets the lock after the reader's release, and not before.
    fn is_kept_out(&mut self, comes: Comes) -> Result<Duration> {
        let lock = self.fresh();
        let held = self.pair.hold(&lock.name)?;
        if comes == Comes::Before {
            self.queue_up(&lock, false)?;
        }
        self.pair.holder.ask(&format!("downgrade {}", held[0]))?;
        if comes == Comes::After {
            self.queue_up(&lock, false)?;
        }
        self.pair.is_kept_waiting().context("after the downgrade")?;
        self.pair.hand_over(&held)
    }

    /// The contender shares the lock after the downgrade. Returns the time from the downgrade to its grant.
    fn is_let_in(&mut self, comes: Comes) -> Result<Duration> {
        let lock = self.fresh();
        let held = self.pair.hold(&lock.name)?;
        if comes == Comes::Before {
            self.queue_up(&lock, true)?;
        }
        let downgraded: u64 = value(&self.pair.holder.ask(&format!("downgrade {}", held[0]))?, "at")?.parse()?;
        let acquired = match comes {
            Comes::Before => self.pair.contender.done().context("after the downgrade")?,
            Comes::After => {
                let order = self.pair.acquire(self.pair.cell.contender, &lock.name);
                self.pair.contender.ask(&order)?
            }
        };
        give_back(&mut self.pair.contender, &acquired)?;
        self.pair.let_go(&held)?;
        let acquired: u64 = value(&acquired, "at")?.parse()?;
        Ok(Duration::from_nanos(acquired.saturating_sub(downgraded)))
    }
}
