//! The same locks and recipes for code that blocks: threads instead of tasks, no runtime needed.
//!
//! Uses the same I/O thread as the async API ([`Io::OwnThread`]), so sessions stay alive however long a thread blocks. Not for use inside
//! async tasks: these calls park the thread. With the feature `jobs`, `jobs::blocking` has jobs for it.
//!
//! # Examples
//! ```
//! let client = fencelock::blocking::Client::connect("memory:")?;
//! let guard = client.mutex("deploy")?.acquire()?;
//! guard.check()?;
//! guard.release()?;
//! # Ok::<(), fencelock::Error>(())
//! ```

mod guard;
mod primitives;
mod recipes;
mod reentrant;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

pub use self::guard::{Guard, PermitGuard, ReadGuard, WriteGuard};
pub use self::primitives::{Mutex, RwLock, Semaphore};
pub(crate) use self::recipes::recipe;
pub use self::recipes::{Election, Leader, MultiGuard, MultiLock, Once, Window};
pub use self::reentrant::{ReentrantGuard, ReentrantMutex};
use crate::breaker::BreakerState;
use crate::client::{ClientBuilder, Health};
use crate::engine::io::{Io, on_own_thread};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::store::{AnyStore, Break, Capability, Contender, Contention, Page, Queue};

/// Options, handed to the type of the same name that does not block.
macro_rules! options {
    ($of:literal; $(with $option:ident($($value:ident: $type:ty)?);)*) => {
        $(
            #[doc = concat!("As [`crate::", $of, "::", stringify!($option), "`].")]
            #[must_use]
            pub fn $option(self, $($value: $type)?) -> Self {
                Self(self.0.$option($($value)?))
            }
        )*
    };
}
pub(crate) use options;

/// Methods that never wait, of the type underneath: facts, and checks that can fail.
macro_rules! answers {
    (
        $of:literal in $inner:tt;
        $(has $fact:ident($($given:ident: $type:ty)?) -> $answer:ty;)*
        $(checks $check:ident() -> $checked:ty;)*
    ) => {
        $(
            #[doc = concat!("As [`crate::", $of, "::", stringify!($fact), "`].")]
            #[must_use]
            pub fn $fact(&self, $($given: $type)?) -> $answer {
                self.$inner.$fact($($given)?)
            }
        )*
        $(
            #[doc = concat!("As [`crate::", $of, "::", stringify!($check), "`].")]
            ///
            /// # Errors
            /// The same.
            pub fn $check(&self) -> Result<$checked> {
                self.$inner.$check()
            }
        )*
    };
}
use answers;

/// The options and the name of a primitive.
macro_rules! primitive {
    ($of:literal) => {
        options! { $of;
            with purpose(purpose: impl AsRef<str>);
            with timeout(limit: Duration);
            with max_hold(most: Duration);
            with max_waiters(most: u32);
            with require_token();
            with on_outage(policy: crate::OnOutage);
        }
        answers! { $of in 0; has name() -> &Name; }
    };
}
use primitive;

/// Methods that wait for the asynchronous methods of the same names.
macro_rules! waits {
    ($of:literal; $($name:ident($($given:ident: $type:ty),*) -> $result:ty, $wrap:expr;)*) => {
        $(
            #[doc = concat!("As [`crate::", $of, "::", stringify!($name), "`].")]
            ///
            /// # Errors
            /// The same.
            pub fn $name(&self, $($given: $type),*) -> Result<$result> {
                wait(self.0.$name($($given),*)).map($wrap)
            }
        )*
    };
}
pub(crate) use waits;

/// A [`crate::Client`] for code that blocks.
#[derive(Debug, Clone)]
pub struct Client(pub(crate) crate::Client);

impl Client {
    /// Connects to the store that `url` names, with the default options.
    ///
    /// # Errors
    /// See [`ClientBuilder::connect`].
    pub fn connect(url: impl AsRef<str>) -> Result<Self> {
        Self::connect_with(crate::Client::builder(), url)
    }

