//! The errors that all checkers share.

use crate::error::{Error, ErrorKind, Result};
use crate::token::FencingToken;

/// The token, without which nothing can be compared.
pub(super) fn required(token: Option<FencingToken>) -> Result<FencingToken> {
    token.ok_or_else(|| {
        let message = "there is no fencing token to compare: the store or the layout has none, or the lock is not held in the store";
        Error::new(ErrorKind::Unsupported, "fence", message)
    })
}

/// The error of a token that is older than one that was seen.
pub(super) fn stale(token: FencingToken, seen: FencingToken) -> Error {
    Error::new(ErrorKind::Lost, "fence", "a later holder of the lock was here, and nothing was written")
        .with("token", token)
        .with("seen", seen)
}
