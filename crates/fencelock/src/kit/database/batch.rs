//! Requests of a session that arrive while a call of its connection is on its way. They gather, and go together in a single call with a
//! single commit.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, oneshot};

use super::call::Param;
use crate::queue::Claim;
use crate::store::PlaceId;

/// A batch of so many names and purposes is smaller than 100 kB, or 200 kB in hexadecimal.
pub(crate) const MOST: usize = 64;

#[derive(Debug, Clone)]
pub(crate) enum RequestKind {
    /// `again` says that the request may have been sent before.
    Enter {
        claim: Claim,
        wait: bool,
        again: bool,
        purpose: Option<Arc<str>>,
    },
    Leave(Option<u64>),
    Withdraw,
}

#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) place: PlaceId,
    pub(crate) kind: RequestKind,
}

impl Request {
    /// The request as `batch` takes it: kind, name, client, number, seq, weight, capacity, wait, again, purpose; NULL where a kind has no use
    /// for it.
    pub(crate) fn params(&self) -> [Param<'_>; 10] {
        let PlaceId { name, request } = &self.place;
        let of = |kind: u32, seq: Option<u64>| {
            [kind.into(), name.as_str().into(), request.client.into(), request.number.into(), seq.into()]
        };
        let ([kind, name, client, number, seq], [weight, capacity, wait, again, purpose]) = match &self.kind {
            RequestKind::Enter { claim, wait, again, purpose } => {
                let (weight, capacity) = (claim.weight().into(), claim.capacity().into());
                (of(0, None), [weight, capacity, (*wait).into(), (*again).into(), purpose.as_deref().into()])
            }
            RequestKind::Leave(seq) => (of(1, *seq), [const { Param::Null }; 5]),
            RequestKind::Withdraw => (of(2, None), [const { Param::Null }; 5]),
        };
        [kind, name, client, number, seq, weight, capacity, wait, again, purpose]
    }
}

/// The gathered requests of one connection. An answer is the numbers that a function returns.
pub(crate) type Batches = Gathering<Request, crate::error::Result<Vec<i64>>>;

/// A request, and the channel of its answer. A request whose caller is gone is not sent.
pub(crate) type Gathered<R, A> = (R, oneshot::Sender<A>);
pub(crate) type Receiver<R, A> = mpsc::UnboundedReceiver<Gathered<R, A>>;

pub(crate) struct Gathering<R, A> {
    queue: mpsc::UnboundedSender<Gathered<R, A>>,
    /// Until a task takes it, no request gathers.
    receiver: Mutex<Option<Receiver<R, A>>>,
}

impl<R, A> Default for Gathering<R, A> {
    fn default() -> Self {
        let (queue, receiver) = mpsc::unbounded_channel();
        Self { queue, receiver: Mutex::new(Some(receiver)) }
    }
}

impl<R, A> Gathering<R, A> {
    /// Hands a request to the task that sends. Returns the receiver of the answer, which fails if the connection ends before, or the
    /// request if no task sends on this connection.
    pub(crate) fn hand_over(&self, request: R) -> Result<oneshot::Receiver<A>, R> {
        if self.receiver.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            return Err(request);
        }
        let (sender, answer) = oneshot::channel();
        self.queue.send((request, sender)).map(|()| answer).map_err(|mpsc::error::SendError((request, _))| request)
    }

    /// From here on requests gather, until the receiver is dropped.
    pub(crate) fn receiver(&self) -> Option<Receiver<R, A>> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Waits for requests. Returns the oldest ones whose callers still wait: several if they arrived while the task sent others.
pub(crate) async fn next<R, A>(gathered: &mut Receiver<R, A>) -> Option<Vec<Gathered<R, A>>> {
    let mut batch = Vec::new();
    let count = gathered.recv_many(&mut batch, MOST).await;
    batch.retain(|(_, answer)| !answer.is_closed());
    (count > 0).then_some(batch)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn gathered(gathering: &Gathering<u32, u32>, request: u32) -> oneshot::Receiver<u32> {
        gathering.hand_over(request).unwrap_or_else(|_| panic!("request {request} goes alone"))
    }

    fn sent(receiver: &mut Receiver<u32, u32>) -> Vec<u32> {
        let batch = next(receiver).now_or_never().unwrap().unwrap();
        let answer = |(request, caller): Gathered<u32, u32>| caller.send(request + 100).map(|()| request).unwrap();
        batch.into_iter().map(answer).collect()
    }

    #[test]
    fn a_request_alone_goes_at_once_and_requests_that_arrive_meanwhile_go_together_oldest_first() {
        let gathering = Gathering::default();
        assert_eq!(gathering.hand_over(0).unwrap_err(), 0, "no task sends yet");
        let mut receiver = gathering.receiver().unwrap();
        let alone = gathered(&gathering, 1);
        assert_eq!(sent(&mut receiver), [1]);
        assert_eq!(alone.now_or_never(), Some(Ok(101)));
        let mut waiting: Vec<_> = (2..71).map(|request| gathered(&gathering, request)).collect();
        assert_eq!(sent(&mut receiver), (2..66).collect::<Vec<_>>());
        assert_eq!(waiting[0].try_recv(), Ok(102));
        assert_eq!(sent(&mut receiver), [66, 67, 68, 69, 70]);
        assert!(next(&mut receiver).now_or_never().is_none());
    }

    #[test]
    fn a_request_whose_caller_is_gone_is_not_sent_and_requests_that_gathered_fail_with_the_connection() {
        let gathering = Gathering::default();
        let mut receiver = gathering.receiver().unwrap();
        drop(gathered(&gathering, 1));
        let _kept = gathered(&gathering, 2);
        assert_eq!(sent(&mut receiver), [2]);
        drop(gathered(&gathering, 3));
        assert!(sent(&mut receiver).is_empty());
        let mut waiting = gathered(&gathering, 4);
        drop(receiver);
        assert_eq!(waiting.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        assert_eq!(gathering.hand_over(5).unwrap_err(), 5);
    }
}
