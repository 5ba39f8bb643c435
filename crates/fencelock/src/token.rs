//! Fencing tokens: numbers that a resource can compare.

use std::fmt;

/// A number that rises with every exclusive grant of one lock, to be passed to whatever the lock protects.
///
/// A resource that remembers the highest token it accepted, and refuses lower ones, is safe against a holder that was
/// paused past its lease. It is safe only *after* it accepted a newer token; a write by the older holder before that
/// cannot be told from a timely one. Tokens order exclusive grants; readers and permit holders may hold older tokens
/// legitimately.
///
/// `grant` is the store's own number, `handoff` counts hand-overs between tasks of one process within that grant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FencingToken {
    grant: u64,
    handoff: u16,
}

impl FencingToken {
    /// Grants from this one on cannot be packed into an `i64` and are refused by the stores.
    pub const GRANT_LIMIT: u64 = 1 << 51;
    /// The most hand-overs within one grant.
    pub const HANDOFF_MAX: u16 = 4095;

    /// A token, or `None` when `grant` is 2^51 or more, or `handoff` over 4095.
    #[must_use]
    pub const fn new(grant: u64, handoff: u16) -> Option<Self> {
        if grant >= Self::GRANT_LIMIT || handoff > Self::HANDOFF_MAX { None } else { Some(Self { grant, handoff }) }
    }

    /// The store's raw number, for resources shared with clients in other languages.
    #[must_use]
    pub const fn grant(self) -> u64 {
        self.grant
    }

    /// How often the place was handed over inside the process before this holder had it.
    #[must_use]
    pub const fn handoff(self) -> u16 {
        self.handoff
    }

    /// Both numbers in one that orders the same: `grant << 12 | handoff`. Always positive.
    #[must_use]
    pub const fn to_i64(self) -> i64 {
        (self.grant as i64) << 12 | self.handoff as i64
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to_i64())
    }
}

impl fmt::Debug for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.grant, self.handoff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_tokens_order_as_their_parts_do_up_to_the_limits() {
        let token = |grant, handoff| FencingToken::new(grant, handoff).unwrap();
        let ordered = [token(0, 0), token(0, 1), token(1, 0), token(1, 4095), token(2, 0), token((1 << 51) - 1, 4095)];
        for pair in ordered.windows(2) {
            assert!(pair[0] < pair[1] && pair[0].to_i64() < pair[1].to_i64());
        }
        assert_eq!(ordered[5].to_i64(), i64::MAX);
    }

    #[test]
    fn what_would_be_truncated_is_refused() {
        assert_eq!(FencingToken::new(1 << 51, 0), None);
        assert_eq!(FencingToken::new(1, 4096), None);
    }
}
