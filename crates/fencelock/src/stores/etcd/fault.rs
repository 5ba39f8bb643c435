//! The statuses of gRPC as the store's errors. A single function decides which of them another try can help.

use tonic::{Code, Status};

use crate::error::{Error, ErrorKind};
use crate::kit::fault::{Meaning, passing, refused};

/// The error of a request that failed with `status`. The connection is useless after an [`ErrorKind::Unreachable`]: another member is
/// tried, with a new login.
pub(super) fn fault(operation: &'static str, status: &Status) -> Error {
    use ErrorKind::{Config, Denied, Exhausted, Internal, Lost, Unreachable, Unsupported};
    let says = |text: &str| status.message().contains(text);
    let meaning = match status.code() {
        Code::Unauthenticated => passing(Unreachable, "the token of the login was refused; a new login follows"),
        Code::InvalidArgument if says("revision of auth store is old") => {
            passing(Unreachable, "users or roles changed meanwhile; a new login follows")
        }
        Code::InvalidArgument if says("authentication failed") => refused(Denied, "user or password is wrong"),
        Code::InvalidArgument if says("user name is empty") => {
            refused(Denied, "etcd asks for a user: write etcd://user:password@host, or use a client certificate")
        }
        Code::FailedPrecondition if says("authentication is not enabled") => {
            refused(Config, "etcd has no users: leave user and password out of the URL")
        }
        Code::PermissionDenied => refused(Denied, "the user may not read and write under this prefix"),
        Code::ResourceExhausted if says("database space exceeded") => {
            refused(Exhausted, "etcd is full (NOSPACE): compact, defragment, then `etcdctl alarm disarm`")
        }
        Code::ResourceExhausted => passing(Exhausted, "etcd has too many requests and refused this one"),
        Code::NotFound => refused(Lost, "the lease is gone"),
        Code::Unimplemented => refused(Unsupported, "the server is not etcd with API version 3"),
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => {
            refused(Internal, "etcd refused a request of this release")
        }
        // The leader changed, the member is behind, or the connection broke: the request may have been applied.
        _ => Meaning { unknown: true, ..passing(Unreachable, "no member of etcd answered") },
    };
    meaning.of(operation).with("cause", status.message())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Outcome;

    #[test]
    fn a_status_says_whether_another_try_helps_and_whether_the_request_can_have_taken_effect() {
        for (status, kind, retryable, unknown) in [
            (Status::unavailable("etcdserver: leader changed"), ErrorKind::Unreachable, true, true),
            (Status::unknown("h2 protocol error"), ErrorKind::Unreachable, true, true),
            (Status::unauthenticated("etcdserver: invalid auth token"), ErrorKind::Unreachable, true, false),
            (Status::permission_denied("etcdserver: permission denied"), ErrorKind::Denied, false, false),
            (
                Status::resource_exhausted("etcdserver: mvcc: database space exceeded"),
                ErrorKind::Exhausted,
                false,
                false,
            ),
            (Status::resource_exhausted("etcdserver: too many requests"), ErrorKind::Exhausted, true, false),
            (Status::not_found("etcdserver: requested lease not found"), ErrorKind::Lost, false, false),
        ] {
            let error = fault("enter", &status);
            let outcome = if unknown { Outcome::Unknown } else { Outcome::NotApplied };
            assert_eq!((error.kind(), error.is_retryable(), error.outcome()), (kind, retryable, outcome), "{status}");
        }
    }
}
