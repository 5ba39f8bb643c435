//! Fencing tokens: numbers that a resource can compare.

use std::fmt;

/// A number that rises with every exclusive grant of one lock, to be passed to the resource that the lock protects.
///
/// A resource that remembers the highest token it accepted, and refuses lower ones, is safe against a holder that was paused past its
/// lease. The resource is safe only *after* it accepted a newer token; before that, the older holder's write looks like a timely one.
/// Tokens order exclusive grants; readers and permit holders may hold older tokens legitimately.
///
/// The token is the store's own number, below 2^63: a column `bigint` and a signed number of 64 bits hold it. The numbers of JavaScript and
/// Lua do not, from 2^53 on: they compare its digits, the longer text first.
///
/// ```
/// use fencelock::FencingToken;
///
/// let column: i64 = FencingToken::new(41).unwrap().into(); // to a database, and back
/// assert_eq!(u64::try_from(column).ok().and_then(FencingToken::new), FencingToken::new(41));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FencingToken(u64);

impl FencingToken {
    /// The highest token: 2^63 - 1.
    pub const MAX: Self = Self(i64::MAX as u64);

    /// The token of this number, or `None` from 2^63 on.
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        if number <= Self::MAX.0 { Some(Self(number)) } else { None }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The same number, for SQL and for languages without unsigned numbers. Never negative.
    #[must_use]
    pub const fn to_i64(self) -> i64 {
        self.0 as i64
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.get()
    }
}

impl From<FencingToken> for i64 {
    fn from(token: FencingToken) -> Self {
        token.to_i64()
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_the_same_number_signed_unsigned_and_shown() {
        for number in [0, 1, 1 << 51, i64::MAX as u64] {
            let token = FencingToken::new(number).unwrap();
            assert_eq!((token.get(), token.to_i64().try_into()), (number, Ok(number)));
            assert_eq!((u64::from(token), i64::from(token)), (token.get(), token.to_i64()));
            assert_eq!((format!("{token}"), format!("{token:?}")), (number.to_string(), number.to_string()));
        }
        assert!(FencingToken::new(1) < FencingToken::new(2));
        assert_eq!(FencingToken::new(i64::MAX as u64), Some(FencingToken::MAX));
    }

    #[test]
    fn a_negative_token_is_refused() {
        assert_eq!(FencingToken::new(1 << 63), None);
        assert_eq!(FencingToken::new(u64::MAX), None);
    }
}
