//! Many contenders at once: random schedules against a model, crowds, threads.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use fencelock::Name;
use fencelock::inspect::Claim;
use fencelock::queue::{Admission, admits};
use fencelock::store::{Contender, Entered, Entry, Left, Place, RequestId, Standing};
use fencelock::time::Moment;
use tokio::sync::{mpsc, oneshot};

use crate::world::{Client, Fault, PATIENCE, Verdict, World, demand, name, permits};

/// An attendant's report of its place.
#[derive(Debug)]
pub(crate) enum News {
    Granted(RequestId),
    /// `next` returned although nothing had changed.
    Nothing,
    /// The place is gone, or the wait failed.
    Lost,
}

enum Task {
    Leave(oneshot::Sender<fencelock::Result<Left>>),
    Lighten(Claim, oneshot::Sender<fencelock::Result<()>>),
    /// Drop the pending `next` and wait anew.
    WaitAnew,
}

/// Waits on a place in a task of its own, as an engine would, so that the wait is pending while other things happen.
pub(super) struct Attendant(mpsc::UnboundedSender<Task>);

impl Attendant {
    pub(super) fn new(place: Box<dyn Place>, news: mpsc::UnboundedSender<News>) -> Self {
        let (tasks, orders) = mpsc::unbounded_channel();
        // Reads the standing now: the place may be granted before the task begins.
        let waits = !matches!(place.standing(), Standing::Granted(_));
        tokio::spawn(attend(place, waits, orders, news));
        Self(tasks)
    }

    pub(super) async fn leave(self) -> Verdict {
        let (answer, left) = oneshot::channel();
        let _ = self.0.send(Task::Leave(answer));
        let left = left.await.map_err(|_| Fault::Broken("a place panicked".to_owned()))??;
        demand!(left == Left::Released, "a place in the queue was gone when it was left");
        Ok(())
    }

    async fn lighten(&self, claim: Claim) -> Verdict {
        let (answer, lightened) = oneshot::channel();
        let _ = self.0.send(Task::Lighten(claim, answer));
        Ok(lightened.await.map_err(|_| Fault::Broken("a place panicked".to_owned()))??)
    }
}

async fn attend(
    mut place: Box<dyn Place>,
    mut waits: bool,
    mut tasks: mpsc::UnboundedReceiver<Task>,
    news: mpsc::UnboundedSender<News>,
) {
    let id = place.id().request;
    loop {
        let told = tokio::select! {
            biased;
            task = tasks.recv() => match task {
                None => return,
                Some(Task::Leave(answer)) => return drop(answer.send(place.leave().await)),
                Some(Task::Lighten(claim, answer)) => {
                    let _ = answer.send(place.lighten(claim).await);
                    continue;
                }
                Some(Task::WaitAnew) => continue,
            },
            told = place.next(Moment::NEVER), if waits => told,
        };
        let report = match told {
            Ok(Standing::Granted(_)) => News::Granted(id),
            Ok(Standing::Waiting(_)) => News::Nothing,
            Ok(Standing::Lost(_)) | Err(_) => News::Lost,
        };
        waits = matches!(report, News::Nothing);
        let _ = news.send(report);
        tokio::task::yield_now().await;
    }
}

/// The expected queue: its contenders, front first.
pub(super) struct Model {
    pub(super) queue: Vec<(RequestId, Claim)>,
    known_granted: Vec<RequestId>,
}

impl Model {
    pub(super) fn granted(&self) -> Vec<RequestId> {
        let fits = |index: &usize| {
            let ahead = self.queue[..*index].iter().map(|(_, claim)| *claim);
            admits(ahead, self.queue[*index].1) == Admission::Admitted
        };
        (0..self.queue.len()).take_while(fits).map(|index| self.queue[index].0).collect()
    }

    fn depart(&mut self, index: usize) -> RequestId {
        let (id, _) = self.queue.remove(index);
        self.known_granted.retain(|known| *known != id);
        id
    }
}

/// A random schedule, and the model that it is compared with after every step.
pub(super) struct Schedule {
    world: World,
    pub(super) clients: Vec<Client>,
    pub(super) name: Name,
    claims: Vec<Claim>,
    pub(super) chance: fastrand::Rng,
    pub(super) model: Model,
    attendants: HashMap<RequestId, Attendant>,
    news: mpsc::UnboundedReceiver<News>,
    reporter: mpsc::UnboundedSender<News>,
}

