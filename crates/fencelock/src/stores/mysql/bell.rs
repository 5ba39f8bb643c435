//! Wakes a session for its grant: a second connection sleeps in the server, until the granting client ends its query with `KILL QUERY`. The
//! connection lives while the session waits for anything, and a while longer.

use std::sync::Weak;
use std::time::Duration;

use super::connection::{Connection, column};
use super::link::Mysql;
use super::session::MysqlSession;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::database::call::Calls as _;
use crate::kit::database::ear::Ear;
use crate::kit::database::link::{Dialler, Purpose};
use crate::kit::database::session::FairSession;
use crate::kit::own_places::over;
use crate::kit::reconnect::Dial as _;

const SLEEP: Duration = Duration::from_secs(20);

/// The name of the lock that the session's connection with this number holds. The listening connection waits for it.
fn pillow(session: &MysqlSession, number: u64) -> String {
    format!("{}_{number}", session.bell)
}

/// Listens while the session waits, and for one more sleep: a session that waited lately soon waits again.
pub(super) async fn listen(session: &MysqlSession, main: &Weak<Connection>, bell: &Ear) -> Result<()> {
    let FairSession { places, opening, session: number, .. } = session;
    let mut dialler = Dialler::<Mysql>::new(&session.config, Purpose::Locks, Some(opening));
    dialler.silence += SLEEP;
    let ear = dialler.dial(0).await?;
    if !may_ring(session, &ear, main).await? {
        let message = "the releasing client may not wake waiting clients (KILL QUERY, GET_LOCK)";
        return Err(Error::new(ErrorKind::Denied, "listen", message));
    }
    let mut mark = -1;
    loop {
        let Some(pillow) = main.upgrade().map(|main| pillow(session, main.state.number)) else { return Ok(()) };
        let seconds = if mark < 0 { 0 } else { SLEEP.as_secs() };
        let arguments = vec![(*number).into(), mark.into(), pillow.into(), seconds.into()];
        let rung = ear.sleep(arguments).await?;
        let Some(main) = main.upgrade() else { return Ok(()) };
        let rung = match &rung {
            // Woken once; the next call shows further rings.
            None => mark + 1,
            Some(row) if column::<i64>("listen", row, 1)? != 0 => {
                // The other connection has ended at the server; a request on it shows that.
                return main.simple("listen", "DO 0").await.map(drop);
            }
            Some(row) => column::<i64>("listen", row, 0)?,
        };
        if rung < 0 {
            // Looks show that the session ended, too.
            return Err(over("listen"));
        }
        if rung != mark {
            mark = rung;
            bell.rung(places);
        } else if !places.is_waiting() {
            return Ok(());
        }
    }
}

async fn may_ring(session: &MysqlSession, ear: &Connection, main: &Weak<Connection>) -> Result<bool> {
    let Some(main) = main.upgrade() else { return Ok(true) };
    for (connection, name) in [(ear, &session.bell), (&*main, &pillow(session, main.state.number))] {
        match connection.simple("listen", &format!("SELECT GET_LOCK('{name}', 0)")).await {
            Ok(rows) if rows.first().and_then(|row| column("listen", row, 0).ok()) == Some(Some(1)) => {}
            // An older connection of the session holds the lock, until the server notices its end.
            Ok(rows) if rows.first().and_then(|row| column("listen", row, 0).ok()) == Some(Some(0)) => {
                let message = "another connection of the session still has its named lock";
                return Err(Error::new(ErrorKind::Unreachable, "listen", message).retryable());
            }
            Err(error) if error.is_retryable() || !connection.is_alive() => return Err(error),
            // A server that has no such locks, or forbids them.
            refused => {
                tracing::debug!(?refused, "the server gives no named lock");
                return Ok(false);
            }
        }
    }
    Ok(main.ask("listen", "try_bell", vec![session.bell.as_str().into()]).await?.signed(0)? == 0)
}
