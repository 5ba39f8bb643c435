//! Requests of a session that arrive while a call of its connection is on its way. They gather, and go together: one call, one commit.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit, mpsc, oneshot};

use super::call::Param;
use crate::error::Result;
use crate::queue::Claim;
use crate::store::PlaceId;

pub(crate) const MOST: usize = 64;

#[derive(Debug, Clone)]
pub(crate) enum Kind {
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
    pub(crate) kind: Kind,
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
            Kind::Enter { claim, wait, again, purpose } => {
                let (weight, capacity) = (claim.weight().into(), claim.capacity().into());
                (of(0, None), [weight, capacity, (*wait).into(), (*again).into(), purpose.as_deref().into()])
            }
            Kind::Leave(seq) => (of(1, *seq), [const { Param::Null }; 5]),
            Kind::Withdraw => (of(2, None), [const { Param::Null }; 5]),
        };
        [kind, name, client, number, seq, weight, capacity, wait, again, purpose]
    }
}

pub(crate) type Batches = Gathering<Request, Result<Vec<i64>>>;

/// A request, and where its answer goes. Without the caller at the other end, the request is not sent.
pub(crate) type Gathered<R, A> = (R, oneshot::Sender<A>);
pub(crate) type Receiver<R, A> = mpsc::UnboundedReceiver<Gathered<R, A>>;

pub(crate) struct Gathering<R, A> {
    turn: Semaphore,
    queue: mpsc::UnboundedSender<Gathered<R, A>>,
    /// Until a task takes it, no request gathers.
    receiver: Mutex<Option<Receiver<R, A>>>,
}

impl<R, A> Default for Gathering<R, A> {
    fn default() -> Self {
        let (queue, receiver) = mpsc::unbounded_channel();
        Self { turn: Semaphore::new(1), queue, receiver: Mutex::new(Some(receiver)) }
    }
}

impl<R, A> Gathering<R, A> {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Receiver<R, A>>> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a request. If no call is on its way, the request goes at once, by itself, and others gather until its turn is dropped. Otherwise
    /// the request gathers; its receiver fails if the connection ends before the answer.
    pub(crate) fn begin(&self, request: R) -> Result<(Option<SemaphorePermit<'_>>, R), oneshot::Receiver<A>> {
        let turn = self.turn.try_acquire().ok();
        if turn.is_some() || self.lock().is_some() {
            return Ok((turn, request));
        }
        let (sender, answer) = oneshot::channel();
        match self.queue.send((request, sender)) {
            Ok(()) => Err(answer),
            Err(mpsc::error::SendError((request, _))) => Ok((None, request)),
        }
    }

    pub(crate) fn receiver(&self) -> Option<Receiver<R, A>> {
        self.lock().take()
    }

    /// Waits until requests have gathered and no call is on its way. Returns the oldest requests whose callers still wait.
    pub(crate) async fn next(
        &self,
        gathered: &mut Receiver<R, A>,
    ) -> Option<(SemaphorePermit<'_>, Vec<Gathered<R, A>>)> {
        let mut batch = Vec::new();
        gathered.recv_many(&mut batch, MOST).await;
        let turn = self.turn.acquire().await.ok()?;
        while batch.len() < MOST
            && let Ok(more) = gathered.try_recv()
        {
            batch.push(more);
        }
        batch.retain(|(_, answer)| !answer.is_closed());
        Some((turn, batch))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn alone(gathering: &Gathering<u32, u32>, request: u32) -> Option<SemaphorePermit<'_>> {
        gathering.begin(request).unwrap_or_else(|_| panic!("request {request} gathers")).0
    }

    fn gathered(gathering: &Gathering<u32, u32>, request: u32) -> oneshot::Receiver<u32> {
        gathering.begin(request).err().unwrap_or_else(|| panic!("request {request} goes alone"))
    }

    fn requests(batch: &[Gathered<u32, u32>]) -> Vec<u32> {
        batch.iter().map(|(request, _)| *request).collect()
    }

    #[test]
    fn a_request_alone_goes_at_once_and_what_arrives_meanwhile_goes_together_oldest_first() {
        let gathering = Gathering::default();
        let mut receiver = gathering.receiver().unwrap();
        drop(alone(&gathering, 0));
        let turn = alone(&gathering, 1);
        let mut waiting: Vec<_> = (2..70).map(|request| gathered(&gathering, request)).collect();
        let mut next = Box::pin(gathering.next(&mut receiver));
        assert!(next.as_mut().now_or_never().is_none(), "a call is on its way");
        drop(turn);
        waiting.push(gathered(&gathering, 70));
        let (turn, batch) = next.now_or_never().unwrap().unwrap();
        assert_eq!(requests(&batch), (2..66).collect::<Vec<_>>());
        batch.into_iter().for_each(|(request, answer)| answer.send(request + 100).unwrap());
        assert_eq!(waiting[0].try_recv(), Ok(102));
        drop(turn);
        let (turn, batch) = gathering.next(&mut receiver).now_or_never().unwrap().unwrap();
        assert_eq!(requests(&batch), [66, 67, 68, 69, 70]);
        drop(turn);
        drop(alone(&gathering, 71));
    }

    #[test]
    fn a_request_whose_caller_is_gone_is_not_sent_and_holds_up_no_other() {
        let gathering = Gathering::default();
        let mut receiver = gathering.receiver().unwrap();
        let turn = alone(&gathering, 0);
        drop(gathered(&gathering, 1));
        let kept = gathered(&gathering, 2);
        drop(turn);
        let (turn, batch) = gathering.next(&mut receiver).now_or_never().unwrap().unwrap();
        assert_eq!(requests(&batch), [2]);
        drop((kept, batch, turn));
        drop(alone(&gathering, 5));
    }

    #[test]
    fn requests_that_gathered_fail_with_the_connection_and_others_wait_for_none() {
        let gathering = Gathering::default();
        let (first, second) = (alone(&gathering, 0), alone(&gathering, 1));
        drop((first, second));
        let receiver = gathering.receiver();
        let turn = alone(&gathering, 2);
        let mut waiting = gathered(&gathering, 3);
        drop(receiver);
        assert_eq!(waiting.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        assert!(alone(&gathering, 4).is_none());
        drop(turn);
    }
}
