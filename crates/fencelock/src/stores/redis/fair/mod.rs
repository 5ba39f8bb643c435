//! Our own layout: scripts keep queues, with a record for each name. `NOTES.md` in the folder above has keys, scripts and states.

mod fault;
mod inspect;
mod janitor;
mod layout;
pub(crate) mod notes;
pub(crate) mod scripts;
mod session;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::inspect::Listed;
use self::layout::{KeySpace, LAYOUT_NAME};
use self::session::{FairSession, Reader};
use crate::error::Result;
use crate::kit::served::{Places, REPAIR};
use crate::kit::server::{Events, Server, ServerStore};
use crate::kit::session_state::random_number;
use crate::name::Name;
use crate::store::{
    Break, Capability, Liveness, NoteOrder, NoteRead, Opening, Order, Outline, Pace, Page, Presumption, Queue,
    RequestId, Residue, Store, Tokens, Waiters,
};
use crate::stores::redis::wire::{Config, Connection, Link, LinkUser, link, without_info};

pub(super) static CAPABILITY: Capability = Capability {
    store: "redis",
    layout: LAYOUT_NAME,
    liveness: Liveness::Lease,
    order: Order::Fifo,
    tokens: Tokens::ClockFlooredCounter,
    presumes: &[Presumption::MemoryKept, Presumption::ClockSteady],
    shared_claims: true,
    permits: true,
    notes: true,
    waiters: Waiters::Notified,
    // Keys of sessions expire on time, by the millisecond; a waiter looks within the wake bound.
    detection_slack: Duration::from_millis(100),
    wake_bound: REPAIR.saturating_add(Duration::from_secs(1)),
    // Other clients' layouts keep no queue: the client that finds the key absent acquires the lock.
    same_as: &[],
    residue: &[Residue::Buckets(4096), Residue::Notes, Residue::BreaksForDays(30), Residue::LeftByCrashed],
    pace: Pace::DEFAULT,
    blocking: false,
};

/// The store on this server, whose keys begin with `prefix`.
pub(super) fn new(config: Config, prefix: &str) -> Arc<dyn Store> {
    Arc::new(ServerStore::new(Fair { config: Arc::new(config), layout: Arc::new(KeySpace::new(prefix)) }))
}

/// Locks on a Redis server.
struct Fair {
    config: Arc<Config>,
    layout: Arc<KeySpace>,
}

impl fmt::Debug for Fair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.config, f)
    }
}

impl Server for Fair {
    type Session = FairSession;
    type Listed = Listed;

    fn capability(&self) -> &Capability {
        &CAPABILITY
    }

    fn session(&self, opening: Opening, events: Events) -> Result<(Arc<FairSession>, Arc<Link>)> {
        let (layout, places) = (Arc::clone(&self.layout), Places::new(events));
        let session = Arc::new(FairSession::new(layout, random_number("open session")?, opening, places));
        let user = Arc::clone(&session) as Arc<dyn LinkUser>;
        let link = link(&self.config, user, Some(&session.opening));
        Ok((session, link))
    }

    fn learned(&self, session: &FairSession) -> Option<Arc<Capability>> {
        (!session.sees_restarts()).then(|| Arc::new(without_info(&CAPABILITY)))
    }

    fn reader(&self) -> Arc<Link> {
        link(&self.config, Arc::new(Reader::new(Arc::clone(&self.layout))), None)
    }

    async fn queue(&self, connection: &Connection, name: &Name, page: Page) -> Result<Queue> {
        inspect::queue(connection, &self.layout, name, page).await
    }

    async fn contention(&self, connection: &Connection, name: &Name, mine: &[RequestId]) -> Result<Outline> {
        inspect::contention(connection, &self.layout, name, mine).await
    }

    async fn names(&self, connection: &Connection, from: Listed, prefix: &str) -> Result<(Vec<Name>, Option<Listed>)> {
        inspect::names(connection, &self.layout, from, prefix).await
    }

    async fn break_grant(&self, connection: &Connection, order: &Break) -> Result<bool> {
        inspect::break_grant(connection, &self.layout, order).await
    }

    async fn write_note(&self, connection: &Connection, order: &NoteOrder) -> Result<bool> {
        notes::write(connection, &self.layout, order).await
    }

    async fn note(&self, connection: &Connection, name: &Name) -> Result<NoteRead> {
        notes::read(connection, &self.layout, name).await
    }

    async fn breaks(&self, connection: &Connection, name: &Name) -> Result<Vec<Break>> {
        inspect::breaks(connection, &self.layout, name).await
    }
}
