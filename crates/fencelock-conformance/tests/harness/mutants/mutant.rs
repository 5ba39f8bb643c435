//! The memory store with one flaw.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fencelock::inspect::Claim;
use fencelock::store::{
    Ahead, Break, Capability, Entered, Entry, Grant, Left, NoteOrder, NoteRead, Opened, Opening, Outline, Page, Place,
    PlaceId, PlaceList, Queue, Renewal, RequestId, Session, SessionEvent, Standing, Store, Tokens,
};
use fencelock::time::{Clock, Moment};
use fencelock::{Error, ErrorKind, FencingToken, Loss, Name, Result};
use fencelock_conformance::{Fixture, MemoryFixture, Process};
use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::{StreamExt, stream};
use tokio::sync::watch;

/// The flaw of a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    ForgetsDepartures,
    ForgetsDeparturesOfWaiters,
    GrantsTwice,
    ReusesTokens,
    LetsWithdrawnRequestsIn,
    WakesLate,
    IgnoresWithdrawals,
    RejoinsAtTheTail,
    IgnoresCapacities,
    ForgetsRequests,
    KeepsRefusedTries,
    LeavesByName,
    LeavesNothing,
    NeverExpires,
    KeepsTheEndToItself,
    TellsTheEndTwice,
    ForgetsItsEnd,
    ForgetsRenewals,
    RenewsBlindly,
    NeverCloses,
    KeepsDowngradesToItself,
    WakesEverybody,
    WaitsForever,
    WaitsThoughGranted,
    LosesWakesWhenDropped,
    HidesWaiters,
    ShowsNewcomersFirst,
    CountsThePage,
    MisplacesTheMiddle,
    StandsStillForCrowds,
    CountsWaitersTwice,
    TellsOfEverybody,
    ListsIdleNames,
    FoldsCase,
    ClaimsNoTokens,
    ReadersExclude,
    MakesTheFirstWait,
    ServesFewWaiters,
    BreaksWhoeverHolds,
    ForgetsBreaks,
    KeepsBreaksToItself,
    TakesNotesOfAnybody,
    ForgetsNotes,
    GivesUpDowngradesInDoubt,
    DowngradesByTwoPlaces,
    ServesBehindFewHolders,
    OnlyMutexesExclude,
    LetsInAtOnce,
    KeepsWhatItDoesNotAnswer,
    StandsStillAtOnce,
    RefusesCrowds,
}

/// A fixture around a memory store with a flaw.
pub(crate) struct Mutant {
    sound: MemoryFixture,
    shared: Arc<Shared>,
}

struct Shared {
    flaw: Flaw,
    /// The last request under each name, for a flaw that confuses names with places.
    names: Mutex<HashMap<Name, RequestId>>,
    departures: watch::Sender<u64>,
    requests: AtomicU64,
    /// The end of the pause of all other requests.
    stands_still: Mutex<Moment>,
    /// The next request is polled on the thread of its caller.
    is_inline: AtomicBool,
}

impl Mutant {
    pub(crate) fn new(flaw: Flaw) -> Self {
        let (names, departures, requests) = (Mutex::default(), watch::Sender::new(0), AtomicU64::new(1 << 40));
        let stands_still = Mutex::new(Moment::ORIGIN);
        let shared = Shared { flaw, names, departures, requests, stands_still, is_inline: AtomicBool::new(false) };
        Self { sound: MemoryFixture::default(), shared: Arc::new(shared) }
    }

    /// A process's way to `sound`, with the flaw.
    pub(crate) fn around(&self, sound: Arc<dyn Store>) -> Arc<dyn Store> {
        let mut capability = sound.capability().clone();
        if self.shared.flaw == Flaw::ClaimsNoTokens {
            capability.tokens = Tokens::None;
        }
        Arc::new(MutantStore { sound, capability, shared: Arc::clone(&self.shared) })
    }
}

impl Fixture for Mutant {
    fn process(&self) -> BoxFuture<'_, Result<Process>> {
        Box::pin(async {
            let Process { store, faults } = self.sound.process().await?;
            Ok(Process { store: self.around(store), faults })
        })
    }

    fn pass(&self, duration: Duration) -> BoxFuture<'_, ()> {
        self.sound.pass(duration)
    }

    fn patience(&self) -> Duration {
        if self.shared.flaw == Flaw::StandsStillAtOnce { Duration::from_secs(1) } else { self.sound.patience() }
    }

    fn leftovers(&self) -> BoxFuture<'_, Option<Vec<String>>> {
        self.sound.leftovers()
    }
}

