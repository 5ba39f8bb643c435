//! Two processes that contend for one key of a server: the steps that cells on Redis and in databases share.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use crate::cells::Cell;
use crate::clients::Client;
use crate::driver::{Answer, Driver, value};
use crate::play::{PATIENCE, Played, SILENCE, give_back};
use crate::pool::Pool;

/// A further option of fencelock: patience with a server on a busy machine.
pub(crate) const OPTIONS: &str = "request_deadline_ms=5000";

/// How often the lock passes from the holder to the waiter.
pub(crate) const TURNS: usize = 3;

/// How often each process adds to the counter: they poll for each other, so every turn takes some tenth of a second.
const COUNTS: u64 = 10;

/// The part of a key between a client's own prefix and the name.
pub(crate) const PARENT: &str = "interop";

/// A holder and a contender in the middle of a cell.
pub(crate) struct Pair<'a> {
    pool: &'a Pool,
    pub(crate) cell: &'a Cell,
    pub(crate) holder: Driver,
    pub(crate) contender: Driver,
}

impl<'a> Pair<'a> {
    pub(crate) fn hire(pool: &'a Pool, cell: &'a Cell) -> Result<Self> {
        let hire = |client: &Client| pool.hire(client.program, client.title);
        let (holder, contender) = (hire(cell.holder)?, hire(cell.contender)?);
        Ok(Self { pool, cell, holder: holder.ready()?, contender: contender.ready()? })
    }

    pub(crate) fn dismiss(self) {
        self.pool.dismiss(self.cell.holder.program, self.holder);
        self.pool.dismiss(self.cell.contender.program, self.contender);
    }

    /// The holder takes the lock: the handle.
    pub(crate) fn hold(&mut self, name: &str) -> Result<String> {
        let acquired = self.holder.ask(&acquire(self.cell.holder, name))?;
        Ok(value(&acquired, "handle")?.to_owned())
    }

    /// The contender tries for a while, and is refused.
    pub(crate) fn is_refused(&mut self, name: &str, wait: Duration) -> Result<()> {
        self.contender.send(&format!("acquire {} {}", lock(self.cell.contender, name), wait.as_millis()))?;
        match self.contender.answer(PATIENCE)? {
            Some(Answer::Busy) => Ok(()),
            other => bail!("the contender should have been refused, and was told {other:?}"),
        }
    }

    /// The contender takes the lock, and gives it back.
    pub(crate) fn comes_and_goes(&mut self, name: &str) -> Result<()> {
        let acquired = self.contender.ask(&acquire(self.cell.contender, name))?;
        give_back(&mut self.contender, &acquired)
    }

    /// The contender tries, and does not get the lock.
    pub(crate) fn queue_up(&mut self, name: &str) -> Result<()> {
        self.contender.send(&acquire(self.cell.contender, name))?;
        match self.contender.answer(SILENCE)? {
            None => Ok(()),
            Some(answer) => bail!("the contender should wait, and was told {answer:?} while the other holds"),
        }
    }

    /// From just before the release to the moment that the contender has the lock.
    pub(crate) fn hand_over(&mut self, held: &str) -> Result<Duration> {
        let released: u64 = value(&self.holder.ask(&format!("release {held}"))?, "at")?.parse()?;
        let acquired = self.contender.done().context("after the release")?;
        give_back(&mut self.contender, &acquired)?;
        let acquired: u64 = value(&acquired, "at")?.parse()?;
        Ok(Duration::from_nanos(acquired.saturating_sub(released)))
    }

    /// The lock passes from the holder to the contender.
    pub(crate) fn turn(&mut self, name: &str) -> Result<Duration> {
        let held = self.hold(name)?;
        self.queue_up(name)?;
        self.hand_over(&held)
    }

    /// Both have it at once, as the documents say.
    pub(crate) fn granted(&mut self, name: &str) -> Result<Played> {
        let held = self.hold(name)?;
        self.comes_and_goes(name)?;
        self.holder.ask(&format!("release {held}"))?;
        Ok(Played::default())
    }

    /// The client is refused with the reason, changes nothing, and can have the lock afterwards.
    pub(crate) fn refused(&mut self, name: &str) -> Result<Played> {
        let held = self.hold(name)?;
        self.contender.send(&acquire(self.cell.contender, name))?;
        let refusal = match self.contender.answer(PATIENCE)? {
            Some(Answer::Failed(why)) => why,
            other => bail!("it should have been refused, and was told {other:?}"),
        };
        self.holder.ask(&format!("release {held}")).context("a refused client changed the key")?;
        self.comes_and_goes(name)?;
        Ok(Played { refusal: Some(refusal), ..Played::default() })
    }

    /// Both add to a counter in `file`, which loses one of two additions at a time.
    pub(crate) fn count(&mut self, name: &str, file: &Path) -> Result<u64> {
        std::fs::write(file, "0").with_context(|| file.display().to_string())?;
        let order = |client| format!("count {} {COUNTS} {}", lock(client, name), file.display());
        self.holder.send(&order(self.cell.holder))?;
        self.contender.send(&order(self.cell.contender))?;
        self.holder.done()?;
        self.contender.done()?;
        let counted: u64 = std::fs::read_to_string(file)?.trim().parse()?;
        ensure!(counted == 2 * COUNTS, "{} were counted, and the counter says {counted}", 2 * COUNTS);
        Ok(counted)
    }
}

/// The median of some wakes, which is within `bound`.
pub(crate) fn in_time(mut wakes: Vec<Duration>, bound: Duration) -> Result<Duration> {
    wakes.sort_unstable();
    let wake = wakes[wakes.len() / 2];
    ensure!(wake <= bound, "the next one had the lock only after {} ms", wake.as_millis());
    Ok(wake)
}

/// The three words that mean a lock to the driver of `client`.
pub(crate) fn lock(client: &Client, name: &str) -> String {
    format!("{} {PARENT} {name}", client.recipe)
}

pub(crate) fn acquire(client: &Client, name: &str) -> String {
    format!("acquire {} -1", lock(client, name))
}
