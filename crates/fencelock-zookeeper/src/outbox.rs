//! The one line in which requests wait to be written, in the order of their calls.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::answer::Outcome;
use crate::error::{Error, Result};
use crate::proto::frame::Frame;
use crate::watches::WatchKind;

/// A request that waits to be written.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) frame: Frame,
    /// The receiver of the outcome, until the outcome was sent.
    pub(crate) answer: Option<oneshot::Sender<Outcome>>,
    pub(crate) deadline: Instant,
    /// The watch that begins if the request succeeds.
    pub(crate) watch: Option<WatchKind>,
    /// Whether the answer is evidence of the session's life.
    pub(crate) confirms: bool,
}

impl Request {
    /// Whether every caller has given up the outcome.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.answer.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// Reports the outcome, once.
    pub(crate) fn settle(&mut self, outcome: Outcome) {
        if let Some(answer) = self.answer.take() {
            // The caller may wait no longer; its outcome is dropped here, with no lock held.
            drop(answer.send(outcome));
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    waiting: VecDeque<Request>,
    last_xid: i32,
    /// The connection's task, when it sleeps: only the first of several requests has to wake it.
    task: Option<Waker>,
    /// The deadline of a requested close.
    closing: Option<Instant>,
    /// Why the line takes no more requests.
    over: Option<Error>,
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a request at the end of the line, or says why the line takes no more.
    pub(crate) fn push(&self, mut request: Request) -> Result<()> {
        let mut inner = self.lock();
        if let Some(over) = &inner.over {
            return Err(over.clone());
        }
        // Positive numbers only: the other numbers have meanings.
        inner.last_xid = inner.last_xid.checked_add(1).unwrap_or(1);
        request.frame.set_xid(inner.last_xid);
        inner.waiting.push_back(request);
        let task = inner.task.take();
        drop(inner);
        task.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// Takes no more requests. By `deadline`, the waiting requests are written and the session is closed. Later requests fail with `over`.
    pub(crate) fn close(&self, deadline: Instant, over: Error) {
        let mut inner = self.lock();
        inner.closing.get_or_insert(deadline);
        inner.over.get_or_insert(over);
        let task = inner.task.take();
        drop(inner);
        task.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.lock().closing.is_some()
    }

    /// Why the line takes no more requests, if it is closed.
    pub(crate) fn why_over(&self) -> Option<Error> {
        self.lock().over.clone()
    }

    /// Takes nothing more; returns what waited.
    pub(crate) fn end(&self, over: Error) -> VecDeque<Request> {
        let mut inner = self.lock();
        inner.over = Some(over);
        std::mem::take(&mut inner.waiting)
    }

    /// Moves everything that waits into `taken`, which is empty; when there is nothing, leaves the waker to be woken.
    /// Returns the end of the time to close the session, if the caller asked to close it.
    pub(crate) fn take(&self, taken: &mut VecDeque<Request>, context: &Context<'_>) -> Option<Instant> {
        let mut inner = self.lock();
        std::mem::swap(&mut inner.waiting, taken);
        if taken.is_empty() {
            keep(&mut inner.task, context);
        }
        inner.closing
    }

    /// Leaves the waker to be woken at the next request; returns as [`Outbox::take`].
    pub(crate) fn listen(&self, context: &Context<'_>) -> Option<Instant> {
        let mut inner = self.lock();
        keep(&mut inner.task, context);
        inner.closing
    }

    /// Puts requests that were taken and never written back to the front, in their order.
    pub(crate) fn put_back(&self, requests: impl DoubleEndedIterator<Item = Request>) {
        let mut inner = self.lock();
        requests.rev().for_each(|request| inner.waiting.push_front(request));
    }

    /// Takes out the requests that are past their deadline, and the requests without a caller; says when the next deadline is.
    pub(crate) fn expire(&self, now: Instant) -> (Vec<Request>, Option<Instant>) {
        let mut inner = self.lock();
        let mut expired = Vec::new();
        // All have the same patience, so that the line is in the order of the deadlines too.
        while inner.waiting.front().is_some_and(|first| first.deadline <= now || first.is_unwanted()) {
            expired.extend(inner.waiting.pop_front());
        }
        let next = inner.waiting.front().map(|first| first.deadline);
        (expired, next)
    }
}

fn keep(task: &mut Option<Waker>, context: &Context<'_>) {
    match task {
        Some(waker) => waker.clone_from(context.waker()),
        None => *task = Some(context.waker().clone()),
    }
}
