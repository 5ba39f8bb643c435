//! A cell: a holder, a client that tries, and the expected result.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fencelock_testbed::wait_until;

use crate::cells::{Cell, Expected, Scene};
use crate::clients::Nodes;
use crate::driver::Driver;
use crate::pair::{Pair, give_back, in_time};
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

/// How long after the end of a killed holder's session the other client may wait for the grant.
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
    /// From just before the release until the next client has the lock; the median of [`TURNS`].
    pub(crate) wake: Option<Duration>,
    /// The common count of both sides.
    pub(crate) counted: Option<u64>,
    /// From the kill of the holder until the next client has the lock.
    pub(crate) takeover: Option<Duration>,
    /// The message of a refusal.
    pub(crate) refusal: Option<String>,
}

impl Stage<'_> {
    /// Plays a cell, under names that contain its `number`.
    pub(crate) fn play(&self, cell: &Cell, number: usize) -> Result<Played> {
        // Some take every node under one parent for a contender: no two cells share one.
        let is_alone = cell.holder.nodes != Nodes::Together;
        let parent = if is_alone { "/locks".to_owned() } else { format!("/together-{number}") };
        let hire = || Pair::hire(self.pool, cell, &parent);
        let (pair, twins) = (hire()?, cell.has_twins().then(hire).transpose()?);
        let mut game = Game { stage: self, number, parent: &parent, pair, twins, rounds: 0 };
        let played = match (cell.scene, cell.expected) {
            (Scene::Downgrade, _) => game.downgraded(),
            (_, Expected::Waits | Expected::Sleeps) => game.waits(),
            (_, Expected::Granted | Expected::Shares) => {
                let name = game.fresh().name;
                game.pair.granted(&name)
            }
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
    parent: &'a str,
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
        let (name, file) = (self.fresh().name, self.stage.scratch.join(format!("counter-{}", self.number)));
        let twins = self.twins.as_mut();
        let counted = self.pair.cell.mutual.then(|| self.pair.count(&name, COUNTS, &file, twins)).transpose()?;
        self.middle()?;
        let lock = self.fresh();
        self.pair.hold(&lock.name)?;
        self.queue_up(&lock, false)?;
        let takeover = self.pair.crash(SESSION + TAKEOVER_SLACK)?;
        Ok(Played { wake: Some(wake), counted, takeover: Some(takeover), refusal: None })
    }

    /// The lock, or one permit, goes from one client to the other.
    fn turn(&mut self, is_watched: bool) -> Result<Duration> {
        let lock = self.fresh();
        let held = self.pair.hold(&lock.name)?;
        self.queue_up(&lock, is_watched)?;
        self.pair.hand_over(&held)
    }

    /// The contender waits for a while only, leaves nothing behind, and gets the lock once it is free.
    fn give_up(&mut self) -> Result<()> {
        let lock = self.fresh();
        let held = self.pair.hold(&lock.name)?;
        self.pair.is_refused(&lock.name, A_WHILE)?;
        self.is_alone(&lock)?;
        self.pair.let_go(&held)?;
        self.pair.comes_and_goes(&lock.name)
    }

    /// The failed tries have left nothing behind.
    fn is_alone(&self, lock: &Lock) -> Result<()> {
        self.wait_for(self.pair.cell.holder.capacity, lock)
            .context("who did not get the lock should leave nothing behind")
    }

    /// The first of two waiters is killed. The holder releases the lock while the dead waiter's node is still there, or,
    /// in every other cell, once the node is gone.
    fn middle(&mut self) -> Result<()> {
        let Some(Pair { holder: mut last, contender: mut middle, .. }) = self.twins.take() else { return Ok(()) };
        let lock = self.fresh();
        let held = self.pair.hold(&lock.name)?;
        middle.send(&self.pair.acquire(self.pair.cell.contender, &lock.name))?;
        self.wait_for(held.len() + 1, &lock)?;
        last.send(&self.pair.acquire(self.pair.cell.holder, &lock.name))?;
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
        self.pair.let_go(&held[1..])?;
        self.stage.pool.dismiss(self.pair.cell.holder.program, last);
        Ok(())
    }

    /// The client is refused with the reason, leaves nothing behind, and can have the lock afterwards.
    fn refused(&mut self) -> Result<Played> {
        let lock = self.fresh();
        let held = self.pair.hold(&lock.name)?;
        let refusal = Some(self.pair.refusal(&lock.name)?);
        self.is_alone(&lock)?;
        self.pair.let_go(&held)?;
        self.pair.comes_and_goes(&lock.name)?;
        Ok(Played { refusal, ..Played::default() })
    }

    /// Waits until `count` clients contend for the lock.
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
        let shown = fencelock.ask(&format!("queue {}", self.pair.lock(ours, &lock.name)))?;
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
        let mut queues = holder.queues(self.parent, &name);
        queues.extend(contender.queues(self.parent, &name));
        queues.sort_unstable();
        queues.dedup();
        Lock { name, queues, is_alone: holder != Nodes::Together }
    }

    /// The contender tries, and is in the queue behind the holder.
    pub(crate) fn queue_up(&mut self, lock: &Lock, is_watched: bool) -> Result<()> {
        self.pair.tries(&lock.name)?;
        self.wait_for(self.pair.cell.holder.capacity + 1, lock)?;
        if !is_watched {
            return Ok(());
        }
        self.is_shown(lock)?;
        self.pair.is_kept_waiting()
    }
}

/// A name and where its nodes are.
pub(crate) struct Lock {
    pub(crate) name: String,
    /// The nodes whose children contend for the lock.
    queues: Vec<String>,
    /// Nodes of no other client are there.
    is_alone: bool,
}

impl Lock {
    fn is_mine(&self, child: &str) -> bool {
        self.is_alone || child.contains(&self.name)
    }
}
