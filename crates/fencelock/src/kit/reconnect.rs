//! The connection to a server: made on demand, one at a time, with pauses after failures.
//!
//! `Reconnect` pauses after a failure, and waits for a new connection up to the user's patience. No task is started here.

use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::FutureExt;

use super::pause::{LONGEST_OF_HOLDERS, pause};
use super::share_call::SharedCall;
use crate::error::{Error, Result};
use crate::sync::Mutex;
use crate::time::{Clock, Moment, outcome_before};

/// The pause after the first failure; each further one is twice as long. Short, for holders: the engine pauses between openings itself.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// Makes connections of one type.
pub(crate) trait Dial: Send + Sync + 'static {
    type Connection: Send + Sync + 'static;

    /// Makes a connection. `number` counts the tries, from 1.
    fn dial(&self, number: u64) -> BoxFuture<'_, Result<Arc<Self::Connection>>>;

    /// The error of a connection that took longer than this.
    fn too_slow(&self, within: Duration) -> Error;

    fn is_alive(connection: &Self::Connection) -> bool;

    /// Closes a connection whose last drop does not close it.
    fn hang_up(_connection: &Self::Connection) {}
}

/// The connection of one user to a server, made again when it ended.
pub(crate) struct Reconnect<D: Dial> {
    dial: D,
    pub(crate) clock: Arc<dyn Clock>,
    patience: Duration,
    dialing: SharedCall<Result<Arc<D::Connection>, Arc<Error>>>,
    state: Mutex<LinkState<D::Connection>>,
}

struct LinkState<C> {
    current: Option<Arc<C>>,
    failures: u32,
    not_before: Option<Moment>,
    tried: u64,
}

impl<D: Dial> Reconnect<D> {
    pub(crate) fn new(dial: D, clock: Arc<dyn Clock>, patience: Duration) -> Arc<Self> {
        let state = Mutex::new(LinkState { current: None, failures: 0, not_before: None, tried: 0 });
        Arc::new(Self { dial, clock, patience, dialing: SharedCall::default(), state })
    }

    fn current(&self) -> Option<Arc<D::Connection>> {
        self.state.lock().current.as_ref().filter(|current| D::is_alive(current)).map(Arc::clone)
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.current().is_some()
    }

    pub(crate) fn hang_up(&self) {
        let current = self.state.lock().current.take();
        current.into_iter().for_each(|current| D::hang_up(&current));
    }

    /// The connection; makes one when there is none. Callers that arrive while one is being made share the outcome.
    pub(crate) async fn connection(self: &Arc<Self>) -> Result<Arc<D::Connection>> {
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let made = self.dialing.join(|| {
            let way = Arc::clone(self);
            async move { way.make().await.map_err(Arc::new) }.boxed()
        });
        made.await.map_err(|error| error.again())
    }

    async fn make(&self) -> Result<Arc<D::Connection>> {
        // An earlier call may have made a connection meanwhile.
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let (number, not_before) = {
            let mut state = self.state.lock();
            state.tried += 1;
            (state.tried, state.not_before)
        };
        if let Some(not_before) = not_before {
            self.clock.sleep_until(not_before).await;
        }
        let deadline = self.clock.now().after(self.patience);
        let made = outcome_before(&*self.clock, deadline, self.dial.dial(number)).await;
        let made = made.unwrap_or_else(|| Err(self.dial.too_slow(self.patience)));
        self.ended_with(&made);
        made
    }

    fn ended_with(&self, made: &Result<Arc<D::Connection>>) {
        let mut state = self.state.lock();
        if let Ok(connection) = made {
            (state.failures, state.not_before) = (0, None);
            let before = state.current.replace(Arc::clone(connection));
            drop(state);
            drop(before);
        } else {
            state.failures += 1;
            state.not_before = Some(self.clock.now().after(pause(FIRST_PAUSE, LONGEST_OF_HOLDERS, state.failures)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures_util::future::join;

    use super::*;
    use crate::error::ErrorKind;
    use crate::stores::memory::VirtualClock;

    /// A server that takes the third connection and all later ones, or never says a word.
    struct Server {
        is_mute: bool,
    }

    impl Dial for Server {
        /// Whether it is alive.
        type Connection = AtomicBool;

        fn dial(&self, number: u64) -> BoxFuture<'_, Result<Arc<AtomicBool>>> {
            Box::pin(async move {
                match self.is_mute {
                    true => pending().await,
                    false if number < 3 => Err(Error::new(ErrorKind::Unreachable, "connect", "down")),
                    false => Ok(Arc::new(AtomicBool::new(true))),
                }
            })
        }

        fn too_slow(&self, within: Duration) -> Error {
            Error::new(ErrorKind::Unreachable, "connect", "too slow").with("within", format!("{within:?}"))
        }

        fn is_alive(connection: &AtomicBool) -> bool {
            connection.load(Ordering::SeqCst)
        }
    }

    fn way(is_mute: bool) -> (VirtualClock, Arc<Reconnect<Server>>) {
        let clock = VirtualClock::new();
        let way = Reconnect::new(Server { is_mute }, Arc::new(clock.clone()), Duration::from_secs(3));
        (clock, way)
    }

    #[test]
    fn all_requests_that_need_a_connection_share_each_try_and_failures_are_followed_by_longer_pauses() {
        let (clock, way) = way(false);
        assert!(way.connection().now_or_never().unwrap().is_err());
        for (tried, longest) in [(2, 20), (3, 40)] {
            let mut both = Box::pin(join(way.connection(), way.connection()));
            assert!(both.as_mut().now_or_never().is_none());
            let pause = clock.next_sleeper().unwrap().since(clock.now());
            let longest = Duration::from_millis(longest);
            assert!(longest * 3 / 4 <= pause && pause <= longest, "{pause:?}");
            clock.advance(pause);
            let (one, other) = both.now_or_never().unwrap();
            assert_eq!((one.is_ok(), other.is_ok(), way.state.lock().tried), (tried == 3, tried == 3, tried));
        }
    }

    #[test]
    fn a_connection_is_used_until_it_ends_and_the_next_one_is_made_at_once() {
        let (_clock, way) = way(false);
        way.state.lock().tried = 2;
        let connected = || way.connection().now_or_never().unwrap().unwrap();
        let first = connected();
        assert!(Arc::ptr_eq(&first, &connected()) && way.is_connected());
        first.store(false, Ordering::SeqCst);
        assert!(!way.is_connected());
        assert!(!Arc::ptr_eq(&first, &connected()));
        way.hang_up();
        assert!(!way.is_connected());
    }

    #[test]
    fn the_pauses_stay_short_however_long_the_server_is_away() {
        let (clock, way) = way(false);
        let away = Err(Error::new(ErrorKind::Unreachable, "connect", "down"));
        (0..20).for_each(|_| way.ended_with(&away));
        assert!(way.state.lock().not_before.unwrap().since(clock.now()) <= LONGEST_OF_HOLDERS);
    }

    #[test]
    fn a_connection_that_takes_too_long_is_given_up() {
        let (clock, way) = way(true);
        let mut connection = Box::pin(way.connection());
        assert!(connection.as_mut().now_or_never().is_none());
        clock.advance(Duration::from_secs(3));
        let error = connection.now_or_never().unwrap().unwrap_err();
        assert!(error.to_string().contains("within 3s"), "{error}");
    }
}
