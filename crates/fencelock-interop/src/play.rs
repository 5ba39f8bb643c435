//! A cell: a holder, a client that tries, and the expected result.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use fencelock_testbed::wait_until;

use crate::cells::{Cell, Expected, Scene};
use crate::clients::{Client, Nodes};
use crate::driver::{Answer, Driver, value};
use crate::pair::{Pair, in_time};
use crate::pool::Pool;

/// The session timeout of every client. With a much shorter one, a busy machine would end sessions in use.
pub(crate) const SESSION: Duration = Duration::from_secs(6);

/// How often the lock goes from the holder to the waiter.
const TURNS: usize = 5;

/// How often each process adds to the counter.
const COUNTS: u64 = 25;

/// How long a waiter is watched to see that it waits.
pub(crate) const SILENCE: Duration = Duration::from_millis(250);

/// How long a waiter waits before it gives up.
pub(crate) const A_WHILE: Duration = Duration::from_millis(200);

/// The limit of every step that takes milliseconds on a machine at rest.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A notified waiter has the lock within milliseconds, a polling one after half its period. Generous, since several
/// cells are played at a time.
pub(crate) const WAKE_BOUND: Duration = Duration::from_secs(1);

/// How much later than its session's end the lock of a killed holder may be granted to the other.
const TAKEOVER_SLACK: Duration = Duration::from_secs(5);

/// The needs of a game: drivers, two observers, and a place for files.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) scratch: &'a Path,
    /// Lists nodes.
    pub(crate) observer: &'a Mutex<Driver>,
    /// fencelock, which lists queues.
    pub(crate) fencelock: &'a Mutex<Driver>,
}

/// The outcome of a cell.
#[derive(Debug, Default)]
pub(crate) struct Played {
    /// From just before the release to the moment that the next one has the lock; the median of [`TURNS`].
    pub(crate) wake: Option<Duration>,
    /// The common count of both sides.
    pub(crate) counted: Option<u64>,
    /// From the kill of the holder to the moment that the next one has the lock.
    pub(crate) takeover: Option<Duration>,
    /// The message of a refusal.
    pub(crate) refusal: Option<String>,
}

impl Stage<'_> {
    /// Plays a cell, under names that contain its `number`.
    pub(crate) fn play(&self, cell: &Cell, number: usize) -> Result<Played> {
        let pair = Pair::hire(self.pool, cell)?;
        let twins = cell.has_twins().then(|| Pair::hire(self.pool, cell)).transpose()?;
        let mut game = Game { stage: self, number, pair, twins, rounds: 0 };
        let played = match (cell.scene, cell.expected) {
            (Scene::Downgrade, _) => game.downgraded(),
            (_, Expected::Waits | Expected::Sleeps) => game.waits(),
            (_, Expected::Granted | Expected::Shares) => game.granted(),
            (_, Expected::Refused) => game.refused(),
        }?;
        game.pair.dismiss();
        Ok(played)
    }

    /// How many contend for a lock.
    fn contenders(&self, lock: &Lock) -> Result<usize> {
        let mut observer = self.observer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut contenders = 0;
        for queue in &lock.queues {
            let children = observer.ask(&format!("children {queue}"))?;
            contenders += children.split(' ').filter(|child| !child.is_empty() && lock.is_mine(child)).count();
        }
        Ok(contenders)
    }
}

/// Two processes in the middle of a cell.
pub(crate) struct Game<'a> {
    stage: &'a Stage<'a>,
    number: usize,
    pub(crate) pair: Pair<'a>,
    /// A further process of each side: a waiter may then have several ahead, of its own kind and of the other.
    twins: Option<Pair<'a>>,
    rounds: usize,
}

