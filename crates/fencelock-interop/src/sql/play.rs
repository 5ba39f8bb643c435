//! One cell in a database. Who waits there leaves nothing on the server: that it tried is known by its being refused.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::cells::Cell;
use crate::clients::{Client, Program};
use crate::driver::{Answer, Driver, value};
use crate::play::{A_WHILE, PATIENCE, Played, SILENCE, give_back};
use crate::pool::Pool;

/// Of every lock; others renew none. Much shorter, and a busy machine would end locks that nobody wants to end.
pub(crate) const TTL: Duration = Duration::from_secs(20);

/// What fencelock is told besides: to be patient with a server on a busy machine.
pub(crate) const OPTIONS: &str = "request_deadline_ms=5000";

/// Everybody polls, every 0.3 s at the latest. Generous, since several cells are played at a time.
const WAKE_BOUND: Duration = Duration::from_secs(4);

/// How much later than its ttl the lock of a killed holder may be somebody else's.
const TAKEOVER_SLACK: Duration = Duration::from_secs(20);

/// How often the lock goes from the holder to who waits.
const TURNS: usize = 3;

/// How often each process adds to the counter: they poll for each other, so every turn takes some tenth of a second.
const COUNTS: u64 = 10;

/// What is needed to play in a database.
pub(crate) struct Stage<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) scratch: &'a Path,
    /// What its files are told apart by.
    pub(crate) place: &'static str,
}

impl Stage<'_> {
    /// Plays a cell, under names that contain its `number`.
    pub(crate) fn play(&self, cell: &Cell, number: usize) -> Result<Played> {
        let hire = |client: &Client| self.pool.hire(client.program, client.title);
        let (holder, contender) = (hire(cell.holder)?, hire(cell.contender)?);
        let (holder, contender) = (holder.ready()?, contender.ready()?);
        let mut game = Game { stage: self, cell, number, holder, contender, rounds: 0 };
        game.is_excluded()?;
        let mut wakes = (0..TURNS).map(|_| game.turn()).collect::<Result<Vec<_>>>()?;
        wakes.sort_unstable();
        let wake = wakes[TURNS / 2];
        ensure!(wake <= WAKE_BOUND, "the next one had the lock only after {} ms", wake.as_millis());
        let counted = game.count()?;
        let takeover = game.crash()?;
        let Game { holder, contender, .. } = game;
        self.pool.dismiss(cell.holder.program, holder);
        self.pool.dismiss(cell.contender.program, contender);
        Ok(Played { wake: Some(wake), counted: Some(counted), takeover: Some(takeover), refusal: None })
    }
}

/// Two processes in the middle of a cell.
struct Game<'a> {
    stage: &'a Stage<'a>,
    cell: &'a Cell,
    number: usize,
    holder: Driver,
    contender: Driver,
    rounds: usize,
}

impl Game<'_> {
    /// Who tries for a while is refused, and has the lock after its release.
    fn is_excluded(&mut self) -> Result<()> {
        let name = self.fresh();
        let held = self.hold(&name)?;
        self.contender.send(&format!("acquire {} {}", lock(self.cell.contender, &name), A_WHILE.as_millis()))?;
        match self.contender.answer(PATIENCE)? {
            Some(Answer::Busy) => {}
            other => bail!("it should have been refused, and was told {other:?}"),
        }
        self.is_shown(&name)?;
        self.holder.ask(&format!("release {held}"))?;
        let acquired = self.contender.ask(&acquire(self.cell.contender, &name))?;
        give_back(&mut self.contender, &acquired)
    }

    /// fencelock shows whose lock it is. Of the server's sessions it knows none as its own.
    fn is_shown(&mut self, name: &str) -> Result<()> {
        let (holder, contender) = (self.cell.holder, self.cell.contender);
        let (ours, driver, whose) = match holder.program {
            Program::Fencelock if holder.recipe.contains("key=") => (holder, &mut self.holder, "foreign"),
            Program::Fencelock => (holder, &mut self.holder, "ours"),
            _ => (contender, &mut self.contender, "foreign"),
        };
        let shown = driver.ask(&format!("holder {}", lock(ours, name)))?;
        ensure!(value(&shown, "holder")? == whose, "fencelock shows {shown}");
        Ok(())
    }

    /// The lock goes from one to the other: from just before the release to the moment that the next one has it.
    fn turn(&mut self) -> Result<Duration> {
        let name = self.fresh();
        let held = self.hold(&name)?;
        self.queue_up(&name)?;
        let released: u64 = value(&self.holder.ask(&format!("release {held}"))?, "at")?.parse()?;
        let acquired = self.contender.done().context("after the release")?;
        give_back(&mut self.contender, &acquired)?;
        let acquired: u64 = value(&acquired, "at")?.parse()?;
        Ok(Duration::from_nanos(acquired.saturating_sub(released)))
    }

    /// Both add to a counter that loses what two add at once.
    fn count(&mut self) -> Result<u64> {
        let name = self.fresh();
        let file = self.stage.scratch.join(format!("{}-counter-{}", self.stage.place, self.number));
        std::fs::write(&file, "0").with_context(|| file.display().to_string())?;
        let order = |client| format!("count {} {COUNTS} {}", lock(client, &name), file.display());
        self.holder.send(&order(self.cell.holder))?;
        self.contender.send(&order(self.cell.contender))?;
        self.holder.done()?;
        self.contender.done()?;
        let counted: u64 = std::fs::read_to_string(&file)?.trim().parse()?;
        ensure!(counted == 2 * COUNTS, "{} were counted, and the counter says {counted}", 2 * COUNTS);
        Ok(counted)
    }

    /// The holder is killed while the other waits, which has the lock when that of the dead is over.
    fn crash(&mut self) -> Result<Duration> {
        let name = self.fresh();
        self.hold(&name)?;
        self.queue_up(&name)?;
        let killed = Instant::now();
        self.holder.kill()?;
        let most = TTL + TAKEOVER_SLACK;
        let acquired = match self.contender.answer(most)? {
            Some(Answer::Done(acquired)) => acquired,
            other => bail!("the lock of a killed holder should be taken over within {most:?}: {other:?}"),
        };
        let took = killed.elapsed();
        give_back(&mut self.contender, &acquired)?;
        Ok(took)
    }

    /// A name that nobody has used. Named locks are the whole server's.
    fn fresh(&mut self) -> String {
        self.rounds += 1;
        format!("interop-{}-{}-{}", self.stage.place, self.number, self.rounds)
    }

    fn hold(&mut self, name: &str) -> Result<String> {
        let acquired = self.holder.ask(&acquire(self.cell.holder, name))?;
        Ok(value(&acquired, "handle")?.to_owned())
    }

    /// The contender tries, and has not got it.
    fn queue_up(&mut self, name: &str) -> Result<()> {
        self.contender.send(&acquire(self.cell.contender, name))?;
        match self.contender.answer(SILENCE)? {
            None => Ok(()),
            Some(answer) => bail!("it should wait, and was told {answer:?} while the other holds"),
        }
    }
}

/// The three words that mean a lock to the driver of `client`.
fn lock(client: &Client, name: &str) -> String {
    format!("{} interop {name}", client.recipe)
}

fn acquire(client: &Client, name: &str) -> String {
    format!("acquire {} -1", lock(client, name))
}
