//! Requests of a session that arrive while calls of its connection are on their way. They gather, and go together in a single call with a
//! single commit.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, oneshot};

use super::call::Param;
use crate::error::Result;
use crate::queue::Claim;
use crate::store::PlaceId;

/// A batch of this size, names and purposes included, is smaller than 100 kB, or 200 kB in hexadecimal.
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
    /// The parameters of a request in `batch`: kind, name, client, number, seq, weight, capacity, wait, again, purpose; NULL where a kind
    /// does not need one.
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

/// The numbers that a function returns.
pub(crate) type Answer = Result<Vec<i64>>;

/// A request, and the channel of its answer. A request whose caller is gone is not sent.
pub(crate) type Gathered = (Request, oneshot::Sender<Answer>);
pub(crate) type Receiver = mpsc::UnboundedReceiver<Gathered>;

/// The gathered requests of one connection.
pub(crate) struct Batches {
    queue: mpsc::UnboundedSender<Gathered>,
    /// Until a task takes it, no request gathers.
    receiver: Mutex<Option<Receiver>>,
}

impl Default for Batches {
    fn default() -> Self {
        let (queue, receiver) = mpsc::unbounded_channel();
        Self { queue, receiver: Mutex::new(Some(receiver)) }
    }
}

impl Batches {
    /// Hands a request to the task that sends. Returns the receiver of the answer, which fails if the connection ends before, or the
    /// request if no task sends on this connection.
    pub(crate) fn hand_over(&self, request: Request) -> Result<oneshot::Receiver<Answer>, Request> {
        if self.receiver.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            return Err(request);
        }
        let (sender, answer) = oneshot::channel();
        self.queue.send((request, sender)).map(|()| answer).map_err(|mpsc::error::SendError((request, _))| request)
    }

    /// From here on requests gather, until the receiver is dropped.
    pub(crate) fn receiver(&self) -> Option<Receiver> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Waits for requests, and adds the oldest ones to `gathered`. Returns whether the connection still takes requests.
pub(crate) async fn gather(receiver: &mut Receiver, gathered: &mut Vec<Gathered>) -> bool {
    receiver.recv_many(gathered, MOST - gathered.len()).await > 0
}

