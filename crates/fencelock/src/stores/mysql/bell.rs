//! How a session hears that it was granted: a connection of its own that sleeps in the server, and is woken by whoever grants (`KILL
//! QUERY`, which ends its sleep). It is there while the session waits for anything.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::connection::{Connection, column};
use super::link::patient;
use super::member::Eye;
use super::url::Config;
use crate::error::{ErrorKind, Result};
use crate::kit::served::{REPAIR, portions};
use crate::store::Opening;

/// How long one request sleeps that nobody wakes.
const SLEEP: Duration = Duration::from_secs(20);
/// How often waiting places are looked at where nobody can wake anybody.
pub(super) const POLL: Duration = Duration::from_millis(500);

/// What a session knows of its bell.
pub(super) struct Bell {
    /// Drawn at random: whoever knew it could take it away.
    pub(super) name: String,
    /// How often it was heard.
    rings: AtomicU64,
    hears: AtomicBool,
    /// Nobody here may ring bells: everybody looks.
    deaf: AtomicBool,
    wanted: Notify,
}

impl Bell {
    pub(super) fn new(number: u64) -> Self {
        Self {
            name: format!("fencelock_{number:016x}"),
            rings: AtomicU64::new(0),
            hears: AtomicBool::new(false),
            deaf: AtomicBool::new(false),
            wanted: Notify::new(),
        }
    }

    /// To be compared before and after a request: what was granted in between may have been rung for before anybody knew that it waits.
    pub(super) fn rings(&self) -> u64 {
        self.rings.load(Ordering::SeqCst)
    }

    /// In what time to look at a place of whom the server says this, and that waits since a request before which there were `rings`.
    pub(super) fn look_in(&self, said: Option<Duration>, rings: u64) -> Option<Duration> {
        self.wanted.notify_one();
        match self.hears.load(Ordering::SeqCst) && self.rings() == rings {
            true => said,
            false if self.is_deaf() => Some(said.map_or(POLL, |said| said.min(POLL))),
            false => Some(Duration::ZERO),
        }
    }

    pub(super) fn is_deaf(&self) -> bool {
        self.deaf.load(Ordering::SeqCst)
    }
}

/// Listens while places of the session wait. Ends with `main`, the connection of the session.
pub(super) async fn listen(config: Arc<Config>, opening: Opening, bell: Arc<Bell>, eye: Eye, main: Weak<Connection>) {
    bell.hears.store(false, Ordering::SeqCst);
    loop {
        bell.wanted.notified().await;
        while eye.hub.is_waiting() && !bell.is_deaf() {
            let heard = hear(&config, &opening, &bell, &eye, &main).await;
            bell.hears.store(false, Ordering::SeqCst);
            if let Err(error) = heard {
                // Meanwhile it looks.
                tracing::debug!(%error, "the session cannot listen");
                opening.clock.sleep_until(opening.clock.now().after(REPAIR)).await;
            }
        }
        if main.strong_count() == 0 {
            return;
        }
    }
}

async fn hear(config: &Arc<Config>, opening: &Opening, bell: &Bell, eye: &Eye, main: &Weak<Connection>) -> Result<()> {
    let ear = patient(config, opening, SLEEP).await?;
    if !may_ring(&ear, bell, main).await? {
        bell.deaf.store(true, Ordering::SeqCst);
        tracing::warn!(
            "who releases a lock here may not wake who waits (KILL QUERY, GET_LOCK): waiting clients look every {} ms",
            POLL.as_millis()
        );
        return Ok(());
    }
    let mut mark = -1;
    while eye.hub.is_waiting() {
        let seconds = if mark < 0 { 0 } else { SLEEP.as_secs() };
        let arguments = vec![eye.session.into(), mark.into(), seconds.into()];
        let told = match ear.ask("listen", "listen", arguments).await {
            Ok(row) => column::<i64>("listen", &row, 0)?,
            // Woken in another place than its sleep.
            Err(error) if ear.is_alive() && error.kind() == ErrorKind::Unreachable => mark,
            Err(error) => return Err(error),
        };
        if told == mark && told >= 0 {
            continue;
        }
        mark = told;
        bell.rings.fetch_add(1, Ordering::SeqCst);
        bell.hears.store(true, Ordering::SeqCst);
        let Some(main) = main.upgrade() else { return Ok(()) };
        for asked in portions(eye.hub.waiting()) {
            let look = eye.look(&main, &asked).await?;
            eye.hub.looked(&asked, look, opening.clock.now());
        }
    }
    Ok(())
}

/// Has the listening connection be found under the bell's name, and tries whether whoever grants may wake it.
async fn may_ring(ear: &Connection, bell: &Bell, main: &Weak<Connection>) -> Result<bool> {
    let named = match ear.simple("listen", &format!("SELECT GET_LOCK('{}', 0)", bell.name)).await {
        Ok(rows) => rows,
        // A server that has no such locks, or forbids them.
        Err(error) if ear.is_alive() => {
            tracing::debug!(%error, "the server gives no named lock");
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    let is_ours = named.first().and_then(|row| column::<Option<i64>>("listen", row, 0).ok()?) == Some(1);
    let Some(main) = main.upgrade() else { return Ok(true) };
    let refused = main.ask("listen", "try_bell", vec![bell.name.as_str().into()]).await?;
    Ok(is_ours && column::<i64>("listen", &refused, 0)? == 0)
}