struct MutantStore {
    sound: Arc<dyn Store>,
    capability: Capability,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for MutantStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.shared.flaw)
    }
}

impl Store for MutantStore {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        self.sound.clock()
    }

    fn open(&self, mut opening: Opening) -> BoxFuture<'_, Result<Opened>> {
        Box::pin(async move {
            let (ttl, clock) = (opening.ttl, Arc::clone(&opening.clock));
            if self.shared.flaw == Flaw::NeverExpires {
                opening.ttl *= 1000;
            }
            let Opened { session, events, confirmed, .. } = self.sound.open(opening).await?;
            let events = self.shared.events(events);
            let bound = self.capability.wake_bound;
            let session = MutantSession {
                sound: session,
                store: Arc::clone(&self.sound),
                shared: Arc::clone(&self.shared),
                clock,
                bound,
            };
            Ok(Opened { session: Arc::new(session), events, ttl: Some(ttl), confirmed, capability: None })
        })
    }

    fn queue<'a>(&'a self, name: &'a Name, page: Page) -> BoxFuture<'a, Result<Queue>> {
        Box::pin(async move {
            let mut queue = self.sound.queue(&self.shared.inner(name), page).await?;
            queue.name = name.clone();
            match self.shared.flaw {
                Flaw::HidesWaiters => queue.contenders.retain(|contender| contender.grant.is_some()),
                Flaw::ShowsNewcomersFirst => queue.contenders.reverse(),
                Flaw::CountsThePage => queue.queued = queue.contenders.len(),
                _ => {}
            }
            for contender in &mut queue.contenders {
                contender.grant = contender.grant.map(|grant| self.shared.grant(grant));
            }
            Ok(queue)
        })
    }

    fn contention<'a>(&'a self, name: &'a Name, mine: &'a [RequestId]) -> BoxFuture<'a, Result<Outline>> {
        Box::pin(async move {
            if let (Flaw::StandsStillForCrowds, Some(clock)) = (self.shared.flaw, self.sound.clock()) {
                let work = Duration::from_millis(100) * u32::try_from(mine.len()).unwrap();
                *self.shared.stands_still.lock().unwrap() = clock.now().after(work);
            }
            let mut outline = self.sound.contention(&self.shared.inner(name), mine).await?;
            if self.shared.flaw == Flaw::TellsOfEverybody {
                outline.positions.resize(outline.positions.len().max(outline.queued), None);
            }
            if self.shared.flaw == Flaw::MisplacesTheMiddle {
                outline.positions.iter_mut().flatten().for_each(|position| *position += usize::from(*position > 2));
            }
            if self.shared.flaw == Flaw::CountsWaitersTwice {
                outline.positions.iter_mut().flatten().for_each(|position| *position *= 2);
            }
            if let Some(holder) = &mut outline.holder {
                holder.grant = holder.grant.map(|grant| self.shared.grant(grant));
            }
            Ok(outline)
        })
    }

    fn names<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<Vec<Name>>> {
        let is_flawed = self.shared.flaw == Flaw::ListsIdleNames;
        let idle = async move { Ok(self.shared.names.lock().unwrap().keys().cloned().collect()) };
        Box::pin(self.sound.names(prefix).chain(stream::once(idle).take(usize::from(is_flawed))))
    }

    fn break_grant<'a>(&'a self, order: &'a Break) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let mut order = order.clone();
            order.place.name = self.shared.inner(&order.place.name);
            let queue = self.sound.queue(&order.place.name, Page::ALL).await?;
            if self.shared.flaw == Flaw::BreaksWhoeverHolds
                && let Some((holder, grant)) = queue.contenders.first().and_then(|first| Some((first, first.grant?)))
            {
                (order.place.request, order.token) = (holder.id, grant.token);
            }
            self.sound.break_grant(&order).await
        })
    }

    fn write_note<'a>(&'a self, order: &'a NoteOrder) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let mut order = order.clone();
            order.grant.place.name = self.shared.inner(&order.grant.place.name);
            let queue = self.sound.queue(&order.grant.place.name, Page::ALL).await?;
            if self.shared.flaw == Flaw::TakesNotesOfAnybody
                && let Some((holder, grant)) = queue.contenders.first().and_then(|first| Some((first, first.grant?)))
            {
                (order.grant.place.request, order.grant.token) = (holder.id, grant.token);
            }
            self.sound.write_note(&order).await
        })
    }

    fn note<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<NoteRead>> {
        Box::pin(async move {
            let name = self.shared.inner(name);
            let mut read = self.sound.note(&name).await?;
            if self.shared.flaw == Flaw::ForgetsNotes && self.sound.queue(&name, Page::ALL).await?.queued == 0 {
                read.note = None;
            }
            Ok(read)
        })
    }

    fn breaks<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Vec<Break>>> {
        match self.shared.flaw {
            Flaw::ForgetsBreaks => Box::pin(async { Ok(Vec::new()) }),
            _ => self.sound.breaks(name),
        }
    }
}

