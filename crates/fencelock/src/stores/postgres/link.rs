//! The way to the servers: which of them is tried, what is said first, and for whom.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_core::future::BoxFuture;

use super::connection::{Call, Connection, User, strange};
use super::setup::{meet, our_schema};
use super::url::{Address, Config};
use crate::error::{Error, ErrorKind, Result, rounded};
use crate::kit::dial::UNRESOLVED;
use crate::kit::reconnect::{Dial, Reconnect};
use crate::store::{Opening, Tasks};
use crate::time::{Clock, SystemClock};

/// A connection that takes longer to be made, or is silent for longer, is given up, however long a session may live.
const MOST_PATIENCE: Duration = Duration::from_secs(10);
/// The ttl that the patience with a connection of no session goes by.
const READER_TTL: Duration = Duration::from_secs(10);

/// The way to the servers, for one user.
pub(super) type Link = Reconnect<Dialler>;

/// How a connection is made for one user.
pub(super) struct Dialler {
    config: Arc<Config>,
    clock: Arc<dyn Clock>,
    /// How long all servers together may take for a connection to be made.
    patience: Duration,
    /// How long a connection may be silent.
    silence: Duration,
    user: Arc<dyn User>,
    /// Whether it writes nothing, so that a standby will do and no schema is made.
    only_looks: bool,
    needs_schema: bool,
    /// Where the connections' tasks run; `None` for wherever one is made.
    tasks: Option<Tasks>,
}

/// A way for `user`, whose session is opened with `opening`, if it has one. Without one it only looks.
pub(super) fn link(config: &Arc<Config>, user: Arc<dyn User>, opening: Option<&Opening>) -> Arc<Link> {
    let (dialler, patience) = dialler(config, user, opening);
    let clock = Arc::clone(&dialler.clock);
    Reconnect::new(dialler, clock, patience)
}

fn dialler(config: &Arc<Config>, user: Arc<dyn User>, opening: Option<&Opening>) -> (Dialler, Duration) {
    let system = || Arc::new(SystemClock) as Arc<dyn Clock>;
    let clock = opening.map_or_else(system, |opening| Arc::clone(&opening.clock));
    let ttl = opening.map_or(READER_TTL, |opening| opening.ttl);
    let patience = opening.map_or(READER_TTL * 3 / 10, Opening::patience).min(MOST_PATIENCE);
    let dialler = Dialler {
        patience,
        config: Arc::clone(config),
        clock,
        silence: (ttl * 3 / 10).min(MOST_PATIENCE),
        user,
        only_looks: opening.is_none(),
        needs_schema: true,
        tasks: opening.map(|opening| opening.tasks.clone()),
    };
    (dialler, patience)
}

const POOLED: &str = "a pooler in transaction mode stands before the server (as PgBouncer can be): sessions, messages and prepared statements do not outlive a transaction there. Name the server itself, or a pool in session mode; `hold` and `fence` work through it";

/// Which process of the server runs a transaction on this connection.
async fn backend(connection: &Connection, before: &str) -> Result<i32> {
    let rows = connection.simple("connect", &format!("{before}SELECT pg_backend_pid()")).await?;
    rows.first().and_then(|row| row.first()?.as_deref()?.parse().ok()).ok_or_else(|| strange("connect"))
}

/// A user who says and hears nothing.
pub(super) struct Nobody;

impl User for Nobody {
    fn greet<'a>(&'a self, _: &'a Arc<Connection>) -> BoxFuture<'a, Result<Option<super::connection::Chores>>> {
        Box::pin(async { Ok(None) })
    }
}

/// A connection of its own to a server that takes writes, whether or not our schema is there.
pub(super) async fn bare(config: &Arc<Config>) -> Result<Arc<Connection>> {
    let (mut dialler, patience) = dialler(config, Arc::new(Nobody), None);
    dialler.only_looks = false;
    dialler.needs_schema = false;
    // Somebody else who makes the schema is waited for.
    dialler.silence = patience.max(MOST_PATIENCE);
    dialler.dial(0).await
}

/// A connection of its own for one request that may wait for somebody's transaction: on a shared one it would keep all others waiting.
pub(super) async fn apart(config: &Arc<Config>, opening: Option<&Opening>) -> Result<Arc<Connection>> {
    let (mut dialler, patience) = dialler(config, Arc::new(Nobody), opening);
    // What waits for a lock is silent for as long as the server lets it wait.
    (dialler.only_looks, dialler.silence) = (false, dialler.silence.max(patience) * 2);
    let connection = dialler.dial(0).await?;
    // Less than the caller waits for the answer, so that it hears why there is none.
    let wait = format!("SET lock_timeout = {}", (patience * 3 / 4).as_millis().max(1));
    connection.simple("connect", &wait).await?;
    Ok(connection)
}

impl Dial for Dialler {
    type Connection = Connection;

