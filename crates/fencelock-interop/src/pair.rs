//! Two processes that contend for one lock: the steps that cells on all servers share.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::cells::Cell;
use crate::clients::Client;
use crate::driver::{Answer, Driver, value};
use crate::play::{PATIENCE, Played, SILENCE};
use crate::pool::Pool;

/// A further option of fencelock: patience with a server on a busy machine.
pub(crate) const OPTIONS: &str = "request_deadline_ms=5000";

/// How often the lock passes from the holder to the waiter.
pub(crate) const TURNS: usize = 3;

/// How often each process adds to the counter where clients poll for each other: every turn takes some tenth of a second.
pub(crate) const COUNTS: u64 = 10;

/// The part of a key between a client's own prefix and the name.
pub(crate) const PARENT: &str = "interop";

/// A holder and a contender in the middle of a cell.
pub(crate) struct Pair<'a> {
    pool: &'a Pool,
    pub(crate) cell: &'a Cell,
    /// Where the names of locks are.
    parent: String,
    pub(crate) holder: Driver,
    pub(crate) contender: Driver,
}

impl<'a> Pair<'a> {
    pub(crate) fn hire(pool: &'a Pool, cell: &'a Cell, parent: &str) -> Result<Self> {
        let hire = |client: &Client| pool.hire(client.program, client.title);
        let (holder, contender) = (hire(cell.holder)?, hire(cell.contender)?);
        Ok(Self { pool, cell, parent: parent.to_owned(), holder: holder.ready()?, contender: contender.ready()? })
    }

    pub(crate) fn dismiss(self) {
        self.pool.dismiss(self.cell.holder.program, self.holder);
        self.pool.dismiss(self.cell.contender.program, self.contender);
    }

    /// The three words that mean a lock to the driver of `client`.
    pub(crate) fn lock(&self, client: &Client, name: &str) -> String {
        format!("{} {} {name}", client.recipe, self.parent)
    }

    pub(crate) fn acquire(&self, client: &Client, name: &str) -> String {
        format!("acquire {} -1", self.lock(client, name))
    }

    /// The holder takes all that there is: the handles.
    pub(crate) fn hold(&mut self, name: &str) -> Result<Vec<String>> {
        let order = self.acquire(self.cell.holder, name);
        let mut take = || Ok(value(&self.holder.ask(&order)?, "handle")?.to_owned());
        (0..self.cell.holder.capacity).map(|_| take()).collect()
    }

    /// The holder releases its lock.
    pub(crate) fn let_go(&mut self, held: &[String]) -> Result<()> {
        held.iter().try_for_each(|handle| self.holder.ask(&format!("release {handle}")).map(drop))
    }

    /// The contender tries.
    pub(crate) fn tries(&mut self, name: &str) -> Result<()> {
        let order = self.acquire(self.cell.contender, name);
        self.contender.send(&order)
    }

    /// The contender has tried, and did not get the lock.
    pub(crate) fn is_kept_waiting(&self) -> Result<()> {
        match self.contender.answer(SILENCE)? {
            None => Ok(()),
            Some(answer) => bail!("the contender should wait, and received {answer:?} while the other holds"),
        }
    }

    /// The contender tries for a while, and is refused.
    pub(crate) fn is_refused(&mut self, name: &str, wait: Duration) -> Result<()> {
        self.contender.send(&format!("acquire {} {}", self.lock(self.cell.contender, name), wait.as_millis()))?;
        match self.contender.answer(PATIENCE)? {
            Some(Answer::Busy) => Ok(()),
            other => bail!("the contender should have been refused, and received {other:?}"),
        }
    }

    /// The contender takes the lock, and gives it back.
    pub(crate) fn comes_and_goes(&mut self, name: &str) -> Result<()> {
        let acquired = self.contender.ask(&self.acquire(self.cell.contender, name))?;
        give_back(&mut self.contender, &acquired)
    }

    /// The contender tries, and does not get the lock.
    pub(crate) fn queue_up(&mut self, name: &str) -> Result<()> {
        self.tries(name)?;
        self.is_kept_waiting()
    }

