//! The answer to a request that has been put in line.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind, Result};
use crate::multi::Done;
use crate::proto::codec::{Malformed, Reader};
use crate::proto::op::Op;
use crate::proto::{code, multi};
use crate::watches::Watch;

/// The connection's output: the record, undecoded, so that decoding is the caller's work and not the connection's.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(crate) record: Vec<u8>,
    pub(crate) watch: Option<Watch>,
    pub(crate) confirmed: Duration,
}

pub(crate) type Outcome = Result<Reply>;

/// Converts a reply into the caller's result.
pub(crate) type Decode<T> = fn(Reply, Asked) -> Result<T, Fault>;

/// The parts of a request that decoding its answer needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    /// The length of the chroot at the beginning of a path.
    pub(crate) chroot: usize,
    /// How many operations there are.
    pub(crate) operations: usize,
}

/// Why a reply does not answer the request.
#[derive(Debug)]
pub(crate) enum Fault {
    Malformed(&'static str),
    /// An operation of several was refused, and no operation was done.
    Refused {
        number: usize,
        code: i32,
    },
}

impl From<Malformed> for Fault {
    fn from(Malformed(what): Malformed) -> Self {
        Self::Malformed(what)
    }
}

/// The answer to a request. The call that returned this has put the request in line, so that two calls in a row travel together; this
/// future only waits.
///
/// # Cancel safety
/// A drop before the request was written takes the request out of the line. After a later drop, the server still applies the request, the
/// answer is ignored, and the outcome is unknown.
#[must_use = "the outcome of a request is worth knowing"]
pub struct Answer<T> {
    state: State,
    decode: Decode<T>,
    op: Op,
    asked: Asked,
}

enum State {
    Refused(Option<Error>),
    Waiting(oneshot::Receiver<Outcome>),
}

impl<T> Answer<T> {
    pub(crate) fn refused(error: Error, op: Op) -> Self {
        let asked = Asked { chroot: 0, operations: 0 };
        Self { state: State::Refused(Some(error)), decode: |_, _| Err(Malformed("").into()), op, asked }
    }

    pub(crate) fn waiting(receiver: oneshot::Receiver<Outcome>, op: Op, asked: Asked, decode: Decode<T>) -> Self {
        Self { state: State::Waiting(receiver), decode, op, asked }
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
        (self.decode)(reply, self.asked).map_err(|fault| match fault {
            // The server carried the request out; only its reply is unreadable.
            Fault::Malformed(what) => {
                Error::new(ErrorKind::Protocol, operation, format!("the answer is malformed: {what}")).unknown()
            }
            Fault::Refused { number, code } => code::error(code, operation).of_operation(number),
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

/// Decodes a record, and returns the watch of the request with it.
pub(crate) fn decode<T>(reply: &Reply, read: impl FnOnce(&mut Reader<'_>) -> Result<T, Malformed>) -> Result<T, Fault> {
    Ok(read(&mut Reader::new(&reply.record))?)
}

/// The results of several operations, or the refused one.
pub(crate) fn all_done(reply: &Reply, asked: Asked) -> Result<Vec<Done>, Fault> {
    let all = decode(reply, multi::response)?;
    if all.len() != asked.operations {
        return Err(Fault::Malformed("it does not tell of as many operations as were asked for"));
    }
    // For operations before the refused one the server reports "no error", for later ones that they were not tried.
    let is_refusal = |one: &multi::One| matches!(one, Err(code) if !matches!(*code, code::OK | code::NOT_TRIED));
    if let Some((number, Err(code))) = all.iter().enumerate().find(|(_, one)| is_refusal(one)) {
        return Err(Fault::Refused { number, code: *code });
    }
    let done = all.into_iter().collect::<Result<Vec<_>, _>>();
    let mut done = done.map_err(|_| Fault::Malformed("it tells of a failure and not of its cause"))?;
    for one in &mut done {
        if let Done::Created { path, .. } = one {
            *path = below_chroot(path, asked)?;
        }
    }
    Ok(done)
}

/// A path without the chroot, as the caller uses it.
pub(crate) fn below_chroot(path: &str, asked: Asked) -> Result<String, Fault> {
    path.get(asked.chroot..).map(str::to_owned).ok_or(Fault::Malformed("a path is not below the chroot"))
}

/// The watch of a read that asked for one.
pub(crate) fn watch(reply: Reply) -> Result<Watch, Fault> {
    reply.watch.ok_or(Fault::Malformed("it set no watch"))
}