/// Takes the gathered requests if they go now: `calls` with `sent` requests are on their way, and at most `most` calls may be. A further
/// call carries its share of all these requests: otherwise the first names would fill every call, and the other names would get no answer.
/// A request whose caller is gone is dropped: sent after its withdrawal, its place would have no owner.
pub(crate) fn take_due(gathered: &mut Vec<Gathered>, sent: usize, calls: usize, most: usize) -> Option<Vec<Gathered>> {
    gathered.retain(|(_, answer)| !answer.is_closed());
    let is_due = !gathered.is_empty() && (calls == 0 || calls < most && gathered.len() * (most - 1) >= sent);
    is_due.then(|| std::mem::take(gathered))
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::name::Name;
    use crate::store::RequestId;

    fn gathered(batches: &Batches, number: u64) -> oneshot::Receiver<Answer> {
        let place = PlaceId { name: Name::new("job").unwrap(), request: RequestId { client: 1, number } };
        let refused = |_| panic!("request {number} goes alone");
        batches.hand_over(Request { place, kind: RequestKind::Withdraw }).unwrap_or_else(refused)
    }

    /// The numbers of the requests that go together, each of which is answered by its number.
    fn sent(receiver: &mut Receiver) -> Vec<u64> {
        let mut batch = Vec::new();
        assert!(gather(receiver, &mut batch).now_or_never().unwrap());
        let batch = take_due(&mut batch, 0, 0, 1).unwrap_or_default();
        let answer = |(Request { place, .. }, caller): Gathered| {
            let number = place.request.number;
            caller.send(Ok(vec![number.cast_signed()])).map(|()| number).unwrap()
        };
        batch.into_iter().map(answer).collect()
    }

    #[test]
    fn a_request_alone_goes_at_once_and_requests_that_arrive_meanwhile_go_together_oldest_first() {
        let batches = Batches::default();
        let mut receiver = batches.receiver().unwrap();
        let alone = gathered(&batches, 1);
        assert_eq!(sent(&mut receiver), [1]);
        assert_eq!(alone.now_or_never().unwrap().unwrap().unwrap(), [1]);
        let mut waiting: Vec<_> = (2..71).map(|request| gathered(&batches, request)).collect();
        assert_eq!(sent(&mut receiver), (2..66).collect::<Vec<_>>());
        assert_eq!(waiting[0].try_recv().unwrap().unwrap(), [2]);
        assert_eq!(sent(&mut receiver), [66, 67, 68, 69, 70]);
        assert!(gather(&mut receiver, &mut Vec::new()).now_or_never().is_none());
    }

    #[test]
    fn a_request_goes_alone_before_and_after_requests_gather() {
        let batches = Batches::default();
        let request = || {
            let place = PlaceId { name: Name::new("job").unwrap(), request: RequestId { client: 1, number: 7 } };
            Request { place, kind: RequestKind::Withdraw }
        };
        assert!(batches.hand_over(request()).is_err(), "no task sends yet");
        drop(batches.receiver());
        assert!(batches.hand_over(request()).is_err_and(|request| request.place.request.number == 7));
    }

    #[test]
    fn a_request_whose_caller_is_gone_is_not_sent_and_requests_that_gathered_fail_with_the_connection() {
        let batches = Batches::default();
        let mut receiver = batches.receiver().unwrap();
        drop(gathered(&batches, 1));
        let _kept = gathered(&batches, 2);
        assert_eq!(sent(&mut receiver), [2]);
        drop(gathered(&batches, 3));
        assert!(sent(&mut receiver).is_empty());
        let mut waiting = gathered(&batches, 4);
        drop(receiver);
        assert_eq!(waiting.try_recv().unwrap_err(), oneshot::error::TryRecvError::Closed);
    }

    #[test]
    fn with_one_call_at_once_requests_wait_for_its_answer_and_with_four_each_carries_a_quarter() {
        let batches = Batches::default();
        let mut receiver = batches.receiver().unwrap();
        let mut is_due = |count: u64, sent, calls, most| {
            let (mut batch, callers) = (Vec::new(), (0..count).map(|number| gathered(&batches, number)));
            let callers: Vec<_> = callers.collect();
            assert_eq!(gather(&mut receiver, &mut batch).now_or_never().is_some(), !callers.is_empty());
            take_due(&mut batch, sent, calls, most).is_some()
        };
        assert!(is_due(1, 0, 0, 1) && !is_due(0, 0, 0, 1) && !is_due(64, 1, 1, 1));
        for (gathered, sent, calls, expected) in
            [(1, 3, 3, true), (15, 48, 3, false), (16, 48, 3, true), (64, 3, 4, false)]
        {
            assert_eq!(is_due(gathered, sent, calls, 4), expected, "{gathered} while {sent} are on their way");
        }
        // A full batch does not wait for other requests.
        assert!((1..4).all(|calls| is_due(MOST as u64, calls * MOST, calls, calls + 1)));
    }

    #[test]
    fn a_request_whose_caller_leaves_while_it_waits_for_a_call_is_not_sent_after_its_withdrawal() {
        let batches = Batches::default();
        let (mut receiver, mut waiting) = (batches.receiver().unwrap(), Vec::new());
        let (gone, _kept) = (gathered(&batches, 1), gathered(&batches, 2));
        assert!(gather(&mut receiver, &mut waiting).now_or_never().unwrap());
        assert!(take_due(&mut waiting, 64, 1, 2).is_none(), "the batch is too small for a call of its own");
        drop(gone);
        let batch = take_due(&mut waiting, 0, 0, 2).unwrap();
        assert_eq!(batch.iter().map(|(request, _)| request.place.request.number).collect::<Vec<_>>(), [2]);
    }
}
