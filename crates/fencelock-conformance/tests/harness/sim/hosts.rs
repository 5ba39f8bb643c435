//! Many processes in one thread. Each process has a runtime of its own, without timers, and a seed picks the process that runs next.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use fencelock::memory::VirtualClock;
use fencelock::time::{Clock as _, Moment};
use futures_core::future::BoxFuture;
use tokio::runtime::{Builder, Runtime};

/// More polls than this at one moment of the virtual clock are a loop without end.
const MOST_AT_ONCE: u64 = 1_000_000;

/// The number of a process.
pub(crate) type HostId = u64;

/// The orders of tasks to the scheduler, which obeys them before the next poll.
#[derive(Default)]
pub(crate) struct Orders {
    last: AtomicU64,
    given: Mutex<Vec<Order>>,
    /// The number of polls so far.
    pub(crate) polls: AtomicU64,
}

enum Order {
    Start(HostId, BoxFuture<'static, ()>),
    /// No task of the process runs, as after SIGSTOP.
    Stop(HostId),
    Continue(HostId),
    /// The process ends at once, and none of its tasks runs again.
    Kill(HostId),
}

impl Orders {
    fn give(&self, order: Order) {
        self.given.lock().unwrap().push(order);
    }

    /// Starts a process whose first task is `main`.
    pub(crate) fn start(&self, main: impl Future<Output = ()> + Send + 'static) -> HostId {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.give(Order::Start(id, Box::pin(main)));
        id
    }

    pub(crate) fn stop(&self, host: HostId) {
        self.give(Order::Stop(host));
    }

    pub(crate) fn resume(&self, host: HostId) {
        self.give(Order::Continue(host));
    }

    pub(crate) fn kill(&self, host: HostId) {
        self.give(Order::Kill(host));
    }
}

struct Host {
    runtime: Runtime,
    /// A marker waits in the queue of the runtime.
    is_marked: Arc<AtomicBool>,
    /// The newest poll found no task: only another process or the clock can have woken one since.
    is_idle: bool,
    is_stopped: bool,
}

impl Host {
    fn new(main: BoxFuture<'static, ()>) -> Self {
        // A turn is one task. Tasks that this process woke run before tasks that other processes woke.
        let runtime = Builder::new_current_thread().event_interval(1).global_queue_interval(u32::MAX).build().unwrap();
        drop(runtime.spawn(main));
        Self { runtime, is_marked: Arc::default(), is_idle: false, is_stopped: false }
    }

    fn can_run(&self) -> bool {
        !self.is_stopped && (!self.is_idle || self.runtime.metrics().global_queue_depth() > 0)
    }

    /// Polls the first task of the queue. A marker that is polled in the turn in which it joined the queue was alone there.
    fn poll(&mut self) {
        let is_new = !self.is_marked.swap(true, Ordering::Relaxed);
        if is_new {
            let mark = Arc::clone(&self.is_marked);
            drop(self.runtime.spawn(async move { mark.store(false, Ordering::Relaxed) }));
        }
        let mut is_first = true;
        self.runtime.block_on(poll_fn(|cx| match std::mem::take(&mut is_first) {
            true => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            false => Poll::Ready(()),
        }));
        self.is_idle = is_new && !self.is_marked.load(Ordering::Relaxed);
    }
}

/// The scheduler of the processes.
pub(crate) struct Hosts {
    clock: VirtualClock,
    rng: fastrand::Rng,
    orders: Arc<Orders>,
    hosts: BTreeMap<HostId, Host>,
}

impl Hosts {
    pub(crate) fn new(clock: VirtualClock, rng: fastrand::Rng) -> Self {
        Self { clock, rng, orders: Arc::default(), hosts: BTreeMap::new() }
    }

    pub(crate) fn orders(&self) -> &Arc<Orders> {
        &self.orders
    }

    fn obey(&mut self) {
        let given = std::mem::take(&mut *self.orders.given.lock().unwrap());
        for order in given {
            match order {
                Order::Start(id, main) => drop(self.hosts.insert(id, Host::new(main))),
                Order::Kill(id) => drop(self.hosts.remove(&id)),
                Order::Stop(id) | Order::Continue(id) => {
                    if let Some(host) = self.hosts.get_mut(&id) {
                        host.is_stopped = matches!(order, Order::Stop(_));
                    }
                }
            }
        }
    }

    /// Runs tasks, and moves the clock on when none can run, until `is_done` or the moment `until`.
    ///
    /// # Errors
    /// Tasks that run again and again at one moment.
    pub(crate) fn run(&mut self, until: Moment, is_done: impl Fn() -> bool) -> Result<(), String> {
        let mut at_once = 0;
        loop {
            self.obey();
            let now = self.clock.now();
            if is_done() || now >= until {
                return Ok(());
            }
            let mut ready: Vec<&mut Host> = self.hosts.values_mut().filter(|host| host.can_run()).collect();
            if ready.is_empty() {
                let next = self.clock.next_sleeper().unwrap_or(until).clamp(now, until);
                self.clock.advance(next.since(now));
                at_once = 0;
                continue;
            }
            let picked = self.rng.usize(..ready.len());
            self.orders.polls.fetch_add(1, Ordering::Relaxed);
            ready[picked].poll();
            at_once += 1;
            if at_once > MOST_AT_ONCE {
                return Err(format!("tasks run without end at {now:?}"));
            }
        }
    }
}