/// Contenders enter, leave, withdraw, become lighter or wait anew, in any order. Exactly the contenders that the rule
/// admits hold the lock, and each is notified.
pub async fn every_schedule_agrees_with_the_rule(world: World) -> Verdict {
    let clients = [world.client().await?, world.client().await?, world.client().await?];
    clients[0].needs_order()?;
    let shared = clients[0].capability().shared_claims;
    drop(clients);
    let kinds = if shared { 3 } else { 1 };
    for round in 0..kinds * 2 {
        let claims = match round % kinds {
            0 => vec![Claim::MUTEX],
            1 => vec![Claim::READER, Claim::READER, Claim::WRITER],
            _ => (1..=5).map(|weight| permits(weight, 5)).collect(),
        };
        let seed = world.seed.wrapping_add(round);
        let mut schedule = Schedule::new(world.clone(), seed, claims, &format!("schedule-{round}")).await?;
        for step in 0..150 {
            schedule.step().await.map_err(|fault| Fault::Broken(format!("seed {seed}, step {step}: {fault}")))?;
        }
    }
    Ok(())
}

impl Schedule {
    pub(super) async fn new(world: World, seed: u64, claims: Vec<Claim>, text: &str) -> Verdict<Self> {
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(world.patient_client().await?);
        }
        let (reporter, news) = mpsc::unbounded_channel();
        let model = Model { queue: Vec::new(), known_granted: Vec::new() };
        let (chance, name) = (fastrand::Rng::with_seed(seed), name(text)?);
        Ok(Self { world, clients, name, claims, chance, model, attendants: HashMap::new(), news, reporter })
    }

    async fn step(&mut self) -> Verdict {
        let full = self.model.queue.len() >= 9;
        match self.chance.usize(..10) {
            0..=3 if !full => self.enter(true).await?,
            4 => self.enter(false).await?,
            5 => self.lighten().await?,
            6 => self.withdraw().await?,
            7 => self.wait_anew(),
            _ => self.leave().await?,
        }
        self.settle().await?;
        self.compare().await
    }

    async fn enter(&mut self, wait: bool) -> Verdict {
        let claim = self.claims[self.chance.usize(..self.claims.len())];
        self.join(claim, wait).await
    }

    /// A contender joins with this claim.
    pub(super) async fn join(&mut self, claim: Claim, wait: bool) -> Verdict {
        let client = &self.clients[self.chance.usize(..self.clients.len())];
        let entry = Entry { wait, ..client.entry(&self.name, claim) };
        let entered = client.send(&entry).await?;
        self.model.queue.push((entry.id, claim));
        let admitted = self.model.granted().contains(&entry.id);
        let place = match entered {
            Entered::In(place) if wait || admitted => place,
            Entered::Busy if !wait && !admitted => {
                self.model.queue.pop();
                return Ok(());
            }
            _ => return Err(Fault::Broken(format!("{entry:?} was answered wrongly (admitted: {admitted})"))),
        };
        let granted = matches!(place.standing(), Standing::Granted(_));
        demand!(granted <= admitted, "{claim} was granted behind {:?}", self.model.queue);
        if granted {
            self.model.known_granted.push(entry.id);
        }
        self.attendants.insert(entry.id, Attendant::new(place, self.reporter.clone()));
        Ok(())
    }

    async fn leave(&mut self) -> Verdict {
        if self.model.queue.is_empty() {
            return Ok(());
        }
        let position = self.chance.usize(..self.model.queue.len());
        self.depart(position).await
    }

    /// The contender at this position leaves.
    pub(super) async fn depart(&mut self, position: usize) -> Verdict {
        let id = self.model.depart(position);
        match self.attendants.remove(&id) {
            Some(attendant) => attendant.leave().await,
            None => Ok(()),
        }
    }

    async fn withdraw(&mut self) -> Verdict {
        if self.model.queue.is_empty() {
            return Ok(());
        }
        let id = self.model.depart(self.chance.usize(..self.model.queue.len()));
        self.attendants.remove(&id);
        let client = self.clients.iter().find(|client| client.owner.client == id.client);
        match client {
            Some(client) => Ok(client.session().withdraw(&self.name, id).await?),
            None => Ok(()),
        }
    }

    async fn lighten(&mut self) -> Verdict {
        let granted = self.model.granted();
        if granted.is_empty() {
            return Ok(());
        }
        let index = self.chance.usize(..granted.len());
        let (id, claim) = self.model.queue[index];
        let lighter = match claim.capacity() {
            // A read-write lock has no claim between reader and writer.
            Claim::UNBOUNDED => Claim::READER,
            capacity => permits(self.chance.u32(1..=claim.weight().min(3)), capacity),
        };
        if let Some(attendant) = self.attendants.get(&id) {
            attendant.lighten(lighter).await?;
        }
        self.model.queue[index].1 = lighter;
        Ok(())
    }

    fn wait_anew(&self) {
        for attendant in self.attendants.values() {
            let _ = attendant.0.send(Task::WaitAnew);
        }
    }

    /// Waits until every contender that the rule admits was notified, and demands that no other is.
    pub(super) async fn settle(&mut self) -> Verdict {
        let expected = self.model.granted();
        while let Some(missing) = expected.iter().find(|id| !self.model.known_granted.contains(id)) {
            let Some(Some(news)) = self.world.within(PATIENCE, self.news.recv()).await else {
                return Err(Fault::Broken(format!("{missing} in {:?} got no news of its grant", self.model.queue)));
            };
            match news {
                News::Granted(id) if self.model.known_granted.contains(&id) || expected.contains(&id) => {
                    self.model.known_granted.push(id);
                }
                News::Nothing => {}
                // The contender departed meanwhile: its report comes late.
                News::Granted(id) if self.model.queue.iter().all(|(queued, _)| *queued != id) => {}
                news => return Err(Fault::Broken(format!("{news:?} in {:?}", self.model.queue))),
            }
        }
        Ok(())
    }

    pub(super) async fn compare(&mut self) -> Verdict {
        let queue = self.clients[self.chance.usize(..self.clients.len())].queue(&self.name).await?;
        let shown = |contender: &Contender| (contender.id, contender.claim);
        let shown: Vec<_> = queue.contenders.iter().map(shown).collect();
        demand!(shown == self.model.queue, "the queue is {shown:?}, not {:?}", self.model.queue);
        let granted = queue.contenders.iter().filter(|contender| contender.grant.is_some());
        let granted: Vec<_> = granted.map(|contender| contender.id).collect();
        demand!(granted == self.model.granted(), "granted are {granted:?} of {shown:?}");
        Ok(())
    }
}

