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

use futures_util::future;

use self::fault::nonsense;
use self::inspect::{Listed, contender};
use self::layout::{KeySpace, LAYOUT_NAME};
use self::scripts::{SHOWN_PER_CALL, Swept};
use self::session::{FairSession, Reader};
use super::breaks_of;
use crate::error::Result;
use crate::kit::record::{self, Identity, Record};
use crate::kit::served::{Places, REPAIR};
use crate::kit::server::{Events, Server, ServerStore};
use crate::kit::session_state::random_number;
use crate::name::Name;
use crate::store::{
    Break, Capability, NoteOrder, NoteRead, Opening, Order, Outline, Page, Presumption, Queue, RequestId, Residue,
    Store, Tokens, Waiters,
};
use crate::stores::redis::wire::{Config, Connection, Link, LinkUser, link, without_info};

pub(super) static CAPABILITY: Capability = Capability {
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
    // `same_as` is empty. Other clients' layouts keep no queue: the client that finds the key absent acquires the lock.
    residue: &[Residue::Buckets(4096), Residue::Notes, Residue::BreaksForDays(30), Residue::LeftByCrashed],
    ..Capability::least("redis", LAYOUT_NAME)
};

/// How many requests for names are in flight concurrently.
const BATCH: usize = 16;

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

    /// A page of a queue, front first, in portions. The server serves other clients in between, so a contender that leaves or arrives meanwhile
    /// may be shown or not.
    async fn queue(&self, connection: &Connection, name: &Name, page: Page) -> Result<Queue> {
        let (mut contenders, mut skip, mut after, mut dead) = (Vec::new(), page.skip, None, 0);
        loop {
            let wanted = (page.limit - contenders.len()).min(SHOWN_PER_CALL);
            let shown = connection.run("queue", &scripts::show(&self.layout, name, skip, after, wanted)).await?;
            (skip, after, dead) = (skip.saturating_sub(shown.skipped), shown.last, dead + shown.dead);
            contenders.extend(shown.places.into_iter().map(contender));
            if shown.at_end || contenders.len() == page.limit {
                let is_whole = shown.at_end && page.skip == 0;
                let queued = if is_whole { contenders.len() } else { shown.queued.saturating_sub(dead) };
                let (foreign_locks, strangers) = (Vec::new(), Vec::new());
                return Ok(Queue { name: name.clone(), contenders, queued, foreign_locks, strangers, closed: None });
            }
        }
    }

    /// The outline of a queue: the server looks only at its head and at the requested places.
    async fn contention(&self, connection: &Connection, name: &Name, mine: &[RequestId]) -> Result<Outline> {
        let (first, others) = mine.split_at(mine.len().min(SHOWN_PER_CALL));
        let short = connection.run("contention", &scripts::contention(&self.layout, name, first)).await?;
        let mut positions = short.positions;
        for ids in others.chunks(SHOWN_PER_CALL) {
            positions
                .extend(connection.run("contention", &scripts::contention(&self.layout, name, ids)).await?.positions);
        }
        let holder = short.head.map(contender);
        Ok(Outline { holder, holders: short.holders, queued: short.queued, positions, closed: None })
    }

    /// Names in some of these buckets, and the parts that are left. Each part has a request in flight, which looks at a bounded number of
    /// names, living and dead.
    async fn names(
        &self,
        connection: &Connection,
        Listed(mut unlisted): Listed,
        prefix: &str,
    ) -> Result<(Vec<Name>, Option<Listed>)> {
        let later = unlisted.split_off(unlisted.len().min(BATCH));
        let calls: Vec<_> =
            unlisted.iter().map(|part| scripts::names(&self.layout, &part.from, part.upto, prefix)).collect();
        let listed = future::try_join_all(calls.iter().map(|call| connection.run("names", call))).await?;
        let mut names = Vec::new();
        for (part, listed) in unlisted.iter_mut().zip(listed) {
            names.extend(listed.names);
            for key in listed.foreign {
                tracing::warn!(
                    key,
                    "This key is not of the type that fencelock writes. Delete it: no lock in it can be taken or listed."
                );
            }
            part.from = Swept { bucket: part.from.bucket + listed.swept.bucket, ..listed.swept };
        }
        unlisted.retain(|part| part.from.bucket < part.upto);
        unlisted.extend(later);
        Ok((names, (!unlisted.is_empty()).then_some(Listed(unlisted))))
    }

    async fn break_grant(&self, connection: &Connection, order: &Break) -> Result<bool> {
        let record = record::text("break", &Record::of(order))?;
        // Every grant of ours has a token.
        let Some(call) = scripts::break_grant(&self.layout, order, &record) else { return Ok(false) };
        connection.run("break", &call).await
    }

    async fn write_note(&self, connection: &Connection, order: &NoteOrder) -> Result<bool> {
        let owner = record::text("note", &Identity::of(&order.owner))?;
        // Every grant of ours has a token.
        let Some(call) = scripts::write_note(&self.layout, order, &owner) else { return Ok(false) };
        connection.run("note", &call).await
    }

    async fn note(&self, connection: &Connection, name: &Name) -> Result<NoteRead> {
        let answer = connection.run("note", &scripts::note(&self.layout, name)).await?;
        notes::read_of(&answer).ok_or_else(|| nonsense("note", &answer))
    }

    async fn breaks(&self, connection: &Connection, name: &Name) -> Result<Vec<Break>> {
        let records = connection.command("breaks", &scripts::breaks(&self.layout, name)).await?;
        breaks_of(&records, name).ok_or_else(|| nonsense("breaks", &records))
    }
}
