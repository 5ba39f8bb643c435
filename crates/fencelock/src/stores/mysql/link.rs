//! The link to the server: the first requests, and the purpose of a connection.

use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::{StreamExt, stream};

use super::connection::Connection;
use super::layout::layout_and_config;
use super::setup::{meet, our_schema};
use super::url::Config;
use crate::ask::{AskedServer, Questions};
use crate::error::{Error, ErrorKind, Result, rounded};
use crate::kit::bounds::{Bounds, MOST_PATIENCE};
use crate::kit::database::{NoUser, Reach, User};
use crate::kit::reconnect::{Dial, Reconnect};
use crate::store::{Opening, StoreUrl, Tasks};
use crate::time::Clock;

pub(super) type Link = Reconnect<Dialler>;

pub(super) struct Dialler {
    config: Arc<Config>,
    clock: Arc<dyn Clock>,
    patience: Duration,
    silence: Duration,
    /// How long a request waits for another transaction's row: shorter than `silence`, so that the server reports the wait.
    waits: Duration,
    user: Arc<dyn User<Connection>>,
    only_looks: bool,
    needs_schema: bool,
    tasks: Option<Tasks>,
}

pub(super) fn dialler(config: &Arc<Config>, user: Arc<dyn User<Connection>>, opening: Option<&Opening>) -> Dialler {
    let Bounds { clock, patience, silence, tasks } = Bounds::of(opening);
    let (config, waits, only_looks) = (Arc::clone(config), silence * 3 / 4, opening.is_none());
    Dialler { config, clock, patience, silence, waits, user, only_looks, needs_schema: true, tasks }
}

pub(super) async fn bare(config: &Arc<Config>) -> Result<Arc<Connection>> {
    let mut dialler = dialler(config, Arc::new(NoUser), None);
    (dialler.only_looks, dialler.needs_schema) = (false, false);
    // Waits for another client that makes the tables.
    (dialler.silence, dialler.waits) = (MOST_PATIENCE * 6, MOST_PATIENCE * 4);
    dialler.dial(0).await
}

/// A separate connection for a request that may wait for another program's transaction: on a shared one all other requests would wait, too.
pub(super) async fn apart(config: &Arc<Config>, opening: Option<&Opening>) -> Result<Arc<Connection>> {
    let mut dialler = dialler(config, Arc::new(NoUser), opening);
    // Shorter than the caller waits for the answer, so that the caller receives the reason.
    (dialler.only_looks, dialler.waits) = (false, dialler.patience * 3 / 4);
    dialler.silence = dialler.silence.max(dialler.patience) * 2;
    dialler.dial(0).await
}

pub(super) async fn patient(config: &Arc<Config>, opening: &Opening, sleeps: Duration) -> Result<Arc<Connection>> {
    let mut dialler = dialler(config, Arc::new(NoUser), Some(opening));
    dialler.silence += sleeps;
    dialler.dial(0).await
}

/// Asks the server, whatever its settings are.
pub(super) fn ask(url: StoreUrl, questions: Questions) -> Result<Vec<AskedServer>> {
    let config = layout_and_config(url)?.1;
    let shown = format!("{config:?}");
    let answers = async move {
        let Bounds { clock, silence, .. } = Bounds::of(None);
        let opened = Connection::open(&config, Arc::new(NoUser), 0, clock, silence, &Tasks::here()?, false).await?;
        Ok(stream::iter(questions).then(|question| opened.0.lines(question)).collect().await)
    };
    Ok(vec![(shown, Box::pin(answers))])
}

impl Reach for Dialler {
    type Config = Config;

    fn reach(
        config: &Arc<Config>,
        user: Arc<dyn User<Connection>>,
        opening: Option<&Opening>,
        silence: Option<Duration>,
    ) -> Arc<Link> {
        let mut dialler = dialler(config, user, opening);
        dialler.silence = silence.unwrap_or(dialler.silence);
        // All other requests of this client wait behind a row of another program's open transaction.
        (dialler.needs_schema, dialler.waits) = (false, Duration::from_secs(1));
        dialler.link()
    }
}

impl Dial for Dialler {
    type Connection = Connection;

    fn dial(&self, number: u64) -> BoxFuture<'_, Result<Arc<Connection>>> {
        Box::pin(async move {
            let tasks = self.tasks.clone().map_or_else(Tasks::here, Ok)?;
            tokio::select! {
                biased;
                greeted = self.greeted(number, &tasks) => greeted,
                () = self.clock.sleep_until(self.clock.now().after(self.patience)) => Err(self.too_slow(self.patience)),
            }
        })
    }

    fn too_slow(&self, within: Duration) -> Error {
        Error::new(ErrorKind::Unreachable, "connect", "the server gave no answer in time")
            .with("server", format_args!("{:?}", self.config))
            .with("within", rounded(within))
            .retryable()
    }

    fn is_alive(connection: &Connection) -> bool {
        connection.is_alive()
    }
}

impl Dialler {
    pub(super) fn link(self) -> Arc<Link> {
        let (clock, patience) = (Arc::clone(&self.clock), self.patience);
        Reconnect::new(self, clock, patience)
    }

    async fn greeted(&self, number: u64, tasks: &Tasks) -> Result<Arc<Connection>> {
        let (user, clock) = (Arc::clone(&self.user), Arc::clone(&self.clock));
        let (connection, chores) =
            Connection::open(&self.config, user, number, clock, self.silence, tasks, !self.needs_schema).await?;
        meet(&connection, self.only_looks, self.waits).await?;
        if self.needs_schema && our_schema(&connection, &self.config, self.only_looks).await? {
            // A connection looks for the schema once.
            let _ = connection.state.schema.set(());
        }
        let connection = Arc::new(connection);
        if let Some(started) = Arc::clone(&self.user).greet(Arc::clone(&connection)).await? {
            // The connection may have ended meanwhile, and its task with it.
            let _ = chores.send(started);
        }
        Ok(connection)
    }
}