    fn dial(&self, number: u64) -> BoxFuture<'_, Result<Arc<Connection>>> {
        Box::pin(async move {
            let tasks = self.tasks.clone().map_or_else(Tasks::here, Ok)?;
            let (count, last) = (self.config.servers.len(), self.config.last.load(Ordering::Relaxed));
            let deadline = self.clock.now().after(self.patience);
            let mut worst = None;
            for next in 0..count {
                let server = (last + next) % count;
                // One that is silent leaves as much for each of those behind it.
                let share = deadline.since(self.clock.now()) / u32::try_from(count - next).unwrap_or(u32::MAX);
                match self.greeted_within(share, server, number, &tasks).await {
                    Ok(connection) => {
                        self.config.last.store(server, Ordering::Relaxed);
                        return Ok(connection);
                    }
                    // One that is not to be used at all is told rather than one that is away.
                    Err(error) if worst.as_ref().is_none_or(Error::is_retryable) => worst = Some(error),
                    Err(_) => {}
                }
            }
            Err(worst.unwrap_or_else(|| Error::new(ErrorKind::Internal, "connect", "no server is named")))
        })
    }

    fn too_slow(&self, within: Duration) -> Error {
        self.silent(&format!("{:?}", self.config), within)
    }

    fn is_alive(connection: &Connection) -> bool {
        connection.is_alive()
    }
}

impl Dialler {
    /// The error of servers that gave no connection in time.
    fn silent(&self, servers: &str, within: Duration) -> Error {
        let message = match self.config.tls {
            _ if self.config.addresses.are_unresolved() => UNRESOLVED,
            Some(_) => "the server gave no answer in time; does it speak TLS on that port?",
            None => "the server gave no answer in time",
        };
        Error::new(ErrorKind::Unreachable, "connect", message)
            .with("server", servers)
            .with("within", rounded(within))
            .retryable()
    }

    async fn greeted_within(
        &self,
        share: Duration,
        server: usize,
        number: u64,
        tasks: &Tasks,
    ) -> Result<Arc<Connection>> {
        tokio::select! {
            biased;
            greeted = self.greeted(server, number, tasks) => greeted,
            () = self.clock.sleep_until(self.clock.now().after(share)) => {
                Err(self.silent(&self.config.shown(&self.config.servers[server]), share))
            }
        }
    }

    /// Refuses a way on which each transaction may be with another process of the server: what we prepared would be missing there, and
    /// messages would be lost.
    async fn refuse_a_pooler(&self, connection: &Connection, with: i32, server: &Address, tasks: &Tasks) -> Result<()> {
        if connection.process().is_none_or(|said| said == with) {
            return Ok(());
        }
        // Somebody stands between. A second connection takes the process over, if transactions are all that keeps it.
        let (nobody, clock) = (Arc::new(Nobody), Arc::clone(&self.clock));
        let other = async {
            let opened = Connection::open(&self.config, server, nobody, 0, clock, self.silence, tasks).await?;
            let other = backend(&opened.0, "BEGIN; ").await?;
            Ok::<_, Error>(other == with || backend(connection, "").await? != with)
        };
        let deadline = self.clock.now().after(self.silence / 3);
        let is_shared = tokio::select! {
            biased;
            is_shared = other => is_shared?,
            // A pool that has no second process for anybody gives each session one of its own.
            () = self.clock.sleep_until(deadline) => false,
        };
        match is_shared {
            false => Ok(()),
            true => Err(Error::new(ErrorKind::Unsupported, "connect", POOLED)),
        }
    }

    async fn greeted(&self, server: usize, number: u64, tasks: &Tasks) -> Result<Arc<Connection>> {
        let server = &self.config.servers[server];
        let (user, clock) = (Arc::clone(&self.user), Arc::clone(&self.clock));
        let opened = Connection::open(&self.config, server, user, number, clock, self.silence, tasks).await;
        let (connection, sender) = opened?;
        let connection = Arc::new(connection);
        let greeted = async {
            let met = meet(&connection, self.only_looks, self.silence / 2).await;
            if let (Err(_), Address::Tcp(named)) = (&met, server) {
                // Another server of the same name may be fit.
                self.config.addresses.forget(named);
            }
            let process = met?;
            self.refuse_a_pooler(&connection, process, server, tasks).await?;
            if !self.needs_schema {
                return Ok(());
            }
            let schema = our_schema(&connection, &self.config.schema, self.only_looks).await?;
            let Some(schema) = schema else { return Ok(()) };
            let all = Call::ALL.map(|(call, ..)| call);
            let calls = if self.only_looks { &Call::LOOKS[..] } else { &all[..] };
            connection.prepare(&schema, calls).await?;
            if let Some(chores) = self.user.greet(&connection).await? {
                // The task that would do them has ended if nobody takes them.
                let _ = sender.send(chores);
            }
            Ok(())
        };
        greeted.await.map_err(|error: Error| error.with("server", &connection.server_name))?;
        Ok(connection)
    }
}
