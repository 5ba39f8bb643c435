//! What each master is asked. A request may bid for its lock several times, and each bid has a value of its own: what is late of an
//! earlier bid, in whichever order it arrives, is nothing of a later one.

use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;

use super::super::dialect::{Dialect, call, milliseconds, plainly, tried};
use crate::kit::try_again::Tried;
use crate::store::{PlaceId, RequestId};
use crate::stores::redis::wire::Call;

/// One try of a request at all masters.
#[derive(Debug)]
pub(super) struct Bid {
    pub(super) place: PlaceId,
    /// What the value says of the holder.
    pub(super) said: Arc<str>,
    /// Which bid of its session it is.
    pub(super) number: u64,
    /// The bid of the same request that came before, if nobody knows what became of it.
    pub(super) earlier: Option<u64>,
}

impl Bid {
    /// How its value begins, and no other.
    fn head(&self, dialect: &Dialect) -> String {
        bid_head(dialect, self.place.request, self.number)
    }

    fn key(&self, dialect: &Dialect) -> String {
        dialect.key(&self.place.name)
    }

    /// The command that takes a free lock, where there is one; it says nothing of a key that is there.
    pub(super) fn quick(&self, dialect: &Dialect, ttl: Duration) -> Option<Cmd> {
        dialect.quick.map(|quick| quick(&self.key(dialect), &self.head(dialect), &self.said, ttl))
    }

    pub(super) fn acquire(&self, dialect: &Dialect, ttl: Duration) -> Call<Tried> {
        call(&dialect.scripts.acquire, &[self.key(dialect)], tried)
            .arg(self.head(dialect))
            .arg(&*self.said)
            .arg(milliseconds(ttl))
    }

    /// Gives up this bid alone.
    pub(super) fn give_up(&self, dialect: &Dialect) -> Call<usize> {
        self.give_up_number(dialect, self.number)
    }

    /// Gives up the bid of the same request with that number.
    pub(super) fn give_up_number(&self, dialect: &Dialect, number: u64) -> Call<usize> {
        let head = bid_head(dialect, self.place.request, number);
        call(&dialect.scripts.leave, &[self.key(dialect)], plainly).arg(head)
    }
}

fn bid_head(dialect: &Dialect, id: RequestId, number: u64) -> String {
    format!("{}{number:x}:", (dialect.marks.head)(id))
}

/// Prolongs what these bids have. Answers which of them have nothing.
pub(super) fn renew(dialect: &Dialect, bids: &[Arc<Bid>], ttl: Duration) -> Call<Vec<usize>> {
    let keys: Vec<String> = bids.iter().map(|bid| bid.key(dialect)).collect();
    let renewal = call(&dialect.scripts.renew, &keys, plainly).arg(milliseconds(ttl));
    bids.iter().fold(renewal, |renewal, bid| renewal.arg(bid.head(dialect)))
}
