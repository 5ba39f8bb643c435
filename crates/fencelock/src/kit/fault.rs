//! The meaning of each error of a store's client. Each store maps all of them in one function, so that no error is retried by accident.

use crate::error::{Error, ErrorKind};

/// The meaning of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Meaning {
    pub(crate) kind: ErrorKind,
    pub(crate) retryable: bool,
    pub(crate) unknown: bool,
    pub(crate) message: &'static str,
}

/// No other try helps, and the request changed nothing.
pub(crate) const fn refused(kind: ErrorKind, message: &'static str) -> Meaning {
    Meaning { kind, retryable: false, unknown: false, message }
}

/// The request changed nothing, and may succeed later.
pub(crate) const fn passing(kind: ErrorKind, message: &'static str) -> Meaning {
    Meaning { kind, retryable: true, unknown: false, message }
}

impl Meaning {
    pub(crate) fn of(&self, operation: &'static str) -> Error {
        let mut error = Error::new(self.kind, operation, self.message);
        if self.retryable {
            error = error.retryable();
        }
        if self.unknown {
            error = error.outcome_unknown();
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Outcome;

    #[test]
    fn an_error_says_whether_to_try_again_and_whether_the_request_can_have_taken_effect() {
        let facts = |meaning: Meaning| {
            let error = meaning.of("enter");
            (error.kind(), error.is_retryable(), error.outcome() == Outcome::Unknown)
        };
        let (lost, denied) = (passing(ErrorKind::Unreachable, "lost"), refused(ErrorKind::Denied, "no"));
        assert_eq!(facts(lost), (ErrorKind::Unreachable, true, false));
        assert_eq!(facts(Meaning { unknown: true, ..lost }), (ErrorKind::Unreachable, true, true));
        assert_eq!(facts(denied), (ErrorKind::Denied, false, false));
        assert_eq!(facts(Meaning { unknown: true, ..denied }), (ErrorKind::Denied, false, true));
    }
}
