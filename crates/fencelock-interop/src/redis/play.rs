//! A cell on Redis. A waiter leaves nothing on the server there: only its refusal proves its try.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use fencelock_testbed::redis::{Reply, Server};

use super::clients::{READ_LOCK_3_20, WRITES};
use crate::cells::{Cell, Expected, Scene};
use crate::clients::{Nodes, Program};
use crate::driver::{Answer, Driver, value};
use crate::pair::{COUNTS, PARENT, Pair, TURNS, give_back, in_time};
use crate::play::{A_WHILE, PATIENCE, Played};
use crate::pool::Pool;

/// The ttl of every lock. With a much shorter ttl, a busy machine would end locks in use.
pub(crate) const TTL: Duration = Duration::from_secs(12);

/// All clients poll, every 0.3 s at the latest. Generous, since several cells are played at a time.
const WAKE_BOUND: Duration = Duration::from_secs(2);

/// The bound where one of three masters is silent: some clients wait half a second for it at each step.
const WAKE_BOUND_AT_TWO: Duration = Duration::from_secs(8);

/// How long a client tries there before it gives up: longer than its wait for the silent master.
const A_WHILE_AT_TWO: Duration = Duration::from_secs(3);

/// The time after the end of a killed holder's key within which the other client must be granted the lock.
const TAKEOVER_SLACK: Duration = Duration::from_secs(15);

/// The needs of a game on Redis.
pub(crate) struct Stage<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) scratch: &'a Path,
    /// A server, or several independent masters.
    pub(crate) servers: &'a [Server],
    /// fencelock, which shows who holds, and breaks grants.
    pub(crate) fencelock: &'a Mutex<Driver>,
}

impl Stage<'_> {
    /// Plays a cell, under names that contain its `number`.
    pub(crate) fn play(&self, cell: &Cell, number: usize) -> Result<Played> {
        let pair = Pair::hire(self.pool, cell, PARENT)?;
        let mut game = Game { stage: self, servers: self.servers, number, pair, rounds: 0 };
        let name = game.fresh().name;
        let played = match (cell.scene, cell.expected) {
            (Scene::Killed | Scene::Silent, _) => game.loses_a_master(),
            (_, Expected::Waits) => game.waits(),
            (_, Expected::Sleeps) => game.sleeps(),
            (_, Expected::Granted) => game.pair.granted(&name),
            (_, Expected::Shares) => game.shares(),
            (_, Expected::Refused) => game.pair.refused(&name),
        }?;
        game.pair.dismiss();
        Ok(played)
    }

    fn tell(&self, order: &str) -> Result<String> {
        self.fencelock.lock().unwrap_or_else(PoisonError::into_inner).ask(order)
    }
}

/// Two processes in the middle of a cell.
struct Game<'a> {
    stage: &'a Stage<'a>,
    /// The servers that answer.
    servers: &'a [Server],
    number: usize,
    pair: Pair<'a>,
    rounds: usize,
}

