//! The link to the servers: their order, the first requests, and the purpose of a connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::{StreamExt, stream};

use super::connection::Connection;
use super::setup::{literal, meet, our_schema};
use super::tables::{ROW_TIMEOUT, layout_and_config};
use super::url::{Address, Config};
use crate::ask::{AskedServer, Questions};
use crate::error::{Error, Result};
use crate::kit::bounds::{Bounds, MOST_PATIENCE};
use crate::kit::database::call::{Calls, Param};
use crate::kit::database::{NoUser, Reach, User};
use crate::kit::reconnect::{Dial, Reconnect};
use crate::store::{Opening, StoreUrl, Tasks};
use crate::time::Clock;

pub(super) type Link = Reconnect<Dialler>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Locks,
    /// A request about locks that may wait for another client's transaction: on a shared connection it would keep all others waiting.
    Patience,
    Looks,
    Tables,
    TableLooks,
    Migration,
}

pub(super) struct Dialler {
    pub(super) config: Arc<Config>,
    pub(super) clock: Arc<dyn Clock>,
    purpose: Purpose,
    patience: Duration,
    /// How long a connection may owe an answer.
    pub(super) silence: Duration,
    /// How long a request waits for rows that another transaction locks.
    lock_timeout: Duration,
    pub(super) user: Arc<dyn User<Connection>>,
    tasks: Option<Tasks>,
}

pub(super) fn dialler(config: &Arc<Config>, purpose: Purpose, opening: Option<&Opening>) -> Dialler {
    let Bounds { clock, patience, silence, tasks } = Bounds::of(opening);
    let (silence, lock_timeout) = match purpose {
        Purpose::Locks | Purpose::Looks => (silence, silence / 2),
        Purpose::Tables | Purpose::TableLooks => (silence, ROW_TIMEOUT),
        // A waiting request is silent for less time than its caller waits, so that the caller learns the reason.
        Purpose::Patience => (silence.max(patience) * 2, patience * 3 / 4),
        // Another client that makes the schema is waited for.
        Purpose::Migration => (MOST_PATIENCE, MOST_PATIENCE / 2),
    };
    Dialler {
        config: Arc::clone(config),
        clock,
        purpose,
        patience,
        silence,
        lock_timeout,
        user: Arc::new(NoUser),
        tasks,
    }
}

pub(super) async fn apart(
    config: &Arc<Config>,
    purpose: Purpose,
    opening: Option<&Opening>,
) -> Result<Arc<Connection>> {
    dialler(config, purpose, opening).dial(0).await
}

/// Asks each server, whatever its role and settings are.
pub(super) fn ask(url: StoreUrl, questions: Questions) -> Result<Vec<AskedServer>> {
    let config = Arc::new(layout_and_config(url)?.1);
    // Without options at the start of a connection, which a pooler would refuse, and which would hide a setting.
    config.pooled.store(true, Ordering::Relaxed);
    let ask = |server: &Address| -> AskedServer {
        let (shown, server, dialler) = (config.shown(server), server.clone(), dialler(&config, Purpose::Looks, None));
        let answers = async move {
            let connection = Connection::open(&dialler, &server, 0, &Tasks::here()?).await?;
            Ok(stream::iter(questions).then(|question| connection.lines(question)).collect().await)
        };
        (shown, Box::pin(answers))
    };
    Ok(config.servers.iter().map(ask).collect())
}

impl Reach for Dialler {
    type Config = Config;

    fn reach(
        config: &Arc<Config>,
        user: Arc<dyn User<Connection>>,
        opening: Option<&Opening>,
        silence: Option<Duration>,
    ) -> Arc<Link> {
        let purpose = if opening.is_some() { Purpose::Tables } else { Purpose::TableLooks };
        let dialler = dialler(config, purpose, opening);
        let silence = silence.unwrap_or(dialler.silence);
        Self { user, silence, ..dialler }.link()
    }
}

impl Dial for Dialler {
    type Connection = Connection;

    fn dial(&self, number: u64) -> BoxFuture<'_, Result<Arc<Connection>>> {
        Box::pin(async move {
            let tasks = self.tasks.clone().map_or_else(Tasks::here, Ok)?;
            let config = &self.config;
            let silent =
                |server: &Address, share| config.addresses.too_slow(config.tls.is_some(), config.shown(server), share);
            let greet = |server| self.greeted(server, number, &tasks);
            config.addresses.dial_one_of(&config.servers, (&*self.clock, self.patience), silent, greet).await
        })
    }

    fn too_slow(&self, within: Duration) -> Error {
        self.config.addresses.too_slow(self.config.tls.is_some(), format!("{:?}", self.config), within)
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

    async fn greeted(&self, server: &Address, number: u64, tasks: &Tasks) -> Result<Arc<Connection>> {
        let connection = match Connection::open(self, server, number, tasks).await {
            Err(error) if error.context().any(|(_, said)| said.contains("unsupported startup parameter")) => {
                self.config.pooled.store(true, Ordering::Relaxed);
                Connection::open(self, server, number, tasks).await?
            }
            opened => opened?,
        };
        let greeted = async {
            let only_looks = matches!(self.purpose, Purpose::Looks | Purpose::TableLooks);
            let met = meet(&connection, only_looks, self.silence, self.lock_timeout).await;
            if let (Err(_), Address::Tcp(named)) = (&met, server) {
                // Another server of the same name may be fit.
                self.config.addresses.forget(named);
            }
            met?;
            let is_pooled = connection.pooled().is_some();
            self.config.pooled.store(is_pooled, Ordering::Relaxed);
            if is_pooled && number == 1 {
                tracing::warn!(server = self.config.shown(server), "behind a pooler, waiting clients look every 50 ms");
            }
            if matches!(self.purpose, Purpose::Locks | Purpose::Patience | Purpose::Looks) {
                if !our_schema(&connection, &self.config.schema, only_looks).await? {
                    return Ok(());
                }
                let schema = self.config.schema.quoted();
                connection.prepare(&schema).await?;
                if is_pooled && !only_looks {
                    // A pooler may change servers without notice: from now on every transaction fails on another server.
                    let mark = connection.ask("connect", "on_server", vec![Param::Null]).await?;
                    let check = format!("SELECT {schema}.on_server({}); ", literal(mark.text(0)?));
                    connection.pooled().iter_mut().for_each(|begin| begin.push_str(&check));
                }
            }
            if let Some(chores) = Arc::clone(&self.user).greet(Arc::clone(&connection)).await? {
                connection.keep_doing(chores, tasks);
            }
            Ok(())
        };
        greeted.await.map_err(|error: Error| error.with("server", self.config.shown(server)))?;
        Ok(connection)
    }
}
