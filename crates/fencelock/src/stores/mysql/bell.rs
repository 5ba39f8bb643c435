//! Wakes a session for its grant: a second connection sleeps in the server, until the granting client ends its query with `KILL QUERY`. The
//! connection lives while the session waits for anything, and a while longer.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::connection::{Connection, column};
use super::link::Mysql;
use super::session::MysqlSession;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::database::call::Calls as _;
use crate::kit::database::link::{Dialler, Purpose};
use crate::kit::database::session::FairSession;
use crate::kit::own_places::over;
use crate::kit::reconnect::Dial as _;
use crate::kit::served::{REPAIR, portions};

const SLEEP: Duration = Duration::from_secs(20);
pub(super) const POLL: Duration = Duration::from_millis(500);

#[derive(Default)]
pub(super) struct ServerBell {
    rings: AtomicU64,
    is_listening: AtomicBool,
    deaf: AtomicBool,
    wanted: Notify,
}

impl ServerBell {
    /// Compare this before and after a request: a grant in between may have rung before the session noted that it waits.
    pub(super) fn rings(&self) -> u64 {
        self.rings.load(Ordering::SeqCst)
    }

    /// The time until the next look at a place, from the server's answer `said` and the number of rings before the place's request.
    pub(super) fn look_in(&self, said: Option<Duration>, rings: u64) -> Option<Duration> {
        self.wanted.notify_one();
        match self.is_listening.load(Ordering::SeqCst) && self.rings() == rings {
            true => said,
            false if self.is_deaf() => Some(said.map_or(POLL, |said| said.min(POLL))),
            false => Some(Duration::ZERO),
        }
    }

    pub(super) fn is_deaf(&self) -> bool {
        self.deaf.load(Ordering::SeqCst)
    }
}

/// The name of the lock that the session's connection with this number holds, and that the listening connection waits for.
fn pillow(session: &MysqlSession, number: u64) -> String {
    format!("{}_{number}", session.bell)
}

pub(super) async fn listen(session: Arc<MysqlSession>, main: Weak<Connection>) {
    let (bell, clock) = (&session.ear, &session.opening.clock);
    bell.is_listening.store(false, Ordering::SeqCst);
    loop {
        bell.wanted.notified().await;
        while session.places.is_waiting() && !bell.is_deaf() {
            let listened = hear(&session, &main).await;
            bell.is_listening.store(false, Ordering::SeqCst);
            if let Err(error) = listened {
                // Meanwhile the session looks at intervals.
                tracing::debug!(%error, "the session cannot listen");
                clock.sleep_until(clock.now().after(REPAIR)).await;
            }
        }
        if main.strong_count() == 0 {
            return;
        }
    }
}

async fn hear(session: &MysqlSession, main: &Weak<Connection>) -> Result<()> {
    let FairSession { ear: bell, places, opening, session: number, .. } = session;
    let mut dialler = Dialler::<Mysql>::new(&session.config, Purpose::Locks, Some(opening));
    dialler.silence += SLEEP;
    let ear = dialler.dial(0).await?;
    if !may_ring(session, &ear, main).await? {
        bell.deaf.store(true, Ordering::SeqCst);
        tracing::warn!(
            "the releasing client may not wake waiting clients (KILL QUERY, GET_LOCK), which look every {} ms",
            POLL.as_millis()
        );
        return Ok(());
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
                main.simple("listen", "DO 0").await?;
                return Ok(());
            }
            Some(row) => column::<i64>("listen", row, 0)?,
        };
        if rung < 0 {
            // Looks show that the session ended, too.
            return Err(over("listen"));
        }
        if rung == mark {
            // A session that waited lately soon waits again: the connection stays for one more sleep.
            match places.is_waiting() {
                true => continue,
                false => return Ok(()),
            }
        }
        mark = rung;
        bell.rings.fetch_add(1, Ordering::SeqCst);
        bell.is_listening.store(true, Ordering::SeqCst);
        for asked in portions(places.waiting()) {
            let look = session.look(&main, &asked).await?;
            places.looked(&asked, look, opening.clock.now());
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
