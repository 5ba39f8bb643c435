//! Wakes a session for its grants: the server notifies a connection that listens, which is the session's own or, behind a pooler, one to the bell.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::connection::Connection;
use super::link::Postgres;
use super::session::PostgresSession;
use super::url::{Config, bad};
use crate::error::{Error, ErrorKind, Result};
use crate::kit::database::User;
use crate::kit::database::call::{Calls as _, Param};
use crate::kit::database::ear::Ear;
use crate::kit::database::link::{Dialler, Purpose};
use crate::kit::reconnect::Dial as _;

const POOLER: &str = "`bell` leads to a pooler, where no session can listen: name the server itself";
const ELSEWHERE: &str = "`bell` leads to another server or database than the URL, or to a standby";

/// The user of the connection to the bell. Messages count as messages of the session's own connection, which has the same number.
struct BellUser {
    session: Arc<PostgresSession>,
    main: Weak<Connection>,
}

impl User<Connection> for BellUser {
    fn receive(&self, connection: u64, message: &[u8]) {
        self.session.places.receive(connection, message);
    }

    fn disconnected(&self, _: u64) {
        self.main.upgrade().into_iter().for_each(|main| main.state().ear.unsettled.notify_one());
    }
}

/// Connects to the bell, if the bell belongs to the server to which the pooler leads `main`.
async fn dial(session: &Arc<PostgresSession>, bell: &Arc<Config>, main: &Arc<Connection>) -> Result<Arc<Connection>> {
    let user = Arc::new(BellUser { session: Arc::clone(session), main: Arc::downgrade(main) });
    let mut dialler = Dialler::<Postgres>::new(bell, Purpose::Looks, Some(&session.opening));
    dialler.user = user;
    let connection = dialler.dial(main.state().number).await?;
    if connection.pooled().is_some() {
        // The name may lead to the server itself later.
        bell.pooled.store(false, Ordering::Relaxed);
        return Err(bad(POOLER));
    }
    let mark = main.ask("listen", "on_server", vec![Param::Null]).await?;
    let elsewhere = |cause| Error::new(ErrorKind::Config, "listen", ELSEWHERE).retryable().with("cause", cause);
    connection.ask("listen", "on_server", vec![mark.text(0)?.into()]).await.map_err(elsewhere)?;
    Ok(connection)
}

/// Listens until the session has no places: while a session works, it keeps its connection to the bell.
pub(super) async fn listen(session: &Arc<PostgresSession>, main: &Weak<Connection>, ear: &Ear) -> Result<()> {
    let Some(main) = main.upgrade() else { return Ok(()) };
    let bell = match &session.config.bell {
        Some(bell) if main.pooled().is_some() => {
            let dialled = dial(session, bell, &main).await;
            Some(dialled.map_err(|error| error.with("bell", format_args!("{bell:?}")))?)
        }
        _ => None,
    };
    let connection = bell.as_ref().unwrap_or(&main);
    connection.call("listen", "listen", vec![session.bell.as_str().into()]).await?;
    let connection = Arc::downgrade(connection);
    drop(main);
    ear.rung(&session.places);
    loop {
        ear.unsettled.notified().await;
        let ended = || Error::new(ErrorKind::Unreachable, "listen", "the connection ended").retryable();
        let connection = connection.upgrade().filter(|connection| connection.is_alive()).ok_or_else(ended)?;
        if session.places.has_places() {
            // Without requests, a silent server would not be noticed.
            if bell.is_some() {
                connection.simple("listen", "SELECT").await?;
            }
            continue;
        }
        ear.stop();
        // A place that began to wait meanwhile counts on the ear.
        match session.places.has_places() {
            true => ear.rung(&session.places),
            false => return connection.simple("listen", "UNLISTEN *").await.map(drop),
        }
    }
}
