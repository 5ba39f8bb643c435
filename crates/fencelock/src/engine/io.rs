//! The thread of background work: by default fencelock's own, so that blocking user code cannot stop renewals.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::TryFutureExt;
use futures_util::future::{self, Either};
use tokio::runtime::{Builder, Handle, Id};
use tokio::task::JoinHandle;

use crate::error::{Error, ErrorKind, Result};
use crate::store::Tasks;
use crate::sync::Mutex;

/// The thread or runtime of a client's sessions, renewals, requests and clean-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Io {
    /// On one thread per process that belongs to fencelock (a second one for stores whose calls block). User code that blocks or starves
    /// its runtime cannot stop renewals. A guard may be dropped after its runtime has ended, and any executor works. Requests that a store
    /// answers at once (`memory:`, and `file:` without contenders) run on the caller's own thread; every other call costs two wake-ups of a
    /// thread.
    #[default]
    OwnThread,
    /// On the tokio runtime that calls [`ClientBuilder::connect`](crate::ClientBuilder::connect), which needs its time and I/O drivers.
    /// Saves the wake-ups; but code that blocks that runtime delays renewals, short system calls of stores on disk are made right there,
    /// and the end of the runtime ends releases that a guard's drop started. A call that is polled once, and then neither polled again nor
    /// dropped, stops with its request: other callers for the same name, also of the same client, may wait for it.
    ///
    /// Used on another runtime, or on none, the client refuses with [`ErrorKind::Config`]. A guard may be dropped anywhere: the runtime of
    /// its client releases it, as long as that runtime lives.
    CurrentRuntime,
}

/// Runs futures where [`Io`] says.
#[derive(Debug, Clone)]
pub(crate) struct Spawner {
    handle: Handle,
    own_thread: bool,
    home: Home,
}

/// The process of origin. A fork copies neither threads nor connections, so a child does not use the copies in its memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Home(u32);

impl Home {
    pub(crate) fn here() -> Self {
        Self(std::process::id())
    }

    /// Whether this is a child that a fork has made since.
    pub(crate) fn is_elsewhere(self) -> bool {
        self.0 != std::process::id()
    }

    fn check(self) -> Result<()> {
        if !self.is_elsewhere() {
            return Ok(());
        }
        let message = "the client was connected by the process that this one was forked from, and does nothing here: connect another one after the fork";
        Err(Error::new(ErrorKind::Closed, "process", message).with("connected by pid", self.0))
    }
}

impl Spawner {
    /// The spawner for `io`; `blocking` stores get a separate thread, so that a hung disk delays no other store.
    pub(crate) fn new(io: Io, blocking: bool) -> Result<Self> {
        match io {
            Io::OwnThread => Ok(Self { handle: own_thread(blocking)?, own_thread: true, home: Home::here() }),
            Io::CurrentRuntime => {
                let handle = Handle::try_current().map_err(|error| {
                    Error::new(ErrorKind::Config, "connect", "Io::CurrentRuntime needs a tokio runtime around the call")
                        .caused_by(error)
                })?;
                Ok(Self { handle, own_thread: false, home: Home::here() })
            }
        }
    }

    pub(crate) fn has_own_thread(&self) -> bool {
        self.own_thread
    }

    pub(crate) fn tasks(&self) -> Tasks {
        Tasks::on(self.handle.clone())
    }

    pub(crate) fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.spawn(task)
    }

    /// Runs `work` on the engine's runtime, and waits for it. Dropping the returned future drops `work`.
    ///
    /// Not an `async fn`: that would reserve room for `work` twice, in every future that waits for a lock.
    pub(crate) fn run<F, T>(&self, work: F) -> impl Future<Output = Result<T>> + Send + use<F, T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
        T: Send + 'static,
    {
        if self.own_thread {
            return Either::Left(self.run_apart(work));
        }
        let (home, runtime) = (self.home, self.handle.id());
        let check = move |_: &mut Context<'_>| home.check().and_then(|()| check_runtime(runtime));
        Either::Right(future::lazy(check).and_then(move |()| work))
    }

    /// [`Spawner::run`] on a task of the engine wherever requests run: the work needs no poll of its caller, and no runtime of the caller's.
    pub(crate) fn run_apart<F, T>(&self, work: F) -> impl Future<Output = Result<T>> + Send + use<F, T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
        T: Send + 'static,
    {
        match self.home.check() {
            Ok(()) => Either::Left(AbortOnDrop(self.handle.spawn(work), self.home)),
            Err(error) => Either::Right(future::ready(Err(error))),
        }
    }

    /// Refuses requests outside of the process that connected, or of the runtime of [`Io::CurrentRuntime`], which has the client's connections.
    pub(crate) fn check_place(&self) -> Result<()> {
        self.home.check()?;
        if self.own_thread { Ok(()) } else { check_runtime(self.handle.id()) }
    }

    /// Whether this is a child of the process that connected: then nothing may be spawned or sent.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.home.is_elsewhere()
    }

    /// Runs `work` on the engine's runtime, and waits for it. Dropping the returned future does not stop `work`.
    pub(crate) async fn run_to_end<F, T>(&self, work: F) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
        T: Send + 'static,
    {
        self.home.check()?;
        self.handle.spawn(work).await.unwrap_or_else(|_| Err(stopped()))
    }
}

fn check_runtime(home: Id) -> Result<()> {
    if Handle::try_current().is_ok_and(|here| here.id() == home) {
        return Ok(());
    }
    let message = "a client of Io::CurrentRuntime is used outside the runtime that it was connected on; connect another client here, or use Io::OwnThread";
    Err(Error::new(ErrorKind::Config, "runtime", message))
}

struct AbortOnDrop<T>(JoinHandle<Result<T>>, Home);

impl<T> Future for AbortOnDrop<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|joined| joined.unwrap_or_else(|_| Err(stopped())))
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        if !self.1.is_elsewhere() {
            self.0.abort();
        }
    }
}

pub(super) fn stopped() -> Error {
    Error::new(ErrorKind::Internal, "background work", "the runtime that it ran on was stopped, or it panicked")
        .outcome_unknown()
}

thread_local! {
    static IS_OURS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Whether this is an engine thread, which must never wait for work that runs on it.
pub(crate) fn on_own_thread() -> bool {
    IS_OURS.get()
}

fn own_thread(blocking: bool) -> Result<Handle> {
    static GENERAL: Mutex<Option<(Home, Handle)>> = Mutex::new(None);
    static BLOCKING: Mutex<Option<(Home, Handle)>> = Mutex::new(None);
    let (started, name) = if blocking { (&BLOCKING, "fencelock-disk") } else { (&GENERAL, "fencelock-io") };
    let mut started = started.lock();
    // A forked child has only the thread that forked.
    if let Some((_, handle)) = started.as_ref().filter(|(home, _)| !home.is_elsewhere()) {
        return Ok(handle.clone());
    }
    let handle = start_thread(name).map_err(|error| {
        Error::new(ErrorKind::Exhausted, "connect", "cannot start the I/O thread").with("thread", name).caused_by(error)
    })?;
    *started = Some((Home::here(), handle.clone()));
    Ok(handle)
}

fn start_thread(name: &str) -> io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        IS_OURS.set(true);
        runtime.block_on(std::future::pending::<()>());
    })?;
    Ok(handle)
}