impl Shared {
    fn events(&self, events: BoxStream<'static, SessionEvent>) -> BoxStream<'static, SessionEvent> {
        let times = match self.flaw {
            Flaw::KeepsTheEndToItself => 0,
            Flaw::TellsTheEndTwice => 2,
            _ => 1,
        };
        let keeps_breaks = self.flaw == Flaw::KeepsBreaksToItself;
        let told = move |event: SessionEvent| {
            let times = match event {
                SessionEvent::Over => times,
                SessionEvent::Broken(..) if keeps_breaks => 0,
                _ => 1,
            };
            stream::iter(vec![event; times])
        };
        events.flat_map(told).boxed()
    }

    fn grant(&self, grant: Grant) -> Grant {
        match (self.flaw, grant.token) {
            // Every second token is the one before it.
            (Flaw::ReusesTokens, Some(token)) => Grant::new(FencingToken::new(token.get() & !1)),
            _ => grant,
        }
    }

    fn inner(&self, name: &Name) -> Name {
        match self.flaw {
            Flaw::FoldsCase => Name::new(name.as_str().to_lowercase()).unwrap(),
            _ => name.clone(),
        }
    }

    fn standing(&self, standing: Standing) -> Standing {
        match (self.flaw, standing) {
            (_, Standing::Granted(grant)) => Standing::Granted(self.grant(grant)),
            (Flaw::GrantsTwice, Standing::Waiting(Some(Ahead { waiters: 0, .. }))) => {
                Standing::Granted(Grant::new(FencingToken::new(1)))
            }
            (Flaw::CountsWaitersTwice, Standing::Waiting(Some(ahead))) => {
                Standing::Waiting(Some(Ahead::new(ahead.holders, ahead.waiters * 2)))
            }
            _ => standing,
        }
    }
}

struct MutantSession {
    sound: Arc<dyn Session>,
    store: Arc<dyn Store>,
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    bound: Duration,
}

impl MutantSession {
    /// The request that the sound store gets instead.
    fn flawed(&self, entry: &Entry) -> Entry {
        let mut flawed = Entry { name: self.shared.inner(&entry.name), ..entry.clone() };
        match self.shared.flaw {
            Flaw::ForgetsRequests => flawed.id.number = self.shared.requests.fetch_add(1, Ordering::Relaxed),
            Flaw::KeepsRefusedTries => flawed.wait = true,
            Flaw::ReadersExclude if entry.claim == Claim::READER => flawed.claim = Claim::WRITER,
            Flaw::OnlyMutexesExclude if entry.claim != Claim::MUTEX => {
                flawed.claim = Claim::new(1, entry.claim.capacity()).unwrap();
            }
            _ => {}
        }
        flawed
    }

    fn place(&self, sound: Box<dyn Place>, entry: Arc<Entry>) -> Box<dyn Place> {
        self.shared.names.lock().unwrap().insert(entry.name.clone(), entry.id);
        let mut standing = self.shared.standing(sound.standing());
        if self.shared.flaw == Flaw::MakesTheFirstWait {
            standing = Standing::Waiting(None);
        }
        Box::new(MutantPlace {
            sound,
            session: Arc::clone(&self.sound),
            shared: Arc::clone(&self.shared),
            clock: Arc::clone(&self.clock),
            entry,
            standing,
            bound: self.bound,
            deaf: false,
        })
    }

    async fn join(&self, entry: &Entry) -> Result<Entered> {
        let flawed = self.flawed(entry);
        let entered = self.sound.enter(Arc::new(flawed.clone())).await?;
        match (self.shared.flaw, entered) {
            (Flaw::IgnoresCapacities, Entered::Conflict(ahead)) => {
                self.sound.enter(Arc::new(Entry { claim: ahead, ..flawed })).await
            }
            (Flaw::KeepsRefusedTries, Entered::In(place)) if !entry.wait => match place.standing() {
                Standing::Granted(_) => Ok(Entered::In(place)),
                _ => Ok(Entered::Busy),
            },
            (_, entered) => Ok(entered),
        }
    }
}

impl Session for MutantSession {
    fn over(&self) -> Option<Loss> {
        if self.shared.flaw == Flaw::ForgetsItsEnd { None } else { self.sound.over() }
    }