/// A departure wakes the waiters that it grants, and one more at most.
pub async fn a_departure_wakes_one_more_than_it_lets_in_at_most(world: World) -> Verdict {
    let (a, b, job) = (world.client().await?, world.client().await?, name("job")?);
    a.needs_order()?;
    let (reporter, mut news) = mpsc::unbounded_channel();
    let mut line = vec![Attendant::new(a.hold(&job, world.whole).await?, reporter.clone())];
    for number in 0..12 {
        let place = (if number % 2 == 0 { &a } else { &b }).enter(&job, world.whole).await?;
        line.push(Attendant::new(place, reporter.clone()));
    }
    world.pass(crate::world::GLANCE).await;
    line.reverse();
    while let Some(holder) = line.pop() {
        while news.try_recv().is_ok() {}
        holder.leave().await?;
        let lets_in = usize::from(!line.is_empty());
        let others = woken_besides(&world, &mut news, lets_in).await?;
        demand!(others <= 1, "a departure that let in {lets_in} woke {others} more");
    }
    Ok(())
}

/// For any number of waiting readers and permits, a departure wakes the waiters that it grants, and one more at most.
pub async fn readers_and_permits_are_woken_as_sparingly(world: World) -> Verdict {
    let clients = [world.client().await?, world.client().await?, world.client().await?];
    clients[0].needs_order()?;
    clients[0].needs_shared_claims()?;
    let (reader, writer) = (Claim::READER, Claim::WRITER);
    let mut behind = vec![writer];
    behind.extend([reader; 7]);
    behind.push(writer);
    behind.extend([reader; 3]);
    wakes_sparingly(&world, &clients, "page", writer, &[&[reader; 5], &behind[..]].concat(), 5).await?;
    wakes_sparingly(&world, &clients, "book", reader, &behind, 1).await?;
    let counts = [1, 2, 3, 1, 1, 1, 1, 2, 1].map(|count| permits(count, 4));
    wakes_sparingly(&world, &clients, "seats", permits(4, 4), &counts, 2).await
}

