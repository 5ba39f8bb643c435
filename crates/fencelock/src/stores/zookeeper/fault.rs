//! The client's errors as the store's: one function, so that nothing is retryable by accident.

use fencelock_zookeeper as wire;
use fencelock_zookeeper::ErrorKind as Wire;

use crate::error::{Error, ErrorKind};

/// What became of a request that failed with `error`, which is told as the cause in words: it names path and servers.
pub(super) fn fault(operation: &'static str, error: &wire::Error) -> Error {
    let (kind, retryable, message) = meaning(error.kind());
    let mut fault = Error::new(kind, operation, message).with("cause", error);
    if retryable {
        fault = fault.retryable();
    }
    if error.outcome_unknown() {
        fault = fault.outcome_unknown();
    }
    fault
}

/// The kind, whether another try can help, and a sentence.
fn meaning(kind: Wire) -> (ErrorKind, bool, &'static str) {
    match kind {
        Wire::Config | Wire::BadArguments => (ErrorKind::Config, false, "the client refused the request"),
        Wire::Unreachable => (ErrorKind::Unreachable, true, "no server can be reached"),
        Wire::ConnectionLoss => (ErrorKind::Unreachable, true, "the connection was lost before the answer came"),
        Wire::Deadline => (ErrorKind::Unreachable, true, "no server answered in time"),
        Wire::SessionMoved => (ErrorKind::Unreachable, true, "the session had moved to another connection"),
        Wire::ReadOnlyServer => (ErrorKind::Unreachable, true, "the servers have no quorum, and are read-only"),
        Wire::Protocol => (ErrorKind::Unreachable, true, "what answered does not speak as a ZooKeeper server does"),
        Wire::NoNode => (ErrorKind::Unreachable, true, "a parent went away while it was used"),
        Wire::NoAuth => (
            ErrorKind::Denied,
            false,
            "the access control lists do not allow it; a wrong password looks like this, too",
        ),
        Wire::AuthFailed => (ErrorKind::Denied, false, "the servers refused the credentials"),
        Wire::InvalidAcl => (ErrorKind::Denied, false, "the servers refused the access control list"),
        Wire::SessionExpired => (ErrorKind::Lost, false, "the session expired"),
        Wire::NoChildrenForEphemerals => (ErrorKind::Layout, false, "a parent is an ephemeral node of somebody"),
        Wire::NodeExists | Wire::NotEmpty | Wire::BadVersion => {
            (ErrorKind::Layout, false, "a node is not as it must be")
        }
        Wire::TooLarge => (
            ErrorKind::Exhausted,
            false,
            "more than fits into a request (max_frame_bytes, jute.maxbuffer) or into an answer (max_answer_bytes)",
        ),
        Wire::QuotaExceeded => (ErrorKind::Exhausted, false, "a quota of the servers is exceeded"),
        Wire::Throttled => (ErrorKind::Unreachable, true, "the servers have too many requests to take this one"),
        Wire::ServerFailed => (ErrorKind::Unreachable, true, "the servers failed to do what they were asked"),
        Wire::Unimplemented => (
            ErrorKind::Unsupported,
            false,
            "the servers do not know the operation: they have to be ZooKeeper 3.5 or newer",
        ),
        Wire::LocalSession => {
            let message = "the servers make no ephemeral nodes for local sessions: set localSessionsUpgradingEnabled=true there, or localSessionsEnabled=false";
            (ErrorKind::Config, false, message)
        }
        Wire::Closed => (ErrorKind::Closed, false, "the session was closed"),
        _ => (ErrorKind::Internal, false, "the servers answered with an error that this release does not know"),
    }
}

/// Whether the whole session is over, so that nothing of it is there any more.
pub(super) fn is_over(error: &wire::Error) -> bool {
    matches!(error.kind(), Wire::SessionExpired)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_passes_is_worth_another_try() {
        for (kind, expected, retryable) in [
            (Wire::Config, ErrorKind::Config, false),
            (Wire::BadArguments, ErrorKind::Config, false),
            (Wire::Unreachable, ErrorKind::Unreachable, true),
            (Wire::ConnectionLoss, ErrorKind::Unreachable, true),
            (Wire::Deadline, ErrorKind::Unreachable, true),
            (Wire::SessionMoved, ErrorKind::Unreachable, true),
            (Wire::ReadOnlyServer, ErrorKind::Unreachable, true),
            (Wire::Protocol, ErrorKind::Unreachable, true),
            (Wire::NoNode, ErrorKind::Unreachable, true),
            (Wire::NoAuth, ErrorKind::Denied, false),
            (Wire::AuthFailed, ErrorKind::Denied, false),
            (Wire::InvalidAcl, ErrorKind::Denied, false),
            (Wire::SessionExpired, ErrorKind::Lost, false),
            (Wire::NoChildrenForEphemerals, ErrorKind::Layout, false),
            (Wire::NodeExists, ErrorKind::Layout, false),
            (Wire::NotEmpty, ErrorKind::Layout, false),
            (Wire::BadVersion, ErrorKind::Layout, false),
            (Wire::TooLarge, ErrorKind::Exhausted, false),
            (Wire::QuotaExceeded, ErrorKind::Exhausted, false),
            (Wire::Closed, ErrorKind::Closed, false),
            (Wire::Throttled, ErrorKind::Unreachable, true),
            (Wire::ServerFailed, ErrorKind::Unreachable, true),
            (Wire::Unimplemented, ErrorKind::Unsupported, false),
            (Wire::LocalSession, ErrorKind::Config, false),
            (Wire::Other(-999), ErrorKind::Internal, false),
        ] {
            let (meant, again, _) = meaning(kind);
            assert_eq!((meant, again), (expected, retryable), "{kind:?}");
        }
    }
}
