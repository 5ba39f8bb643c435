//! A store that counts its requests and its notifications.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fencelock::inspect::Claim;
use fencelock::store::{
    Break, Capability, Entered, Entry, Left, NoteOrder, NoteRead, Opened, Opening, Outline, Page, Place, PlaceId,
    PlaceList, Queue, Renewal, RequestId, Session, Standing, Store,
};
use fencelock::time::{Clock, Moment};
use fencelock::{Loss, Name, Result};
use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;

use crate::fixture::{Faults, Process};

/// The requests of a process to a store, and the answers, so far: calls of the contract, and bytes on a wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Requests.
    pub(crate) requests: u64,
    /// Places in the answers.
    pub(crate) seen: u64,
    /// Bytes sent.
    pub(crate) up: u64,
    /// Bytes received.
    pub(crate) down: u64,
}

impl Cost {
    /// The typical cost: each count is the median over `costs`.
    pub(crate) fn median(costs: &[Self]) -> Self {
        Self::ranked(costs, costs.len() / 2)
    }

    /// The cost of an operation of constant cost, without other work at that moment: each count is the least over
    /// `costs`.
    pub(crate) fn least(costs: &[Self]) -> Self {
        Self::ranked(costs, 0)
    }

    fn ranked(costs: &[Self], rank: usize) -> Self {
        let of = |count: fn(&Self) -> u64| {
            let mut counts: Vec<_> = costs.iter().map(count).collect();
            counts.sort_unstable();
            counts.get(rank).copied().unwrap_or_default()
        };
        Self {
            requests: of(|cost| cost.requests),
            seen: of(|cost| cost.seen),
            up: of(|cost| cost.up),
            down: of(|cost| cost.down),
        }
    }

    /// The cost since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        let Self { requests, seen, up, down } = before;
        Self { requests: self.requests - requests, seen: self.seen - seen, up: self.up - up, down: self.down - down }
    }
}

/// Counts for one process.
#[derive(Clone)]
pub(crate) struct Meter {
    counts: Arc<Counts>,
    faults: Arc<dyn Faults>,
}

#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    seen: AtomicU64,
}

impl Counts {
    fn asked(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    fn seen(&self, places: usize) {
        self.seen.fetch_add(places as u64, Ordering::Relaxed);
    }
}

impl Meter {
    /// A route to the store, with a meter.
    pub(crate) fn on(process: Process) -> (Process, Self) {
        let Process { store, faults } = process;
        let counts = Arc::<Counts>::default();
        let meter = Self { counts: Arc::clone(&counts), faults: Arc::clone(&faults) };
        (Process { store: Arc::new(Counted { store, counts }), faults }, meter)
    }

    pub(crate) fn read(&self) -> Cost {
        let (up, down) = self.faults.traffic().unwrap_or_default();
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Cost { requests: read(&self.counts.requests), seen: read(&self.counts.seen), up, down }
    }
}

struct Counted {
    store: Arc<dyn Store>,
    counts: Arc<Counts>,
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for Counted {
    fn capability(&self) -> &Capability {
        self.store.capability()
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        self.store.clock()
    }

    fn open(&self, opening: Opening) -> BoxFuture<'_, Result<Opened>> {
        Box::pin(async move {
            self.counts.asked();
            let opened = self.store.open(opening).await?;
            let session = Arc::new(CountedSession { session: opened.session, counts: Arc::clone(&self.counts) });
            Ok(Opened { session, ..opened })
        })
    }

    fn queue<'a>(&'a self, name: &'a Name, page: Page) -> BoxFuture<'a, Result<Queue>> {
        Box::pin(async move {
            self.counts.asked();
            let queue = self.store.queue(name, page).await?;
            self.counts.seen(queue.contenders.len());
            Ok(queue)
        })
    }

    fn contention<'a>(&'a self, name: &'a Name, mine: &'a [RequestId]) -> BoxFuture<'a, Result<Outline>> {
        Box::pin(async move {
            self.counts.asked();
            let outline = self.store.contention(name, mine).await?;
            self.counts.seen(outline.positions.len() + usize::from(outline.holder.is_some()));
            Ok(outline)
        })
    }

    fn names<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<Vec<Name>>> {
        self.counts.asked();
        self.store.names(prefix)
    }

    fn key<'a>(&'a self, name: &'a Name) -> Option<BoxFuture<'a, Result<String>>> {
        self.counts.asked();
        self.store.key(name)
    }

    fn break_grant<'a>(&'a self, order: &'a Break) -> BoxFuture<'a, Result<bool>> {
        self.counts.asked();
        self.store.break_grant(order)
    }

    fn write_note<'a>(&'a self, order: &'a NoteOrder) -> BoxFuture<'a, Result<bool>> {
        self.counts.asked();
        self.store.write_note(order)
    }

    fn note<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<NoteRead>> {
        self.counts.asked();
        self.store.note(name)
    }

    fn breaks<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Vec<Break>>> {
        self.counts.asked();
        self.store.breaks(name)
    }
}

struct CountedSession {
    session: Arc<dyn Session>,
    counts: Arc<Counts>,
}

impl CountedSession {
    fn counted(&self, entered: Entered) -> Entered {
        match entered {
            Entered::In(place) => Entered::In(Box::new(CountedPlace { place, counts: Arc::clone(&self.counts) })),
            refused => refused,
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl Session for CountedSession {
    fn over(&self) -> Option<Loss> {
        self.session.over()
    }

    fn enter(&self, entry: Arc<Entry>) -> BoxFuture<'_, Result<Entered>> {
        Box::pin(async move {
            self.counts.asked();
            Ok(self.counted(self.session.enter(entry).await?))
        })
    }

    fn answers_inline(&self) -> bool {
        self.session.answers_inline()
    }

    fn withdraw<'a>(&'a self, name: &'a Name, id: RequestId) -> BoxFuture<'a, Result<()>> {
        self.counts.asked();
        self.session.withdraw(name, id)
    }

    fn renew<'a>(&'a self, places: &'a dyn PlaceList) -> BoxFuture<'a, Result<Renewal>> {
        Box::pin(async move {
            self.counts.asked();
            let renewal = self.session.renew(places).await?;
            self.counts.seen(renewal.gone.len());
            Ok(renewal)
        })
    }

    fn waited_for<'a>(&'a self, place: &'a PlaceId) -> Option<BoxFuture<'a, Result<()>>> {
        self.session.waited_for(place)
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.counts.asked();
        self.session.close()
    }
}

struct CountedPlace {
    place: Box<dyn Place>,
    counts: Arc<Counts>,
}

#[deny(clippy::missing_trait_methods)]
impl Place for CountedPlace {
    fn id(&self) -> PlaceId {
        self.place.id()
    }

    fn standing(&self) -> Standing {
        self.place.standing()
    }

    fn next(&mut self, until: Moment) -> BoxFuture<'_, Result<Standing>> {
        self.place.next(until)
    }

    fn lighten(&mut self, claim: Claim) -> BoxFuture<'_, Result<()>> {
        self.counts.asked();
        self.place.lighten(claim)
    }

    fn leave(&mut self) -> BoxFuture<'_, Result<Left>> {
        self.counts.asked();
        self.place.leave()
    }
}