/// `waiters` wait behind `holder`, whose departure lets in `lets_in` of them.
async fn wakes_sparingly(
    world: &World,
    clients: &[Client],
    text: &str,
    holder: Claim,
    waiters: &[Claim],
    lets_in: usize,
) -> Verdict {
    let (name, (reporter, mut news)) = (name(text)?, mpsc::unbounded_channel());
    let holder = Attendant::new(clients[0].hold(&name, holder).await?, reporter.clone());
    let mut line = Vec::new();
    for (claim, client) in waiters.iter().zip(clients.iter().cycle()) {
        line.push(Attendant::new(client.enter(&name, *claim).await?, reporter.clone()));
    }
    world.pass(crate::world::GLANCE).await;
    while news.try_recv().is_ok() {}
    holder.leave().await?;
    let others = woken_besides(world, &mut news, lets_in).await?;
    demand!(others <= 1, "a departure in {text} that let in {lets_in} woke {others} more");
    drop(line);
    Ok(())
}

/// Waits until `lets_in` waiters were let in, and a moment longer; returns the number of other waiters that were woken.
async fn woken_besides(world: &World, news: &mut mpsc::UnboundedReceiver<News>, lets_in: usize) -> Verdict<usize> {
    let (mut granted, mut others) = (0, 0);
    while granted < lets_in {
        match world.within(PATIENCE, news.recv()).await {
            Some(Some(News::Granted(_))) => granted += 1,
            Some(Some(News::Nothing)) => others += 1,
            news => return Err(Fault::Broken(format!("{granted} of {lets_in} were let in, and then {news:?}"))),
        }
    }
    world.pass(crate::world::GLANCE * 5).await;
    Ok(others + std::iter::from_fn(|| news.try_recv().ok()).count())
}

/// Threads that race for a mutex, each in a process of its own, never hold it together; tokens rise in the order of
/// the sections.
pub async fn threads_that_race_never_hold_a_mutex_together(world: World) -> Verdict {
    const THREADS: usize = 4;
    let (inside, last) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
    // All threads exist before the first begins: otherwise the first could finish before the last starts.
    let start = Arc::new(Barrier::new(THREADS));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (world, inside, last) = (world.clone(), Arc::clone(&inside), Arc::clone(&last));
            let start = Arc::clone(&start);
            std::thread::spawn(move || {
                start.wait();
                race(&world, &inside, &last)
            })
        })
        .collect();
    let mut verdict = Ok(());
    for thread in threads {
        verdict = verdict.and(thread.join().unwrap_or_else(|_| Err(Fault::Broken("the store panicked".to_owned()))));
    }
    verdict
}

fn race(world: &World, inside: &AtomicUsize, last: &AtomicU64) -> Verdict {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Fault::Broken(format!("no runtime: {error}")))?;
    let races = async {
        let client = world.client().await?;
        let verdict = sections(&client, world.whole, inside, last).await;
        // Closed after a failure, too, so that other clients need not wait for this client.
        client.session().close().await?;
        verdict
    };
    // Judges real time: here threads race, which no virtual clock orders.
    let raced = runtime.block_on(async { tokio::time::timeout(PATIENCE, races).await });
    raced.unwrap_or_else(|_| Err(Fault::Broken("a waiter was never granted".to_owned())))
}

async fn sections(client: &Client, claim: Claim, inside: &AtomicUsize, last: &AtomicU64) -> Verdict {
    let job = name("job")?;
    for _ in 0..50 {
        let mut place = client.enter(&job, claim).await?;
        while !matches!(place.standing(), Standing::Granted(_)) {
            let standing = place.next(Moment::NEVER).await?;
            demand!(!matches!(standing, Standing::Lost(_)), "a waiting place is {standing:?}");
        }
        let others = inside.fetch_add(1, Ordering::SeqCst);
        demand!(others == 0, "{others} others hold the mutex");
        if let Standing::Granted(grant) = place.standing() {
            let token = grant.token.map_or(u64::MAX, |token| token.to_i64().unsigned_abs());
            let before = last.swap(token, Ordering::SeqCst);
            demand!(token == u64::MAX || token > before, "the token {token} came after {before}");
        }
        // The other tasks run meanwhile, on a single core too: a second holder would meet this one.
        std::thread::sleep(Duration::from_millis(1));
        inside.fetch_sub(1, Ordering::SeqCst);
        place.leave().await?;
    }
    Ok(())
}
