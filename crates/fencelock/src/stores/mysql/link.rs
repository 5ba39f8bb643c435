//! The link to the server: the first requests of a connection.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};

use super::connection::Connection;
use super::get_lock::Keys;
use super::setup::{meet, our_schema};
use super::tables::Table;
use super::url::{Config, layout};
use crate::ask::{AskedServer, Questions};
use crate::error::{Error, ErrorKind, Result, rounded};
use crate::kit::database::call::Calls;
use crate::kit::database::link::{Database, Dialler, Purpose};
use crate::kit::lock_table::Layout;
use crate::store::{StoreUrl, Tasks};

pub(super) struct Mysql;

/// Asks the server, with any settings.
pub(super) fn ask(url: StoreUrl, questions: Questions) -> Result<Vec<AskedServer>> {
    let config = Arc::new(Mysql::layout_and_config(url)?.1);
    let shown = format!("{config:?}");
    let answers = async move {
        let dialler = Dialler::<Mysql>::new(&config, Purpose::Looks, None);
        let opened = Connection::open(&dialler, 0, &Tasks::here()?).await?;
        Ok(stream::iter(questions).then(|question| opened.0.lines(question)).collect().await)
    };
    Ok(vec![(shown, Box::pin(answers))])
}

impl Database for Mysql {
    type Config = Config;
    type Connection = Connection;
    type Keys = Keys;
    type Table = Table;

    const ROW_TIMEOUT: Duration = Duration::from_secs(1);
    const MIGRATION: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(40));

    fn layout(url: &mut StoreUrl) -> Result<Layout<Keys>> {
        layout(url)
    }

    fn config(url: StoreUrl) -> Result<Config> {
        Config::from_url(url)
    }

    async fn dial(by: &Dialler<Self>, number: u64, tasks: &Tasks) -> Result<Arc<Connection>> {
        tokio::select! {
            biased;
            greeted = greeted(by, number, tasks) => greeted,
            () = by.clock.sleep_until(by.clock.now().after(by.patience)) => Err(Self::too_slow(&by.config, by.patience)),
        }
    }

    fn too_slow(config: &Config, within: Duration) -> Error {
        Error::new(ErrorKind::Unreachable, "connect", "the server gave no answer in time")
            .with("server", format_args!("{config:?}"))
            .with("within", rounded(within))
            .retryable()
    }
}

async fn greeted(by: &Dialler<Mysql>, number: u64, tasks: &Tasks) -> Result<Arc<Connection>> {
    let (connection, chores) = Connection::open(by, number, tasks).await?;
    let only_looks = by.purpose.only_looks();
    meet(&connection, only_looks, by.waits).await?;
    if by.purpose.needs_schema() && our_schema(&connection, &by.config, only_looks).await? {
        // A connection looks for the schema once.
        let _ = connection.state().schema.set(());
    }
    let connection = Arc::new(connection);
    if let Some(started) = Arc::clone(&by.user).greet(Arc::clone(&connection)).await? {
        // The connection may have ended meanwhile, and its task with it.
        let _ = chores.send(started);
    }
    Ok(connection)
}