    /// The holder releases first the permits that the contender lacks. The contender takes the lock and releases it. The time counts
    /// from just before the release to the contender's grant.
    pub(crate) fn hand_over(&mut self, held: &[String]) -> Result<Duration> {
        // A mutex waits until all are back.
        let (first, rest) = held.split_at((held.len() + 1).saturating_sub(self.cell.contender.capacity).max(1));
        let mut released: u64 = 0;
        for handle in first {
            released = value(&self.holder.ask(&format!("release {handle}"))?, "at")?.parse()?;
        }
        let acquired = self.contender.done().context("after the release")?;
        give_back(&mut self.contender, &acquired)?;
        self.let_go(rest)?;
        let acquired: u64 = value(&acquired, "at")?.parse()?;
        Ok(Duration::from_nanos(acquired.saturating_sub(released)))
    }

    /// The lock passes from the holder to the contender.
    pub(crate) fn turn(&mut self, name: &str) -> Result<Duration> {
        let held = self.hold(name)?;
        self.queue_up(name)?;
        self.hand_over(&held)
    }

    /// Kills the holder, for which the contender waits: the time until the contender has the lock, `most` at the longest.
    pub(crate) fn crash(&mut self, most: Duration) -> Result<Duration> {
        let killed = Instant::now();
        self.holder.kill()?;
        let acquired = match self.contender.answer(most)? {
            Some(Answer::Done(acquired)) => acquired,
            other => bail!("the lock of a killed holder should be taken over within {most:?}: {other:?}"),
        };
        let took = killed.elapsed();
        give_back(&mut self.contender, &acquired)?;
        Ok(took)
    }

    /// Both have it at once: readers, or clients that nothing can make exclude each other, as the documents say.
    pub(crate) fn granted(&mut self, name: &str) -> Result<Played> {
        let held = self.hold(name)?;
        self.comes_and_goes(name)?;
        self.let_go(&held)?;
        Ok(Played::default())
    }

    /// The contender tries, and is refused for this reason.
    pub(crate) fn refusal(&mut self, name: &str) -> Result<String> {
        self.tries(name)?;
        match self.contender.answer(PATIENCE)? {
            Some(Answer::Failed(why)) => Ok(why),
            other => bail!("the contender should have been refused, and received {other:?}"),
        }
    }

    /// The client is refused with the reason, changes nothing, and can have the lock afterwards.
    pub(crate) fn refused(&mut self, name: &str) -> Result<Played> {
        let held = self.hold(name)?;
        let refusal = Some(self.refusal(name)?);
        self.let_go(&held).context("a refused client changed the key")?;
        self.comes_and_goes(name)?;
        Ok(Played { refusal, ..Played::default() })
    }

    /// Writers add to a counter in `file` that loses concurrent additions. Readers check that the counter does not change. Holders of
    /// permits each take one of as many seats. `twins` take part, too.
    pub(crate) fn count(&mut self, name: &str, counts: u64, file: &Path, twins: Option<&mut Self>) -> Result<u64> {
        let Cell { holder, contender, .. } = *self.cell;
        let are_seats = holder.capacity > 1;
        std::fs::write(file, if are_seats { "" } else { "0" }).with_context(|| file.display().to_string())?;
        let orders = [holder, contender].map(|client| {
            let (verb, seats) = match client.capacity {
                1 if client.is_shared() => ("look", String::new()),
                1 => ("count", String::new()),
                seats => ("sit", format!(" {seats}")),
            };
            format!("{verb} {} {counts} {}{seats}", self.lock(client, name), file.display())
        });
        let mut all = vec![&mut self.holder, &mut self.contender];
        all.extend(twins.into_iter().flat_map(|twins| [&mut twins.holder, &mut twins.contender]));
        for (driver, order) in all.iter_mut().zip(orders.iter().cycle()) {
            driver.send(order)?;
        }
        for driver in &all {
            driver.done()?;
        }
        let adding = [holder, contender].iter().filter(|client| !client.is_shared()).count() * all.len() / 2;
        let expected = counts * adding as u64;
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let counted = if are_seats { text.len() as u64 } else { text.trim().parse()? };
        ensure!(counted == expected, "{expected} were counted, and the counter says {counted}");
        Ok(counted)
    }
}

/// Gives back what an answer says that the driver has.
pub(crate) fn give_back(driver: &mut Driver, acquired: &str) -> Result<()> {
    driver.ask(&format!("release {}", value(acquired, "handle")?)).map(drop)
}

/// The median of some wakes, which is within `bound`.
pub(crate) fn in_time(mut wakes: Vec<Duration>, bound: Duration) -> Result<Duration> {
    wakes.sort_unstable();
    let wake = wakes[wakes.len() / 2];
    ensure!(wake <= bound, "the next one had the lock only after {} ms", wake.as_millis());
    Ok(wake)
}
