//! The answer to a request, which is on its way already.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind, Result};
use crate::proto::codec::{Malformed, Reader};
use crate::proto::op::Op;
use crate::watches::Watch;

/// What the connection hands over: the record, undecoded, so that decoding is the caller's work and not the connection's.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(crate) record: Vec<u8>,
    pub(crate) watch: Option<Watch>,
    pub(crate) confirmed: Duration,
}

pub(crate) type Outcome = Result<Reply>;

/// Makes a reply into what the caller asked for. The number says how much of a path is the chroot's.
pub(crate) type Decode<T> = fn(Reply, usize) -> Result<T, Malformed>;

/// The answer to a request. The request was put in line by the call that returned this, so that two calls in a row travel together; this
/// future only waits.
///
/// # Cancel safety
/// Dropped before the request was written, it takes the request out of the line. Dropped later, the request takes its course and the answer
/// is ignored: whether it took effect is then unknown.
#[must_use = "the outcome of a request is worth knowing"]
pub struct Answer<T> {
    state: State,
    decode: Decode<T>,
    op: Op,
    chroot: usize,
}

enum State {
    Refused(Option<Error>),
    Waiting(oneshot::Receiver<Outcome>),
}

impl<T> Answer<T> {
    pub(crate) fn refused(error: Error, op: Op) -> Self {
        Self { state: State::Refused(Some(error)), decode: |_, _| Err(Malformed("")), op, chroot: 0 }
    }

    pub(crate) fn waiting(receiver: oneshot::Receiver<Outcome>, op: Op, chroot: usize, decode: Decode<T>) -> Self {
        Self { state: State::Waiting(receiver), decode, op, chroot }
    }

    fn finish(&self, outcome: Result<Outcome, oneshot::error::RecvError>) -> Result<T> {
        let operation = self.op.name();
        let reply = match outcome {
            Ok(outcome) => outcome?,
            Err(_) => {
                let message = "the client's task is gone, with the runtime that it ran on";
                return Err(Error::new(ErrorKind::Closed, operation, message).unknown());
            }
        };
        (self.decode)(reply, self.chroot).map_err(|Malformed(what)| {
            // The server did what it was asked; only its words are not understood.
            Error::new(ErrorKind::Protocol, operation, format!("the answer is malformed: {what}")).unknown()
        })
    }
}

impl<T> Future for Answer<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let outcome = match &mut self.state {
            State::Refused(error) => {
                let over = || Error::new(ErrorKind::Closed, "await an answer", "the answer was taken already");
                return Poll::Ready(Err(error.take().unwrap_or_else(over)));
            }
            State::Waiting(receiver) => ready!(Pin::new(receiver).poll(context)),
        };
        let result = self.finish(outcome);
        self.state = State::Refused(None);
        Poll::Ready(result)
    }
}

impl<T> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("operation", &self.op.name()).finish_non_exhaustive()
    }
}

/// Decodes a record and hands on the watch that came with it.
pub(crate) fn decode<T>(
    reply: &Reply,
    read: impl FnOnce(&mut Reader<'_>) -> Result<T, Malformed>,
) -> Result<T, Malformed> {
    read(&mut Reader::new(&reply.record))
}

/// The watch of a read that asked for one.
pub(crate) fn watch(reply: Reply) -> Result<Watch, Malformed> {
    reply.watch.ok_or(Malformed("it set no watch"))
}
