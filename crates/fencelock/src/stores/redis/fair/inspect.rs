//! The parts of looks without a session: contenders, and the buckets whose names are not listed yet.

use super::scripts::{SWEPT_PER_CALL, Shown, Swept};
use crate::kit::bucket;
use crate::store::{Contender, Grant};
use crate::token::FencingToken;

pub(super) fn contender(shown: Shown) -> Contender {
    let token = FencingToken::new(shown.seq);
    Contender {
        owner: shown.owner,
        grant: shown.granted.then_some(Grant::new(token)),
        since: Some(shown.since),
        purpose: shown.purpose,
        ..Contender::new(shown.id, shown.claim)
    }
}

/// The part of the buckets that is not listed yet.
pub(super) struct Unlisted {
    pub(super) from: Swept,
    pub(super) upto: u16,
}

/// The parts that are left.
pub(super) struct Listed(pub(super) Vec<Unlisted>);

impl Default for Listed {
    /// All buckets, in parts that are listed concurrently.
    fn default() -> Self {
        let starts = (0..bucket::BUCKETS).step_by(usize::from(SWEPT_PER_CALL.0));
        let part = |bucket| Unlisted {
            from: Swept { bucket, cursor: "0".to_owned() },
            upto: bucket::BUCKETS.min(bucket + SWEPT_PER_CALL.0),
        };
        Self(starts.map(part).collect())
    }
}
