//! The meanings of the server's error codes.

use crate::error::{Error, ErrorKind};

pub(crate) const OK: i32 = 0;
/// An operation of several of which an earlier one was refused.
pub(crate) const NOT_TRIED: i32 = -2;
pub(crate) const NO_NODE: i32 = -101;
pub(crate) const SESSION_EXPIRED: i32 = -112;
pub(crate) const SESSION_MOVED: i32 = -118;

/// The error with this `code` of a server.
pub(crate) fn error(code: i32, operation: &'static str) -> Error {
    let (kind, message) = meaning(code);
    let error = match message {
        "" => Error::new(kind, operation, format!("the server answered with error {code}")),
        message => Error::new(kind, operation, message),
    };
    let error = error.with_code(code);
    if outcome_unknown(code) { error.unknown() } else { error }
}

/// An answer with a code says that nothing was done. Exceptions: codes by which the server says that it does not know, and codes that
/// are unknown here.
fn outcome_unknown(code: i32) -> bool {
    // A system error, connection loss and time-out inside the ensemble, and what has no meaning here.
    matches!(code, -1 | -4 | -7) || meaning(code).1.is_empty()
}

fn meaning(code: i32) -> (ErrorKind, &'static str) {
    match code {
        -1 => (ErrorKind::ServerFailed, "the server reports a system error"),
        -4 => (ErrorKind::ConnectionLoss, "the server lost its connection to the others"),
        -5 => (ErrorKind::BadArguments, "the server could not read the request"),
        -6 => (
            ErrorKind::Unimplemented,
            "the server does not know this operation: it is older than what the operation needs (ZooKeeper 3.5 or newer), or configured without it",
        ),
        -7 => (ErrorKind::ServerFailed, "the operation timed out inside the server"),
        -8 => (ErrorKind::BadArguments, "the server refused an argument"),
        NO_NODE => (ErrorKind::NoNode, "there is no such node"),
        -102 => (ErrorKind::NoAuth, "the access control list does not allow it"),
        -103 => (ErrorKind::BadVersion, "the node has another version"),
        -108 => (ErrorKind::NoChildrenForEphemerals, "the parent is ephemeral and cannot have children"),
        -110 => (ErrorKind::NodeExists, "the node exists already"),
        -111 => (ErrorKind::NotEmpty, "the node has children"),
        SESSION_EXPIRED => (ErrorKind::SessionExpired, "the session has expired"),
        -114 => (ErrorKind::InvalidAcl, "the access control list is not valid for this session"),
        -115 => (ErrorKind::AuthFailed, "the server refused the credentials"),
        SESSION_MOVED => (ErrorKind::SessionMoved, "the session was continued on another connection"),
        -119 => (ErrorKind::ReadOnlyServer, "the server serves reads only"),
        -120 => (ErrorKind::LocalSession, "the session is local to this server, which makes no ephemeral nodes for it"),
        -124 => (ErrorKind::AuthFailed, "the server takes requests only after credentials of another scheme"),
        -125 => (ErrorKind::QuotaExceeded, "a quota, or the limit of a session's ephemeral nodes, is exceeded"),
        -127 => (ErrorKind::Throttled, "the server has too many requests to take this one"),
        // TOOMANYEPHEMERALS of the patch for ZOOKEEPER-4306, which no release has yet.
        -128 => (ErrorKind::QuotaExceeded, "the session has more ephemeral nodes than it can be closed with"),
        _ => (ErrorKind::Other(code), ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_code_is_shown() {
        let error = error(-999, "create");
        assert_eq!((error.kind(), error.code()), (ErrorKind::Other(-999), Some(-999)));
        assert!(error.to_string().contains("-999"));
        assert!(error.outcome_unknown(), "its effect on the request is unknown too");
    }

    #[test]
    fn only_errors_of_the_server_itself_and_unknown_ones_leave_the_outcome_open() {
        let certain: Vec<i32> = (-130..0).filter(|code| !error(*code, "create").outcome_unknown()).collect();
        let refusals = [
            -128, -127, -125, -124, -120, -119, -118, -115, -114, -112, -111, -110, -108, -103, -102, -101, -8, -6, -5,
        ];
        assert_eq!(certain, refusals);
    }
}
