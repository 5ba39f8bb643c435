//! A session of a race layout as the wire sees it, and the tries of those who wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use futures_core::future::BoxFuture;
use futures_util::future::join_all;
use redis::RedisError;

use super::dialect::Dialect;
use super::lines::{Lines, Work};
use crate::error::Result;
use crate::kit::fault::Meaning;
use crate::queue::Claim;
use crate::store::{Loss, Opening, PlaceId};
use crate::stores::redis::wire::{Chores, Connection, LinkUser, Run, Script, Server};
use crate::time::Moment;

/// A client that looks at locks without a session.
pub(super) struct Reader(pub(super) Arc<Dialect>);

impl LinkUser for Reader {
    fn scripts(&self) -> Vec<&'static Script> {
        self.0.scripts.all()
    }

    fn only_looks(&self) -> bool {
        true
    }

    fn greet<'a>(&'a self, _: &'a Arc<Connection>, _: &'a Server) -> BoxFuture<'a, Result<Option<Chores>>> {
        Box::pin(async { Ok(None) })
    }

    fn meaning(&self, error: &RedisError) -> Option<Meaning> {
        self.0.meaning(error)
    }
}

/// What lives as long as a session does, on whichever connection. Nothing in the server stands for the session itself.
pub(super) struct Member {
    pub(super) dialect: Arc<Dialect>,
    pub(super) opening: Opening,
    pub(super) lines: Arc<Lines>,
    pub(super) run: Run,
    /// Before the newest request was sent by which the session counts as living; 0 before it is open.
    confirmed: AtomicU64,
}

impl Member {
    pub(super) fn new(dialect: Arc<Dialect>, opening: Opening, lines: Lines) -> Self {
        let (lines, run, confirmed) = (Arc::new(lines), Run::default(), AtomicU64::new(0));
        Self { dialect, opening, lines, run, confirmed }
    }

    pub(super) fn confirmed(&self) -> Moment {
        Moment::from_nanos(self.confirmed.load(Ordering::Acquire))
    }

    pub(super) fn confirm(&self, sent: Moment) {
        self.confirmed.fetch_max(sent.as_nanos(), Ordering::AcqRel);
    }

    /// Refuses what only a living session can do. One that was not renewed for its ttl has no key left.
    pub(super) fn alive(&self, operation: &'static str) -> Result<()> {
        let confirmed = self.confirmed();
        if confirmed.as_nanos() != 0 && self.opening.clock.now() >= confirmed.after(self.opening.ttl) {
            self.lines.end(Loss::Expired);
        }
        self.lines.alive(operation)
    }

    /// Tries for those who are first in their lines, when they are due, until the connection ends.
    fn tries(&self, connection: &Arc<Connection>) -> Chores {
        let weak = Arc::downgrade(connection);
        let (lines, opening) = (Arc::clone(&self.lines), self.opening.clone());
        let dialect = Arc::clone(&self.dialect);
        Box::pin(async move {
            loop {
                // First, so that nobody is marked as tried for whom nothing is sent.
                let Some(connection) = Weak::upgrade(&weak) else { return };
                match lines.due(opening.clock.now()) {
                    Ok(work) => do_it(work, &connection, &dialect, &lines, &opening).await,
                    Err(next) => {
                        drop(connection);
                        tokio::select! {
                            biased;
                            () = lines.rung() => {}
                            () = opening.clock.sleep_until(next) => {}
                        }
                    }
                }
            }
        })
    }
}

/// What is due, side by side.
async fn do_it(work: Work, connection: &Connection, dialect: &Dialect, lines: &Lines, opening: &Opening) {
    let (clock, ttl) = (&*opening.clock, opening.ttl);
    let tries = async {
        let sent = clock.now();
        let answers = join_all(work.tries.iter().map(|due| async move {
            let call = dialect.acquire(&due.place, due.claim, &due.said, ttl);
            (due, connection.run("next", &call).await)
        }));
        let mut unwanted = Vec::new();
        for (due, tried) in answers.await {
            if lines.answered(due.place.request, tried, (sent, ttl), clock.now()) {
                unwanted.push(due.place.clone());
            }
        }
        if !unwanted.is_empty() {
            give_back(connection, dialect, &unwanted).await;
        }
    };
    let channels = async {
        // First, as what somebody waits for again may be among them. One that is heard for no reason costs a message for each release,
        // and nothing else.
        join_all(work.ignore.iter().map(async |channel| drop(connection.unsubscribe(channel).await))).await;
        join_all(work.listen.iter().map(|(name, claim)| async move {
            let Some(channel) = dialect.channel(name, *claim) else { return };
            if let Some(before) = lines.will_hear(name, &channel, *claim, clock.now()) {
                let _ = connection.unsubscribe(&before).await;
            }
            let subscribed = connection.subscribe(&channel).await;
            if let Err(error) = &subscribed {
                tracing::warn!(%error, %name, "releases of this lock are not heard: it is tried now and then");
            }
            lines.hears(name, subscribed.is_ok(), clock.now());
        }))
        .await;
    };
    tokio::join!(tries, channels);
}

/// Deletes what was granted to waiters that had left: their own deletions may have come before these tries.
pub(super) async fn give_back(connection: &Connection, dialect: &Dialect, places: &[PlaceId]) {
    if let Err(error) = connection.run("withdraw", &dialect.leave(places)).await {
        tracing::warn!(%error, ?places, "a lock was granted to a waiter that had left: it is free when its ttl is over");
    }
}

impl LinkUser for Member {
    fn scripts(&self) -> Vec<&'static Script> {
        self.dialect.scripts.all()
    }

    /// One on which nobody speaks: it tells whether the user may subscribe, and keeps a second connection for messages, where one is
    /// needed, ready for the channels of names.
    fn channel(&self) -> Option<String> {
        let channel = self.dialect.channel?;
        Some(channel(&format!("fencelock:{:016x}", self.opening.owner.client), Claim::MUTEX))
    }

    fn greet<'a>(
        &'a self,
        connection: &'a Arc<Connection>,
        server: &'a Server,
    ) -> BoxFuture<'a, Result<Option<Chores>>> {
        Box::pin(async move {
            let (confirmed, sent) = (self.confirmed(), self.opening.clock.now());
            let loss = self.run.met(server, sent.since(confirmed));
            if let Some(loss) = loss.filter(|_| confirmed.as_nanos() != 0) {
                tracing::warn!(server = %connection.server_name(), %loss, "the session and its locks are lost");
                self.lines.end(loss);
            }
            if confirmed.as_nanos() == 0 {
                // As locks are renewed: a user that may not do that is told now, and not once a lock is held.
                connection.run("open session", &self.dialect.renew(&[], self.opening.ttl)).await?;
                if let Some(channel) = self.channel() {
                    // As releases are told.
                    connection.command("open session", redis::cmd("PUBLISH").arg(channel).arg("")).await?;
                }
                self.confirm(sent);
            }
            self.lines.connected();
            Ok(Some(self.tries(connection)))
        })
    }

    fn heard(&self, _: u64, channel: &[u8], _: &[u8]) {
        self.lines.heard(channel);
    }

    /// A holder asks at once whether its locks are still there: the server may have been started anew.
    fn disconnected(&self, _: u64) {
        self.lines.disconnected();
        self.lines.doubt();
    }

    /// Another server decides from now on, and may not know of what this one granted.
    fn demoted(&self) {
        self.lines.end(Loss::Demoted);
    }

    fn meaning(&self, error: &RedisError) -> Option<Meaning> {
        self.dialect.meaning(error)
    }
}
