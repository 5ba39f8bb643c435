//! A cell in a database or in etcd. In a database, a waiter leaves nothing on the server: only its refusal proves its try.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::cells::{Cell, Expected};
use crate::driver::value;
use crate::pair::{COUNTS, PARENT, Pair, TURNS, in_time};
use crate::play::{A_WHILE, Played};
use crate::pool::Pool;

/// The ttl of every lock; other clients renew none. With a much shorter ttl, a busy machine would end locks in use.
pub(crate) const TTL: Duration = Duration::from_secs(20);

/// All clients poll, every 0.3 s at the latest. Generous, since several cells are played at a time.
const WAKE_BOUND: Duration = Duration::from_secs(4);

/// How long after a killed holder's ttl the other client may wait for the grant.
const TAKEOVER_SLACK: Duration = Duration::from_secs(20);

/// The needs of a game in a database.
pub(crate) struct Stage<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) scratch: &'a Path,
    /// The distinction of its files.
    pub(crate) place: &'static str,
}

impl Stage<'_> {
    /// Plays a cell, under names that contain its `number`.
    pub(crate) fn play(&self, cell: &Cell, number: usize) -> Result<Played> {
        let mut game = Game { stage: self, number, pair: Pair::hire(self.pool, cell, PARENT)?, rounds: 0 };
        let name = game.fresh();
        let played = match cell.expected {
            Expected::Granted => game.pair.granted(&name),
            Expected::Refused => game.pair.refused(&name),
            _ => game.waits(),
        }?;
        game.pair.dismiss();
        Ok(played)
    }
}

/// Two processes in the middle of a cell.
struct Game<'a> {
    stage: &'a Stage<'a>,
    number: usize,
    pair: Pair<'a>,
    rounds: usize,
}

impl Game<'_> {
    fn waits(&mut self) -> Result<Played> {
        self.is_excluded()?;
        let turn = |_| {
            let name = self.fresh();
            self.pair.turn(&name)
        };
        let wake = in_time((0..TURNS).map(turn).collect::<Result<_>>()?, WAKE_BOUND)?;
        let (name, stage) = (self.fresh(), self.stage);
        let file = stage.scratch.join(format!("{}-counter-{}", stage.place, self.number));
        let counted = self.pair.cell.mutual.then(|| self.pair.count(&name, COUNTS, &file, None)).transpose()?;
        let name = self.fresh();
        self.pair.hold(&name)?;
        self.pair.queue_up(&name)?;
        let takeover = self.pair.crash(TTL + TAKEOVER_SLACK)?;
        Ok(Played { wake: Some(wake), counted, takeover: Some(takeover), refusal: None })
    }

    /// A contender that tries for a while is refused, and has the lock after its release.
    fn is_excluded(&mut self) -> Result<()> {
        let name = self.fresh();
        let held = self.pair.hold(&name)?;
        self.pair.is_refused(&name, A_WHILE)?;
        self.is_shown(&name)?;
        self.pair.let_go(&held)?;
        self.pair.comes_and_goes(&name)
    }

    /// fencelock shows the owner of the lock. A session of the server is never shown as a fencelock's.
    fn is_shown(&mut self, name: &str) -> Result<()> {
        let (holder, Some(ours)) = (self.pair.cell.holder, self.pair.cell.ours()) else { return Ok(()) };
        let whose = if holder == ours && !ours.recipe.contains("key=") { "ours" } else { "foreign" };
        let order = format!("holder {}", self.pair.lock(ours, name));
        let driver = if holder == ours { &mut self.pair.holder } else { &mut self.pair.contender };
        let shown = driver.ask(&order)?;
        ensure!(value(&shown, "holder")? == whose, "fencelock shows {shown}");
        Ok(())
    }

    /// An unused name. Named locks are the whole server's.
    fn fresh(&mut self) -> String {
        self.rounds += 1;
        format!("interop-{}-{}-{}", self.stage.place, self.number, self.rounds)
    }
}
