//! The unrequested events of a client.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_util::Stream;

/// An unrequested event of the connection or the session.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The connection is gone; the session may live on, and the client looks for another server.
    Disconnected {
        /// The reason.
        why: String,
    },
    /// The session continues on this server.
    Reconnected {
        /// The server's address.
        server: String,
    },
    /// The session has expired, as a server said; also when a server answered with another session. The last event.
    Expired,
    /// A server refused the credentials. The last event.
    AuthFailed,
    /// The client was closed. The last event.
    Closed,
}

impl Event {
    fn is_last(&self) -> bool {
        matches!(self, Self::Expired | Self::AuthFailed | Self::Closed)
    }
}

/// The events of one client. Ends with the client. A reader that does not keep up misses the oldest of many reconnects, never the last event.
#[derive(Debug)]
pub struct Events {
    shared: Arc<EventQueue>,
}

/// How many events wait for a reader at most.
const LIMIT: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    waiting: VecDeque<Event>,
    ended: bool,
    waker: Option<Waker>,
}

impl EventQueue {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn reader(self: &Arc<Self>) -> Events {
        Events { shared: Arc::clone(self) }
    }

    /// Ignored after the last event.
    pub(crate) fn push(&self, event: Event) {
        let mut inner = self.lock();
        if inner.ended {
            return;
        }
        inner.ended = event.is_last();
        if inner.waiting.len() >= LIMIT {
            inner.waiting.pop_front();
        }
        inner.waiting.push_back(event);
        let waker = inner.waker.take();
        drop(inner);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Stream for Events {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let mut inner = self.shared.lock();
        if let Some(event) = inner.waiting.pop_front() {
            return Poll::Ready(Some(event));
        }
        if inner.ended {
            return Poll::Ready(None);
        }
        let old = inner.waker.replace(context.waker().clone());
        drop(inner);
        drop(old);
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, StreamExt};

    use super::*;

    #[test]
    fn a_slow_reader_misses_reconnects_but_not_the_end() {
        let queue = Arc::new(EventQueue::default());
        let mut events = queue.reader();
        for number in 0..100 {
            queue.push(Event::Reconnected { server: number.to_string() });
        }
        queue.push(Event::Expired);
        queue.push(Event::Closed);
        let mut seen = Vec::new();
        while let Some(event) = events.next().now_or_never().flatten() {
            seen.push(event);
        }
        assert_eq!(seen.len(), LIMIT);
        assert_eq!(seen.last(), Some(&Event::Expired));
        assert_eq!(events.next().now_or_never(), Some(None));
    }
}
