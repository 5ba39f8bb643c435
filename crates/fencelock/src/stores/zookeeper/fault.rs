//! The client's errors as the store's. A single function decides which errors a retry can help.

use fencelock_zookeeper as wire;
use fencelock_zookeeper::ErrorKind as Wire;

use crate::error::{Error, ErrorKind};
use crate::kit::fault::{Meaning, passing, refused};

/// The outcome of a request that failed with `error`. The error's text is the cause: the text names path and servers.
pub(super) fn fault(operation: &'static str, error: &wire::Error) -> Error {
    // A look without an answer has an unknown outcome, too: the server refused nothing.
    let is_lost = matches!(error.kind(), Wire::ConnectionLoss | Wire::Deadline | Wire::SessionMoved);
    let meaning = Meaning { unknown: is_lost || error.outcome_unknown(), ..meaning(error.kind()) };
    meaning.of(operation).with("cause", error)
}

fn meaning(kind: Wire) -> Meaning {
    use ErrorKind::{Closed, Config, Denied, Exhausted, Internal, Layout, Lost, Unreachable, Unsupported};
    match kind {
        Wire::Config | Wire::BadArguments => refused(Config, "the client refused the request"),
        Wire::Unreachable => passing(Unreachable, "no server can be reached"),
        Wire::ConnectionLoss => passing(Unreachable, "the connection was lost before the answer came"),
        Wire::Deadline => passing(Unreachable, "no server answered in time"),
        Wire::SessionMoved => passing(Unreachable, "the session had moved to another connection"),
        Wire::ReadOnlyServer => passing(Unreachable, "the servers have no quorum, and are read-only"),
        Wire::Protocol => passing(Unreachable, "the server does not speak ZooKeeper's protocol"),
        Wire::NoNode => passing(Unreachable, "another client deleted the lock's parent node meanwhile"),
        Wire::NoAuth => {
            refused(Denied, "the access control lists do not allow it; a wrong password looks like this, too")
        }
        Wire::AuthFailed => refused(Denied, "the servers refused the credentials"),
        Wire::InvalidAcl => refused(Denied, "the servers refused the access control list"),
        Wire::SessionExpired => refused(Lost, "the session expired"),
        Wire::NoChildrenForEphemerals => refused(Layout, "a parent of the lock is an ephemeral node"),
        Wire::NodeExists | Wire::NotEmpty | Wire::BadVersion => {
            refused(Layout, "a node exists already, has children, or has another version")
        }
        Wire::TooLarge => refused(
            Exhausted,
            "the list of contenders, or another answer, is longer than max_answer_bytes, or a request longer than max_frame_bytes (jute.maxbuffer)",
        ),
        Wire::QuotaExceeded => refused(Exhausted, "a quota of the servers is exceeded"),
        Wire::Throttled => passing(Exhausted, "the servers have too many requests and refused this one"),
        Wire::ServerFailed => passing(Unreachable, "the servers failed to do what they were asked"),
        Wire::Unimplemented => {
            refused(Unsupported, "the servers do not know the operation: they have to be ZooKeeper 3.5 or newer")
        }
        Wire::LocalSession => refused(
            Config,
            "the servers make no ephemeral nodes for local sessions: set localSessionsUpgradingEnabled=true there, or localSessionsEnabled=false",
        ),
        Wire::Closed => refused(Closed, "the session was closed"),
        _ => refused(Internal, "the servers answered with an error that this release does not know"),
    }
}

/// Whether the whole session has ended, with all its nodes.
pub(super) fn is_session_end(error: &wire::Error) -> bool {
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
            (Wire::Throttled, ErrorKind::Exhausted, true),
            (Wire::ServerFailed, ErrorKind::Unreachable, true),
            (Wire::Unimplemented, ErrorKind::Unsupported, false),
            (Wire::LocalSession, ErrorKind::Config, false),
            (Wire::Other(-999), ErrorKind::Internal, false),
        ] {
            let meant = meaning(kind);
            assert_eq!((meant.kind, meant.retryable), (expected, retryable), "{kind:?}");
        }
    }
}