    fn enter(&self, entry: Arc<Entry>) -> BoxFuture<'_, Result<Entered>> {
        let is_inline = self.shared.is_inline.swap(false, Ordering::Relaxed);
        Box::pin(async move {
            if is_inline {
                return self.enter_inline(entry).await;
            }
            let served = *self.shared.stands_still.lock().unwrap();
            self.clock.sleep_until(served).await;
            if self.shared.flaw == Flaw::RefusesCrowds && self.shared.requests.fetch_add(1, Ordering::Relaxed) % 64 > 32
            {
                return Err(Error::new(ErrorKind::Unreachable, "enter", "too many requests").retryable());
            }
            let sound = match self.join(&entry).await? {
                Entered::In(sound) => sound,
                refused => return Ok(refused),
            };
            Ok(Entered::In(self.place(sound, entry)))
        })
    }

    /// The first poll has the flaws of the request that follows this question; the other flaws are those of `enter`.
    fn answers_inline(&self) -> bool {
        let is_flawed =
            matches!(self.shared.flaw, Flaw::LetsInAtOnce | Flaw::KeepsWhatItDoesNotAnswer | Flaw::StandsStillAtOnce);
        self.shared.is_inline.store(is_flawed, Ordering::Relaxed);
        (is_flawed || self.shared.flaw == Flaw::None) && self.sound.answers_inline()
    }

    fn withdraw<'a>(&'a self, name: &'a Name, id: RequestId) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let inner = self.shared.inner(name);
            let ignored = match self.shared.flaw {
                Flaw::IgnoresWithdrawals => true,
                // The mutant looks before it withdraws: a request on its way is not in the queue yet.
                Flaw::LetsWithdrawnRequestsIn => {
                    self.store.queue(&inner, Page::ALL).await?.contenders.iter().all(|contender| contender.id != id)
                }
                _ => false,
            };
            if ignored { Ok(()) } else { self.sound.withdraw(&inner, id).await }
        })
    }

    fn renew<'a>(&'a self, places: &'a dyn PlaceList) -> BoxFuture<'a, Result<Renewal>> {
        Box::pin(async move {
            let inner = |place: PlaceId| PlaceId { name: self.shared.inner(&place.name), ..place };
            let asked: Vec<_> = places.all().into_iter().map(inner).collect();
            match self.shared.flaw {
                Flaw::ForgetsRenewals => Ok(Renewal::at(self.clock.now())),
                Flaw::RenewsBlindly | Flaw::KeepsBreaksToItself => {
                    Ok(Renewal { gone: Vec::new(), ..self.sound.renew(&asked).await? })
                }
                _ => self.sound.renew(&asked).await,
            }
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { if self.shared.flaw == Flaw::NeverCloses { Ok(()) } else { self.sound.close().await } })
    }
}

impl MutantSession {
    /// A request whose first poll is made on the thread of its caller.
    async fn enter_inline(&self, entry: Arc<Entry>) -> Result<Entered> {
        let asked = match self.shared.flaw {
            // Every contender is the first in a queue of its own.
            Flaw::LetsInAtOnce => {
                let name = Name::new(format!("{}, {}", entry.name, entry.id.number)).unwrap();
                Arc::new(Entry { name, ..(*entry).clone() })
            }
            _ => entry,
        };
        let entered = match self.sound.enter(Arc::clone(&asked)).await? {
            Entered::In(sound) => Entered::In(self.place(sound, asked)),
            refused => refused,
        };
        match (self.shared.flaw, &entered) {
            (Flaw::KeepsWhatItDoesNotAnswer, _) => std::future::pending().await,
            (Flaw::StandsStillAtOnce, Entered::In(place)) if !matches!(place.standing(), Standing::Granted(_)) => {
                loop {
                    std::thread::park();
                }
            }
            _ => Ok(entered),
        }
    }
}

struct MutantPlace {
    sound: Box<dyn Place>,
    session: Arc<dyn Session>,
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    entry: Arc<Entry>,
    standing: Standing,
    bound: Duration,
    /// A `next` was dropped.
    deaf: bool,
}

impl MutantPlace {
    /// Goes to the end of the queue.
    async fn rejoin(&mut self) -> Result<()> {
        self.session.withdraw(&self.entry.name, self.entry.id).await?;
        if let Entered::In(place) = self.session.enter(Arc::clone(&self.entry)).await? {
            self.sound = place;
        }
        Ok(())
    }