impl Game<'_> {
    fn waits(&mut self) -> Result<Played> {
        let wake = in_time((0..TURNS).map(|turn| self.turn(turn == 0)).collect::<Result<_>>()?, WAKE_BOUND)?;
        if self.pair.cell.contender.can_give_up() {
            self.give_up()?;
        }
        let counted = if self.pair.cell.mutual { Some(self.count()?) } else { None };
        self.middle()?;
        let takeover = self.crash()?;
        let most = SESSION + TAKEOVER_SLACK;
        ensure!(takeover <= most, "taken over only after {} s", takeover.as_secs_f64());
        Ok(Played { wake: Some(wake), counted, takeover: Some(takeover), refusal: None })
    }

    /// The lock, or one permit, goes from one to the other.
    fn turn(&mut self, is_watched: bool) -> Result<Duration> {
        let lock = self.fresh();
        let held = self.hold(&lock)?;
        self.queue_up(&lock, is_watched)?;
        self.hand_over(&held)
    }

    /// The holder lets go, of as many of its permits first as there are too many for who waits; the waiter gets it,
    /// and gives it back.
    pub(crate) fn hand_over(&mut self, held: &[String]) -> Result<Duration> {
        // A mutex waits until all are back.
        let (first, rest) = held.split_at((held.len() + 1).saturating_sub(self.pair.cell.contender.capacity).max(1));
        let mut released = 0;
        for handle in first {
            released = value(&self.pair.holder.ask(&format!("release {handle}"))?, "at")?.parse()?;
        }
        let acquired = self.pair.contender.done().context("after the release")?;
        give_back(&mut self.pair.contender, &acquired)?;
        self.let_go(rest)?;
        let acquired: u64 = value(&acquired, "at")?.parse()?;
        Ok(Duration::from_nanos(acquired.saturating_sub(released)))
    }

    /// The contender waits for a while only, leaves nothing behind, and gets the lock once it is free.
    fn give_up(&mut self) -> Result<()> {
        let lock = self.fresh();
        let held = self.hold(&lock)?;
        self.pair.contender.send(&format!("acquire {} {}", lock.of(self.pair.cell.contender), A_WHILE.as_millis()))?;
        match self.pair.contender.answer(PATIENCE)? {
            Some(Answer::Busy) => {}
            other => bail!("it should have given up, and was told {other:?}"),
        }
        self.is_alone(&lock)?;
        self.let_go(&held)?;
        self.comes_and_goes(&lock)
    }

    /// The contender gets what is free, and gives it back.
    fn comes_and_goes(&mut self, lock: &Lock) -> Result<()> {
        let acquired = self.pair.contender.ask(&lock.acquire(self.pair.cell.contender))?;
        give_back(&mut self.pair.contender, &acquired)
    }

    /// The others that tried have left nothing behind.
    fn is_alone(&self, lock: &Lock) -> Result<()> {
        self.wait_for(self.pair.cell.holder.capacity, lock)
            .context("who did not get the lock should leave nothing behind")
    }

    /// All add to a counter that loses concurrent additions, or see that it does not change while they read, or take one of as
    /// many seats as there are permits.
    fn count(&mut self) -> Result<u64> {
        let lock = self.fresh();
        let file = self.stage.scratch.join(format!("counter-{}", self.number));
        let are_seats = self.pair.cell.holder.capacity > 1;
        std::fs::write(&file, if are_seats { "" } else { "0" }).with_context(|| file.display().to_string())?;
        let cell = self.pair.cell;
        let mut all = vec![(&mut self.pair.holder, cell.holder), (&mut self.pair.contender, cell.contender)];
        if let Some(Pair { holder, contender, .. }) = &mut self.twins {
            all.extend([(holder, cell.holder), (contender, cell.contender)]);
        }
        for (driver, client) in &mut all {
            driver.send(&turns(client, &lock, &file))?;
        }
        for (driver, _) in &all {
            driver.done()?;
        }
        let expected = COUNTS * all.iter().filter(|(_, client)| !client.is_shared()).count() as u64;
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let counted = if are_seats { text.len() as u64 } else { text.trim().parse()? };
        ensure!(counted == expected, "{expected} were counted, and the counter says {counted}");
        Ok(counted)
    }

    /// The first of two waiters is killed. The holder releases the lock while the dead waiter's node is still there, or,
    /// in every other cell, once the node is gone.
    fn middle(&mut self) -> Result<()> {
        let Some(Pair { holder: mut last, contender: mut middle, .. }) = self.twins.take() else { return Ok(()) };
        let lock = self.fresh();
        let held = self.hold(&lock)?;
        middle.send(&lock.acquire(self.pair.cell.contender))?;
        self.wait_for(held.len() + 1, &lock)?;
        last.send(&lock.acquire(self.pair.cell.holder))?;
        self.wait_for(held.len() + 2, &lock)?;
        let killed = Instant::now();
        middle.kill()?;
        if self.number % 2 == 1 {
            self.wait_for(held.len() + 1, &lock)?;
        }
        self.pair.holder.ask(&format!("release {}", held[0]))?;
        let acquired = last.done().context("after the one ahead was killed")?;
        let took = killed.elapsed();
        ensure!(took <= SESSION + TAKEOVER_SLACK, "one behind a dead one waited for {} s", took.as_secs_f64());
        give_back(&mut last, &acquired)?;
        self.let_go(&held[1..])?;
        self.stage.pool.dismiss(self.pair.cell.holder.program, last);
        Ok(())
    }

    /// The holder is killed while the other waits.
    fn crash(&mut self) -> Result<Duration> {
        let lock = self.fresh();
        self.hold(&lock)?;
        self.queue_up(&lock, false)?;
        let killed = Instant::now();
        self.pair.holder.kill()?;
        let acquired = self.pair.contender.done().context("after the holder was killed")?;
        let took = killed.elapsed();
        give_back(&mut self.pair.contender, &acquired)?;
        Ok(took)
    }

    /// Both have it at once: readers, or clients that nothing can make exclude each other, as the documents say.
    fn granted(&mut self) -> Result<Played> {
        let lock = self.fresh();
        let held = self.hold(&lock)?;
        let also = self.pair.contender.ask(&lock.acquire(self.pair.cell.contender))?;
        give_back(&mut self.pair.contender, &also)?;
        self.let_go(&held)?;
        Ok(Played::default())
    }

    /// The client is refused with the reason, leaves nothing behind, and can have the lock afterwards.
    fn refused(&mut self) -> Result<Played> {
        let lock = self.fresh();
        let held = self.hold(&lock)?;
        self.pair.contender.send(&lock.acquire(self.pair.cell.contender))?;
        let refusal = match self.pair.contender.answer(PATIENCE)? {
            Some(Answer::Failed(why)) => why,
            other => bail!("it should have been refused, and was told {other:?}"),
        };
        self.is_alone(&lock)?;
        self.let_go(&held)?;
        self.comes_and_goes(&lock)?;
        Ok(Played { refusal: Some(refusal), ..Played::default() })
    }

    /// Waits until that many contend.
    fn wait_for(&self, count: usize, lock: &Lock) -> Result<()> {
        let mut seen = 0;
        let reached = wait_until(PATIENCE, || {
            seen = self.stage.contenders(lock).unwrap_or(seen);
            seen == count
        });
        ensure!(reached, "{seen} contend, and not {count}");
        Ok(())
    }

    /// fencelock shows the contenders of every client.
    fn is_shown(&self, lock: &Lock) -> Result<()> {
        let Some(ours) = self.pair.cell.ours() else { return Ok(()) };
        if self.pair.cell.holder.nodes != self.pair.cell.contender.nodes {
            // A waiter elsewhere is not in its queue.
            return Ok(());
        }
        let mut fencelock = self.stage.fencelock.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = fencelock.ask(&format!("queue {}", lock.of(ours)))?;
        let contenders = self.pair.cell.holder.capacity + 1;
        ensure!(shown == format!("contenders={contenders} strangers=0"), "fencelock shows {shown}");
        Ok(())
    }

    /// An unused name.
    pub(crate) fn fresh(&mut self) -> Lock {
        self.rounds += 1;
        // A name that ended in a digit could be taken for the beginning of a number.
        let name = format!("cell-{}-{}-x", self.number, self.rounds);
        let (holder, contender) = (self.pair.cell.holder.nodes, self.pair.cell.contender.nodes);
        // Some take every node under one parent for a contender: no two cells share one.
        let together = || format!("/together-{}", self.number);
        let parent = if holder == Nodes::Together { together() } else { "/locks".to_owned() };
        let mut queues = holder.queues(&parent, &name);
        queues.extend(contender.queues(&parent, &name));
        queues.sort_unstable();
        queues.dedup();
        Lock { parent, name, queues, is_alone: holder != Nodes::Together }
    }

    /// The holder takes all that there is: the handles.
    pub(crate) fn hold(&mut self, lock: &Lock) -> Result<Vec<String>> {
        let order = lock.acquire(self.pair.cell.holder);
        let holder = &mut self.pair.holder;
        let mut take = || Ok(value(&holder.ask(&order)?, "handle")?.to_owned());
        (0..self.pair.cell.holder.capacity).map(|_| take()).collect()
    }

    /// The holder gives back what it has.
    pub(crate) fn let_go(&mut self, held: &[String]) -> Result<()> {
        held.iter().try_for_each(|handle| self.pair.holder.ask(&format!("release {handle}")).map(drop))
    }

    /// The contender tries, and is in the queue behind the holder.
    pub(crate) fn queue_up(&mut self, lock: &Lock, is_watched: bool) -> Result<()> {
        self.pair.contender.send(&lock.acquire(self.pair.cell.contender))?;
        self.wait_for(self.pair.cell.holder.capacity + 1, lock)?;
        if !is_watched {
            return Ok(());
        }
        self.is_shown(lock)?;
        self.is_kept_waiting()
    }

    /// The contender has tried, and did not get the lock.
    pub(crate) fn is_kept_waiting(&self) -> Result<()> {
        match self.pair.contender.answer(SILENCE)? {
            None => Ok(()),
            Some(answer) => bail!("it should wait, and was told {answer:?} while the other holds"),
        }
    }
}

/// Gives back what an answer says that it has.
pub(crate) fn give_back(driver: &mut Driver, acquired: &str) -> Result<()> {
    driver.ask(&format!("release {}", value(acquired, "handle")?)).map(drop)
}

/// The order to be there again and again, and to find a client that should not be.
fn turns(client: &Client, lock: &Lock, file: &Path) -> String {
    let order = |verb| format!("{verb} {} {COUNTS} {}", lock.of(client), file.display());
    match client.capacity {
        1 if client.is_shared() => order("look"),
        1 => order("count"),
        seats => format!("{} {seats}", order("sit")),
    }
}

/// A name and where its nodes are.
pub(crate) struct Lock {
    parent: String,
    name: String,
    /// The nodes whose children contend for the lock.
    queues: Vec<String>,
    /// Nodes of no other client are there.
    is_alone: bool,
}

impl Lock {
    /// The three words that mean it to the driver of `client`.
    fn of(&self, client: &Client) -> String {
        format!("{} {} {}", client.recipe, self.parent, self.name)
    }

    pub(crate) fn acquire(&self, client: &Client) -> String {
        format!("acquire {} -1", self.of(client))
    }

    fn is_mine(&self, child: &str) -> bool {
        self.is_alone || child.contains(&self.name)
    }
}
