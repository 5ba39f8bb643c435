//! The link to a database: the purposes of connections, the limits of their waits, and their users.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;

use super::call::Calls;
use super::session_locks::SessionLocks;
use super::{NoUser, User};
use crate::error::{Error, Result};
use crate::kit::bounds::Bounds;
use crate::kit::lock_table::{Layout, LockTable, Rows};
use crate::kit::reconnect::{Dial, Reconnect};
use crate::store::{Opening, StoreUrl, Tasks};
use crate::time::Clock;

pub(crate) trait Database: Send + Sync + Sized + 'static {
    type Config: fmt::Debug + Send + Sync + 'static;
    type Connection: Calls;
    /// The keys of locks that last as long as a connection.
    type Keys: SessionLocks<Database = Self>;
    /// Another program's lock table.
    type Table: Rows<Database = Self> + From<LockTable>;

    /// The limit of a statement's wait for a row or key that another program's transaction has locked. The client's other requests wait behind it.
    const ROW_TIMEOUT: Duration;
    /// The bounds of a migration: how long the connection may owe an answer, and how long a statement waits for a lock.
    const MIGRATION: (Duration, Duration);

    fn layout(url: &mut StoreUrl) -> Result<Layout<Self::Keys>>;

    fn config(url: StoreUrl) -> Result<Self::Config>;

    fn layout_and_config(mut url: StoreUrl) -> Result<(Layout<Self::Keys>, Self::Config)> {
        Ok((Self::layout(&mut url)?, Self::config(url)?))
    }

    /// Connects, checks the server, and lets the user of `by` greet it.
    fn dial(
        by: &Dialler<Self>,
        number: u64,
        tasks: &Tasks,
    ) -> impl Future<Output = Result<Arc<Self::Connection>>> + Send;

    fn too_slow(config: &Self::Config, within: Duration) -> Error;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Locks,
    /// A request about locks that may wait for another program's transaction. On a shared connection all requests behind it would wait too.
    Patience,
    Looks,
    /// Locks of other programs, which need no schema.
    Foreign,
    ForeignLooks,
    Migration,
}

impl Purpose {
    pub(crate) fn only_looks(self) -> bool {
        matches!(self, Self::Looks | Self::ForeignLooks)
    }

    pub(crate) fn needs_schema(self) -> bool {
        matches!(self, Self::Locks | Self::Patience | Self::Looks)
    }
}

pub(crate) type Link<D> = Arc<Reconnect<Dialler<D>>>;

pub(crate) struct Dialler<D: Database> {
    pub(crate) config: Arc<D::Config>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) purpose: Purpose,
    pub(crate) patience: Duration,
    /// The time after which a connection that owes an answer is given up.
    pub(crate) silence: Duration,
    /// The limit of a request's wait for rows that another transaction has locked: shorter than `silence`, so that the server reports the wait.
    pub(crate) waits: Duration,
    pub(crate) user: Arc<dyn User<D::Connection>>,
    tasks: Option<Tasks>,
}

impl<D: Database> Dialler<D> {
    pub(crate) fn new(config: &Arc<D::Config>, purpose: Purpose, opening: Option<&Opening>) -> Self {
        let Bounds { clock, patience, silence, tasks } = Bounds::of(opening);
        let (silence, waits) = match purpose {
            Purpose::Locks | Purpose::Looks => (silence, silence / 2),
            Purpose::Foreign | Purpose::ForeignLooks => (silence, D::ROW_TIMEOUT),
            // The server stops waiting before the caller does, so that the caller receives the reason.
            Purpose::Patience => (silence.max(patience) * 2, patience * 3 / 4),
            Purpose::Migration => D::MIGRATION,
        };
        let (config, user) = (Arc::clone(config), Arc::new(NoUser));
        Self { config, clock, purpose, patience, silence, waits, user, tasks }
    }

    pub(crate) fn link(self, user: Arc<dyn User<D::Connection>>) -> Link<D> {
        let (clock, patience) = (Arc::clone(&self.clock), self.patience);
        Reconnect::new(Self { user, ..self }, clock, patience)
    }

    /// A link for locks of other programs, for `user`, which only looks without an `opening`. A connection that owes an answer for `silence`
    /// is given up.
    pub(crate) fn foreign(
        config: &Arc<D::Config>,
        user: Arc<dyn User<D::Connection>>,
        opening: Option<&Opening>,
        silence: Option<Duration>,
    ) -> Link<D> {
        let purpose = if opening.is_some() { Purpose::Foreign } else { Purpose::ForeignLooks };
        let dialler = Self::new(config, purpose, opening);
        let silence = silence.unwrap_or(dialler.silence);
        Self { silence, ..dialler }.link(user)
    }

    /// A connection outside of a link. Its requests can grant locks, so the server first checks its memory, which may lack grants since a
    /// promotion: `resume` does that. No session has the number 0.
    pub(crate) async fn alone(
        config: &Arc<D::Config>,
        purpose: Purpose,
        opening: Option<&Opening>,
    ) -> Result<Arc<D::Connection>> {
        let alone = Self::new(config, purpose, opening).dial(0).await?;
        if purpose == Purpose::Patience {
            alone.ask("connect", "resume", vec![0_u64.into(), 1_u64.into()]).await?;
        }
        Ok(alone)
    }
}

impl<D: Database> Dial for Dialler<D> {
    type Connection = D::Connection;

    fn dial(&self, number: u64) -> BoxFuture<'_, Result<Arc<D::Connection>>> {
        Box::pin(async move {
            let tasks = self.tasks.clone().map_or_else(Tasks::here, Ok)?;
            D::dial(self, number, &tasks).await
        })
    }

    fn too_slow(&self, within: Duration) -> Error {
        D::too_slow(&self.config, within)
    }

    fn is_alive(connection: &D::Connection) -> bool {
        connection.is_alive()
    }
}