    /// Waits for `until`, and misses every event.
    async fn hear_nothing(&mut self, until: Moment) {
        if until == Moment::NEVER {
            std::future::pending::<()>().await;
        }
        self.clock.sleep_until(until).await;
    }

    /// Whether this wait misses every event.
    async fn misses_events(&mut self) -> Result<bool> {
        let now = self.clock.now();
        let waits = matches!(self.sound.next(now).await?, Standing::Waiting(_));
        Ok(match self.shared.flaw {
            Flaw::ForgetsDepartures => waits,
            Flaw::ForgetsDeparturesOfWaiters => {
                waits && matches!(self.sound.standing(), Standing::Waiting(Some(ahead)) if ahead.waiters > 0)
            }
            Flaw::LosesWakesWhenDropped => self.deaf,
            Flaw::WaitsThoughGranted => !waits,
            Flaw::ServesFewWaiters => {
                waits && matches!(self.sound.standing(), Standing::Waiting(Some(ahead)) if ahead.waiters > 500)
            }
            Flaw::ServesBehindFewHolders => {
                waits && matches!(self.sound.standing(), Standing::Waiting(Some(ahead)) if ahead.holders > 64)
            }
            _ => false,
        })
    }

    async fn wait(&mut self, until: Moment) -> Result<Standing> {
        let waits = matches!(self.sound.standing(), Standing::Waiting(_));
        match self.shared.flaw {
            Flaw::RejoinsAtTheTail if waits => self.rejoin().await?,
            Flaw::WaitsForever => return self.sound.next(Moment::NEVER).await,
            Flaw::WakesEverybody if waits => {
                let mut departures = self.shared.departures.subscribe();
                return tokio::select! {
                    biased;
                    standing = self.sound.next(until) => standing,
                    _ = departures.changed() => Ok(Standing::Waiting(None)),
                };
            }
            _ => {}
        }
        if self.misses_events().await? {
            self.hear_nothing(until).await;
        }
        self.deaf = true;
        let standing = self.sound.next(until).await?;
        self.deaf = false;
        if self.shared.flaw == Flaw::WakesLate && waits && matches!(standing, Standing::Granted(_)) {
            self.clock.sleep_until(self.clock.now().after(self.bound * 2)).await;
        }
        Ok(standing)
    }
}

impl Place for MutantPlace {
    fn id(&self) -> PlaceId {
        PlaceId { name: self.entry.name.clone(), request: self.entry.id }
    }

    fn standing(&self) -> Standing {
        self.standing
    }

    fn next(&mut self, until: Moment) -> BoxFuture<'_, Result<Standing>> {
        Box::pin(async move {
            let standing = self.wait(until).await?;
            self.standing = self.shared.standing(standing);
            Ok(self.standing)
        })
    }

    fn lighten(&mut self, claim: Claim) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            match self.shared.flaw {
                Flaw::KeepsDowngradesToItself => Ok(()),
                Flaw::DowngradesByTwoPlaces => self.lighten_by_two_places(claim).await,
                Flaw::GivesUpDowngradesInDoubt => {
                    let lightened = self.sound.lighten(claim).await;
                    if lightened.is_err() {
                        self.sound.leave().await?;
                    }
                    lightened
                }
                _ => self.sound.lighten(claim).await,
            }
        })
    }

    fn leave(&mut self) -> BoxFuture<'_, Result<Left>> {
        Box::pin(async move {
            let left = match self.shared.flaw {
                Flaw::LeavesNothing => return Ok(Left::Released),
                Flaw::LeavesByName => self.leave_by_name().await?,
                _ => self.sound.leave().await?,
            };
            self.shared.departures.send_modify(|departures| *departures += 1);
            Ok(left)
        })
    }
}

impl MutantPlace {
    /// Takes the lighter place before it gives up the heavier one, and fails between the two.
    async fn lighten_by_two_places(&mut self, claim: Claim) -> Result<()> {
        let number = self.shared.requests.fetch_add(1, Ordering::Relaxed);
        let id = RequestId { number, ..self.entry.id };
        let lighter = self.session.enter(Arc::new(Entry { id, claim, ..(*self.entry).clone() })).await?;
        tokio::task::yield_now().await;
        self.session.withdraw(&self.entry.name, self.entry.id).await?;
        if let Entered::In(place) = lighter {
            self.sound = place;
        }
        Ok(())
    }

    async fn leave_by_name(&mut self) -> Result<Left> {
        let newest = self.shared.names.lock().unwrap().get(&self.entry.name).copied();
        self.session.withdraw(&self.entry.name, newest.unwrap_or(self.entry.id)).await?;
        self.sound.leave().await
    }
}
