//! The link to the servers: their order, and the first requests of a connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::{StreamExt, stream};

use super::advisory::Keys;
use super::connection::Connection;
use super::setup::{literal, meet, our_schema};
use super::tables::Table;
use super::url::{Address, Config, layout};
use crate::ask::{AskedServer, Questions};
use crate::error::{Error, Result};
use crate::kit::database::call::{Calls, Param};
use crate::kit::database::link::{Database, Dialler, Purpose};
use crate::kit::lock_table::Layout;
use crate::store::{StoreUrl, Tasks};

pub(super) struct Postgres;

/// Asks each server, in any role and with any settings.
pub(super) fn ask(url: StoreUrl, questions: Questions) -> Result<Vec<AskedServer>> {
    let config = Arc::new(Postgres::layout_and_config(url)?.1);
    // Without options at the start of a connection, which a pooler would refuse, and which would hide a setting.
    config.pooled.store(true, Ordering::Relaxed);
    let ask = |server: &Address| -> AskedServer {
        let dialler = Dialler::<Postgres>::new(&config, Purpose::Looks, None);
        let (shown, server) = (config.shown(server), server.clone());
        let answers = async move {
            let connection = Connection::open(&dialler, &server, 0, &Tasks::here()?).await?;
            Ok(stream::iter(questions).then(|question| connection.lines(question)).collect().await)
        };
        (shown, Box::pin(answers))
    };
    Ok(config.servers.iter().map(ask).collect())
}

impl Database for Postgres {
    type Config = Config;
    type Connection = Connection;
    type Keys = Keys;
    type Table = Table;

    const ROW_TIMEOUT: Duration = Duration::from_millis(100);
    const MIGRATION: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(5));

    fn layout(url: &mut StoreUrl) -> Result<Layout<Keys>> {
        layout(url)
    }

    fn config(url: StoreUrl) -> Result<Config> {
        Config::from_url(url)
    }

    async fn dial(by: &Dialler<Self>, number: u64, tasks: &Tasks) -> Result<Arc<Connection>> {
        let config = &by.config;
        let silent =
            |server: &Address, share| config.addresses.too_slow(config.tls.is_some(), config.shown(server), share);
        let greet = |server| greeted(by, server, number, tasks);
        config.addresses.dial_one_of(&config.servers, (&*by.clock, by.patience), silent, greet).await
    }

    fn too_slow(config: &Config, within: Duration) -> Error {
        config.addresses.too_slow(config.tls.is_some(), format!("{config:?}"), within)
    }
}

async fn greeted(by: &Dialler<Postgres>, server: &Address, number: u64, tasks: &Tasks) -> Result<Arc<Connection>> {
    let config = &by.config;
    let connection = match Connection::open(by, server, number, tasks).await {
        Err(error) if error.context().any(|(_, said)| said.contains("unsupported startup parameter")) => {
            config.pooled.store(true, Ordering::Relaxed);
            Connection::open(by, server, number, tasks).await?
        }
        opened => opened?,
    };
    let greeted = async {
        let only_looks = by.purpose.only_looks();
        let met = meet(&connection, only_looks, by.silence, by.waits).await;
        if let (Err(_), Address::Tcp(named)) = (&met, server) {
            // Another server of the same name may be fit.
            config.addresses.forget(named);
        }
        met?;
        let is_pooled = connection.pooled().is_some();
        config.pooled.store(is_pooled, Ordering::Relaxed);
        if number == 1 && by.purpose == Purpose::Locks {
            let server = config.shown(server);
            match (is_pooled, &config.bell) {
                (true, None) => tracing::warn!(server, "behind a pooler, waiting clients look every 50 ms"),
                (true, Some(bell)) => {
                    tracing::info!(server, ?bell, "behind a pooler, waiting clients listen to the bell")
                }
                (false, Some(_)) => tracing::warn!(server, "`bell` is unused: the URL leads to no pooler"),
                (false, None) => {}
            }
        }
        if by.purpose.needs_schema() {
            if !our_schema(&connection, &config.schema, only_looks).await? {
                return Ok(());
            }
            let schema = config.schema.quoted();
            connection.prepare(&schema).await?;
            if is_pooled && !only_looks {
                // A pooler may change servers without notice: from now on every transaction fails on another server.
                let mark = connection.ask("connect", "on_server", vec![Param::Null]).await?;
                let check = format!("SELECT {schema}.on_server({}); ", literal(mark.text(0)?));
                connection.pooled().iter_mut().for_each(|begin| begin.push_str(&check));
            }
        }
        if let Some(chores) = Arc::clone(&by.user).greet(Arc::clone(&connection)).await? {
            connection.keep_doing(chores, tasks);
        }
        Ok(())
    };
    greeted.await.map_err(|error: Error| error.with("server", config.shown(server)))?;
    Ok(connection)
}
