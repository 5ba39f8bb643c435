//! The numbers of contenders are limited: servers count to 2^31 - 1 below each parent, and never start again.

use super::layout::NUMBER_LIMIT;
use super::path::LockPath;
use crate::error::{Error, ErrorKind};

/// From this number on, about half of all, the client warns of the end.
const LATE: i64 = 1 << 30;

/// A node of ours has drawn `number`: every 1,048,576th late number causes a warning.
pub(super) fn drawn(home: &LockPath<'_>, number: i64) {
    if number % (1 << 20) == 0 {
        warn(home, number);
    }
}

/// Logs a warning if the numbers are nearly used up.
pub(super) fn warn(home: &LockPath<'_>, number: i64) {
    if number >= LATE {
        tracing::warn!(
            parent = home.parent(),
            number,
            last = NUMBER_LIMIT,
            "half of the numbers below this parent are used. After the last one every acquire is refused. Delete the parent while no client uses it: numbers then begin at 0"
        );
    }
}

/// A contender's number is past the last one, or was given twice.
pub(super) fn exhausted(home: &LockPath<'_>, number: i64) -> Error {
    let message =
        "the sequence of the parent is exhausted: delete the parent while no client uses it, and numbers begin at 0";
    Error::new(ErrorKind::Exhausted, "enter", message).with("parent", home.parent()).with("number", number)
}
