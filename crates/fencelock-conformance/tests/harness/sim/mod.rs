//! A simulation: clusters of clients over the store `memory:` in one thread, on a virtual clock. A seed decides everything: which process
//! runs next, what its tasks do, and which faults strike. The same seed plays the same run.

mod crew;
mod faults;
mod hosts;
mod record;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fencelock::memory::{Census, MemoryStore, VirtualClock};
use fencelock::store::Store;
use fencelock::time::{Clock as _, Moment};
use fencelock_lab::history::{History, Law, Laws, check};

use self::crew::Lock;
use self::faults::Member;
use self::hosts::{HostId, Hosts, Orders};
use self::record::Record;
use crate::judge_again;

/// The time with faults.
const TROUBLE: Duration = Duration::from_secs(240);
/// The longest time without faults until every waiter is served.
const PATIENCE: Duration = Duration::from_secs(900);
/// The time in which all remains leave the store: longer than every ttl. Idle clients have as much to leave their places.
const CLEANING: Duration = Duration::from_secs(60);

/// Wraps the store `memory:` of a client: a test passes a wrong store that the judge must notice.
pub(crate) type Wrap = Box<dyn Fn(Arc<dyn Store>) -> Arc<dyn Store> + Send + Sync>;

/// The store itself.
pub(crate) fn sound() -> Wrap {
    Box::new(|store| store)
}

/// A run as its tasks see it.
struct World {
    clock: VirtualClock,
    store: MemoryStore,
    wrap: Wrap,
    orders: Arc<Orders>,
    record: Mutex<Record>,
    locks: Vec<Lock>,
    members: Mutex<Vec<Member>>,
    /// The processes that have not ended their work.
    running: AtomicU64,
    /// The tasks end after their present sections.
    is_ending: AtomicBool,
    /// The processes close their clients.
    is_closing: AtomicBool,
}

impl World {
    fn start(self: &Arc<Self>, rng: fastrand::Rng) -> Member {
        let store = self.store.another_process();
        let number = self.record().history.client("client");
        self.running.fetch_add(1, Ordering::Relaxed);
        let process = crew::process(Arc::clone(self), store.clone(), number, rng);
        Member { host: self.orders.start(process), store }
    }

    fn replace(self: &Arc<Self>, host: HostId, rng: fastrand::Rng) {
        let mut members = self.members.lock().unwrap();
        if let Some(member) = members.iter_mut().find(|member| member.host == host) {
            self.running.fetch_sub(1, Ordering::Relaxed);
            *member = self.start(rng);
        }
    }

    fn members(&self) -> Vec<Member> {
        self.members.lock().unwrap().clone()
    }
}

/// The outcome of a run.
pub(crate) struct Played {
    seed: u64,
    /// Every event, in order, with its moment and the number of polls before it.
    pub(crate) trace: String,
    pub(crate) sections: usize,
    pub(crate) history: History,
    /// Whether a correct lock can have this history, apart from answers that a lock is busy, which the second judge does not judge.
    pub(crate) is_possible: bool,
    pub(crate) faults: u64,
    /// The time that passed on the virtual clock.
    pub(crate) time: Duration,
    /// The verdict of the judge, and all else that is wrong.
    pub(crate) wrong: Vec<String>,
}

impl Played {
    /// # Panics
    /// If anything is wrong, or the judges disagree.
    pub(crate) fn expect_sound(&self) {
        let Self { seed, trace, wrong, .. } = self;
        assert!(wrong.is_empty(), "{trace}\n{}\n(again: FENCELOCK_SEED={seed})", wrong.join("\n"));
        judge_again(&self.history, self.is_possible);
    }
}

/// Plays a run: first with faults, then without.
pub(crate) fn play(seed: u64, wrap: Wrap) -> Played {
    // The library draws the pauses between its retries from this source.
    fastrand::seed(seed);
    let mut rng = fastrand::Rng::with_seed(seed);
    let (store, clock) = MemoryStore::with_virtual_clock();
    let start = clock.now();
    let mut hosts = Hosts::new(clock.clone(), rng.fork());
    let orders = Arc::clone(hosts.orders());
    let locks = (0..rng.usize(1..=3)).map(|number| Lock::drawn(number, &mut rng)).collect();
    let record = Mutex::new(Record::new(clock.clone(), Arc::clone(&orders)));
    let (members, running) = (Mutex::default(), AtomicU64::new(0));
    let (is_ending, is_closing) = (AtomicBool::new(false), AtomicBool::new(false));
    let world = Arc::new(World { clock, store, wrap, orders, record, locks, members, running, is_ending, is_closing });
    for _ in 0..rng.usize(2..=6) {
        let member = world.start(rng.fork());
        world.members.lock().unwrap().push(member);
    }
    if let Err(failure) = world.run(&mut hosts, start, rng) {
        world.record().fail(failure);
    }
    drop(hosts);
    world.judge(seed, start)
}

impl World {
    fn run(self: &Arc<Self>, hosts: &mut Hosts, start: Moment, rng: fastrand::Rng) -> Result<(), String> {
        let faults = self.orders.start(faults::faults(Arc::clone(self), rng));
        hosts.run(start.after(TROUBLE), || false)?;
        self.orders.kill(faults);
        self.members().iter().for_each(|member| member.heal(self));
        self.is_ending.store(true, Ordering::Relaxed);
        self.record().note("the faults end");
        let running = || self.running.load(Ordering::Relaxed);
        hosts.run(self.clock.now().after(PATIENCE), || running() == 0)?;
        match running() {
            0 => {}
            left => self.record().fail(format!("{left} processes wait without end: {:?}", self.store.census())),
        }
        hosts.run(self.clock.now().after(CLEANING), || false)?;
        match self.store.census().places {
            0 => {}
            left => self.record().fail(format!("idle clients leave {left} places behind")),
        }
        self.is_closing.store(true, Ordering::Relaxed);
        hosts.run(self.clock.now().after(CLEANING), || false)?;
        match self.store.census() {
            census if census == Census::default() => Ok(()),
            census => Err(format!("the store keeps {census:?}")),
        }
    }

    fn judge(&self, seed: u64, start: Moment) -> Played {
        let mut record = self.record();
        let report = check(&record.history, Laws::ALL);
        let mut wrong = std::mem::take(&mut record.failures);
        if !report.is_clean() {
            wrong.push(report.describe(&record.history));
        }
        let trace = std::mem::take(&mut record.trace);
        let time = self.clock.now().since(start);
        let is_possible = report.violations.iter().all(|violation| violation.law == Law::BusyHasAWitness);
        let history = std::mem::take(&mut record.history);
        Played { seed, trace, sections: report.sections, history, is_possible, faults: record.faults, time, wrong }
    }
}