    /// Connects with these options, except [`ClientBuilder::io`]: background work runs on fencelock's own thread.
    ///
    /// # Errors
    /// See [`ClientBuilder::connect`].
    pub fn connect_with(options: ClientBuilder, url: impl AsRef<str>) -> Result<Self> {
        wait(options.io(Io::OwnThread).connect(url)).map(Self)
    }

    /// Connects to a store that exists already.
    ///
    /// # Errors
    /// See [`ClientBuilder::connect`].
    pub fn connect_store(options: ClientBuilder, store: impl Into<AnyStore>) -> Result<Self> {
        wait(options.io(Io::OwnThread).connect_store(store)).map(Self)
    }

    answers! { "Client" in 0;
        has capability() -> Arc<Capability>;
        has health() -> Health;
        has breaker() -> Option<BreakerState>;
    }

    waits! { "Client";
        queue(name: impl AsRef<str>) -> Queue, |queue| queue;
        queue_page(name: impl AsRef<str>, page: Page) -> Queue, |queue| queue;
        contention(name: impl AsRef<str>) -> Contention, |contention| contention;
        names(prefix: &str, from: Option<&Name>, limit: usize) -> Vec<Name>, |names| names;
        break_grant(name: impl AsRef<str>, holder: &Contender, reason: &str) -> bool, |is_broken| is_broken;
        breaks(name: impl AsRef<str>) -> Vec<Break>, |breaks| breaks;
        close() -> (), |()| ();
    }
}

/// The same client, as [`OnOutage::DegradeTo`](crate::OnOutage) takes it.
///
/// ```
/// use fencelock::{OnOutage, blocking};
///
/// let (client, local) = (blocking::Client::connect("memory:")?, blocking::Client::connect("memory:local")?);
/// let report = client.mutex("report")?.on_outage(OnOutage::DegradeTo(local.into()));
/// assert!(!report.acquire()?.is_degraded());
/// # Ok::<(), fencelock::Error>(())
/// ```
impl From<Client> for crate::Client {
    fn from(client: Client) -> Self {
        client.0
    }
}

/// Runs `future` to its end on this thread, which parks in between.
pub(crate) fn wait<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    may_block()?;
    block_on(future)
}

/// An error where a blocking call would wait for itself.
fn may_block() -> Result<()> {
    if !on_own_thread() {
        return Ok(());
    }
    let message = "a blocking call on the I/O thread (from an observer?) would wait for itself";
    Err(Error::new(ErrorKind::Config, "blocking call", message))
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    // Not on a share of tokio's: inside a task, it would let this thread park until the task's own runtime runs again.
    let mut future = std::pin::pin!(tokio::task::unconstrained(future));
    let unpark = Arc::new(Unpark { thread: std::thread::current(), is_due: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&unpark));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        while !unpark.is_due.swap(false, Ordering::AcqRel) {
            std::thread::park();
        }
    }
}

struct Unpark {
    thread: Thread,
    /// A thread keeps a single permit to wake, which a nested call (by an observer, say) may have used up.
    is_due: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.is_due.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_call_inside_a_call_uses_up_no_wake_up_of_the_outer_one() {
        let mut polls = 0;
        let outer = std::future::poll_fn(move |context| {
            polls += 1;
            if polls == 2 {
                return Poll::Ready(Ok(()));
            }
            context.waker().wake_by_ref();
            let mut inner_polls = 0;
            let inner = std::future::poll_fn(|context| {
                inner_polls += 1;
                if inner_polls > 2 {
                    return Poll::Ready(Ok(()));
                }
                let waker = context.waker().clone();
                std::thread::spawn(move || waker.wake());
                Poll::Pending
            });
            wait(inner).unwrap();
            Poll::Pending
        });
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || done.send(wait(outer)));
        is_done.recv_timeout(Duration::from_secs(180)).unwrap().unwrap();
    }
}