impl Game<'_> {
    fn waits(&mut self) -> Result<Played> {
        self.is_excluded()?;
        let wake = in_time((0..TURNS).map(|_| self.turn()).collect::<Result<_>>()?, WAKE_BOUND)?;
        self.breaks()?;
        let (name, file) = (self.fresh().name, self.stage.scratch.join(format!("redis-counter-{}", self.number)));
        let counted = self.pair.cell.mutual.then(|| self.pair.count(&name, COUNTS, &file, None)).transpose()?;
        let takeover = self.crash(Duration::ZERO)?;
        Ok(Played { wake: Some(wake), counted, takeover: Some(takeover), refusal: None })
    }

    /// A master fails while the lock is held: the other two are a quorum, and every step still works.
    fn loses_a_master(&mut self) -> Result<Played> {
        let lock = self.fresh();
        let held = self.pair.hold(&lock.name)?;
        let (failing, left) = self.servers.split_first().context("no masters")?;
        if self.pair.cell.scene == Scene::Killed {
            failing.kill();
        } else {
            failing.pause();
        }
        self.servers = left;
        self.pair.queue_up(&lock.name)?;
        let wake = self.pair.hand_over(&held)?;
        ensure!(wake <= WAKE_BOUND_AT_TWO, "the next one had the lock only after {} ms", wake.as_millis());
        self.is_excluded()?;
        self.breaks()?;
        let takeover = self.crash(Duration::ZERO)?;
        Ok(Played { wake: Some(wake), takeover: Some(takeover), ..Played::default() })
    }

    /// The client receives no notice, and has the lock once it looks again.
    fn sleeps(&mut self) -> Result<Played> {
        self.is_excluded()?;
        // The client may look again right after a release by chance, but not each time.
        let mut wake = self.turn()?;
        for _again in 0..2 * TURNS {
            if wake <= WAKE_BOUND {
                wake = self.turn()?;
            }
        }
        ensure!(
            wake > WAKE_BOUND,
            "it was notified of each release, the last time after {} ms: the documents say that it sleeps",
            wake.as_millis()
        );
        let takeover = self.crash(TTL)?;
        Ok(Played { wake: Some(wake), takeover: Some(takeover), ..Played::default() })
    }

    /// A client that tries for a while is refused, leaves nothing behind and changes nothing; fencelock shows the holder.
    fn is_excluded(&mut self) -> Result<()> {
        let lock = self.fresh();
        let held = self.pair.hold(&lock.name)?;
        let before = self.value(&lock)?;
        let wait = if self.is_one_missing() { A_WHILE_AT_TWO } else { A_WHILE };
        self.pair.is_refused(&lock.name, wait)?;
        ensure!(self.value(&lock)? == before, "who was refused has changed the key");
        self.is_shown(&lock)?;
        self.pair.let_go(&held)?;
        ensure!(self.value(&lock)? == Reply::Nil, "the key is there after the release");
        self.pair.comes_and_goes(&lock.name)
    }

    /// fencelock shows and lists the holder.
    fn is_shown(&self, lock: &Lock) -> Result<()> {
        let Some(ours) = self.pair.cell.ours() else { return Ok(()) };
        let shown = self.stage.tell(&format!("holder {}", self.pair.lock(ours, &lock.name)))?;
        let whose = if self.pair.cell.holder.program == Program::Fencelock { "ours" } else { "foreign" };
        // Without a prefix of the layout's own, another client's lock is a string as any other.
        ensure!(shown == format!("holder={whose} listed=true"), "fencelock shows {shown}");
        Ok(())
    }

    /// The lock goes from one to the other: from just before the release until the next client has it.
    fn turn(&mut self) -> Result<Duration> {
        let lock = self.fresh();
        self.pair.turn(&lock.name)
    }

    /// fencelock breaks the holder's grant: the waiter is granted, and keeps the lock when the broken holder releases.
    fn breaks(&mut self) -> Result<()> {
        let Some(ours) = self.pair.cell.ours().filter(|_| self.is_one_key()) else { return Ok(()) };
        let lock = self.fresh();
        let held = self.pair.hold(&lock.name)?;
        self.pair.queue_up(&lock.name)?;
        let broken = self.stage.tell(&format!("break {}", self.pair.lock(ours, &lock.name)))?;
        ensure!(value(&broken, "broken")? == "true", "fencelock did not break the holder's grant");
        let acquired = self.pair.contender.done().context("after the break")?;
        let theirs = self.value(&lock)?;
        self.pair.holder.send(&format!("release {}", held[0]))?;
        // The words of its refusal are its client's affair.
        ensure!(
            self.pair.holder.answer(PATIENCE)?.is_some(),
            "whose grant was broken never came back from its release"
        );
        ensure!(self.value(&lock)? == theirs, "whose grant was broken has let go of the next one's lock");
        give_back(&mut self.pair.contender, &acquired)
    }

    /// The holder is killed while the contender waits. The contender gets the lock after the key has run out, and not before; `more` is the
    /// time that it may need to look.
    fn crash(&mut self, more: Duration) -> Result<Duration> {
        let lock = self.fresh();
        self.pair.hold(&lock.name)?;
        self.pair.queue_up(&lock.name)?;
        self.pair.holder.kill()?;
        // Before the request to the server: the server's answer counts from later.
        let asked = Instant::now();
        let left = if self.is_one_key() { self.left(&lock)? } else { None };
        let acquired = self.pair.contender.done().context("after the holder was killed")?;
        let took = asked.elapsed();
        if let Some(left) = left {
            // The server rounds to milliseconds.
            ensure!(
                took + Duration::from_millis(2) >= left,
                "taken over after {took:?}, and the key had {left:?} to live"
            );
        }
        let most = left.unwrap_or(TTL) + more + TAKEOVER_SLACK;
        ensure!(took <= most, "taken over only after {took:?}, {left:?} to live");
        give_back(&mut self.pair.contender, &acquired)?;
        Ok(took)
    }

    /// Holder and contender read at the same time. The holder is killed, and the contender reads for longer than the dead reader's lock
    /// lives: no writer is granted. After the contender's release a writer gets the lock.
    fn shares(&mut self) -> Result<Played> {
        let name = self.fresh().name;
        self.pair.granted(&name)?;
        let lock = self.fresh();
        self.pair.hold(&lock.name)?;
        let also = self.pair.contender.ask(&self.pair.acquire(self.pair.cell.contender, &lock.name))?;
        self.pair.holder.kill()?;
        let mut writer = self.stage.pool.hire(WRITES.program, WRITES.title)?.ready()?;
        let longer = TTL + A_WHILE;
        writer.send(&format!("acquire {} {}", self.pair.lock(&WRITES, &lock.name), longer.as_millis()))?;
        match writer.answer(longer + PATIENCE)? {
            Some(Answer::Busy) => {}
            other => bail!("a writer should be kept out by the reader that lives, and received {other:?}"),
        }
        let asked = Instant::now();
        give_back(&mut self.pair.contender, &also)?;
        let acquired = writer.ask(&self.pair.acquire(&WRITES, &lock.name))?;
        let took = asked.elapsed();
        // A reader of Redisson 3.20 also renews the hold of the dead reader, as long as it reads.
        let more = if self.pair.cell.contender == &READ_LOCK_3_20 { TTL } else { Duration::ZERO };
        ensure!(took <= WAKE_BOUND + more, "a writer waited {took:?} more for a reader that was killed");
        give_back(&mut writer, &acquired)?;
        self.stage.pool.dismiss(WRITES.program, writer);
        Ok(Played { takeover: Some(took), ..Played::default() })
    }

    /// An unused name.
    fn fresh(&mut self) -> Lock {
        self.rounds += 1;
        let name = format!("cell-{}-{}", self.number, self.rounds);
        Lock { key: self.pair.cell.holder.nodes.key(PARENT, &name), name }
    }

    /// Whether both contend for a single key.
    fn is_one_key(&self) -> bool {
        let (holder, contender) = (self.pair.cell.holder.nodes, self.pair.cell.contender.nodes);
        matches!(holder, Nodes::String(_) | Nodes::Masters(_)) && holder == contender
    }

    /// The value of the holder's key, of any type: on every server, since some clients still write after the answers of a
    /// quorum.
    fn value(&self, lock: &Lock) -> Result<Reply> {
        let Some(key) = &lock.key else { return Ok(Reply::Nil) };
        let asked = Instant::now();
        loop {
            let mut values = self.ask_all(&["DUMP", key])?;
            values.dedup();
            match values.pop() {
                Some(value) if values.is_empty() => return Ok(value),
                _ => ensure!(asked.elapsed() < PATIENCE, "the servers never came to say the same of {key}"),
            }
        }
    }

    fn is_one_missing(&self) -> bool {
        self.servers.len() < self.stage.servers.len()
    }

    /// The answer of each server that answers.
    fn ask_all(&self, request: &[&str]) -> Result<Vec<Reply>> {
        let ask = |server: &Server| server.ask(request).with_context(|| request.join(" "));
        self.servers.iter().map(ask).collect()
    }

    /// How long a killed holder's key lives at enough servers to deny other clients a quorum.
    fn left(&self, lock: &Lock) -> Result<Option<Duration>> {
        let Some(key) = &lock.key else { return Ok(None) };
        let lives = |reply: Reply| reply.number().and_then(|left| u64::try_from(left).ok());
        let left: Option<Vec<_>> = self.ask_all(&["PTTL", key])?.into_iter().map(lives).collect();
        let mut left = left.context("the key of a killed holder has no end")?;
        left.sort_unstable();
        Ok(Some(Duration::from_millis(left[left.len() / 2])))
    }
}

/// A name, and its key if the holder's lock is a string.
struct Lock {
    key: Option<String>,
    name: String,
}
