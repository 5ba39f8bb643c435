//! Maps errors of the server and the client crate to the store's, in a single function, so that none is retryable by accident.

use redis::{ErrorKind as Wire, RedisError, ServerErrorKind};

use super::user::LinkUser;
use crate::error::{Error, ErrorKind};
use crate::kit::fault::{Meaning, passing, refused};

/// The error of a request that failed with `error`, whose text is the cause.
pub(crate) fn fault(operation: &'static str, error: &RedisError) -> Error {
    let meaning = match error.code() {
        Some(code) => said(code, error.detail().unwrap_or_default()),
        None => happened(error.kind()),
    };
    meant(operation, error, &meaning)
}

/// The error of a request that failed with `error`, which has `meaning`.
pub(super) fn meant(operation: &'static str, error: &RedisError, meaning: &Meaning) -> Error {
    meaning.of(operation).with("cause", cause(error))
}

/// The error of a greeting that failed with `error`. No request that could take effect was sent yet.
pub(super) fn no_greeting(error: &RedisError) -> Error {
    if is_old_protocol(error) {
        return meant("connect", error, &refused(ErrorKind::Unsupported, OLD_PROTOCOL));
    }
    if error.kind() == Wire::Io {
        return meant("connect", error, &passing(ErrorKind::Unreachable, HUNG_UP));
    }
    fault("connect", error)
}

const OLD_PROTOCOL: &str =
    "the server knows only the older protocol, RESP2: use Redis 6.0 or newer, or Valkey, and leave HELLO its name";
const HUNG_UP: &str = "the server closed the connection before it answered: it may be starting or stopping, have as many clients as it takes (maxclients), or be in protected mode";

/// The texts of servers if the user may not run a command inside a script, or not on these keys or channels.
const DENIED_WORDS: &[&str] = &["NOPERM", "user executing the script", "ACL failure in script"];
/// The texts of a Cluster's node for a command inside a script whose slot migrates, or is not served.
const MOVING_WORDS: &[&str] = &["non local key", "cluster is down"];
/// The texts of servers without a command inside a script: an administrator renamed the command, or the server is of another kind.
const UNKNOWN_WORDS: &[&str] = &["nknown Redis command", "nknown command"];

const DENIED: &str = "the access control list does not allow it: docs/stores.md has the rules that a user needs";
const UNKNOWN: &str = "the server does not know a command that this store needs";

/// The server does not have the script (any more).
pub(super) fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == Wire::Server(ServerErrorKind::NoScript)
}

/// Only a replica answers so: the request has to go to another server.
pub(crate) fn is_of_a_replica(error: &RedisError, user: &dyn LinkUser) -> bool {
    // A refusal by a script of the layout names a key, which may hold any text.
    let within_a_script = || word_of_a_script(error.detail()?).filter(|_| user.meaning(error).is_none());
    let code = if error.code() == Some("ERR") { within_a_script() } else { error.code() };
    matches!(code, Some("READONLY" | "MASTERDOWN"))
}

/// The user has no right to run the command.
pub(crate) fn is_denied(error: &RedisError) -> bool {
    let code = if error.code() == Some("ERR") { error.detail().and_then(word_of_a_script) } else { error.code() };
    code == Some("NOPERM")
}

/// The server, or what stands before it, does not know the command.
pub(crate) fn is_unknown_command(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| UNKNOWN_WORDS.iter().any(|word| detail.contains(word)))
}

/// The code of a server's error; for a command inside a script, the code stands among other words.
fn word_of_a_script(detail: &str) -> Option<&'static str> {
    let is = |words: &[&str]| words.iter().any(|word| detail.contains(word));
    let plain = ["READONLY", "NOREPLICAS", "MISCONF"].into_iter().find(|word| detail.contains(word));
    plain.or_else(|| is(DENIED_WORDS).then_some("NOPERM"))
}

/// The server knows the older protocol only.
fn is_old_protocol(error: &RedisError) -> bool {
    let detail = error.detail().unwrap_or_default().to_ascii_lowercase();
    let unknown = detail.contains("unknown command") && detail.contains("hello");
    error.kind() == Wire::RESP3NotSupported || error.code() == Some("NOPROTO") || unknown
}

/// The text of the server's error, without its quote of the request: that may hold a password.
fn cause(error: &RedisError) -> String {
    let cause = error.to_string();
    let shown = cause.split(", with args beginning with").next().unwrap_or_default();
    shown.chars().filter(|c| !c.is_control()).take(300).collect()
}

const MOVING: &str = "the slot of the lock is on its way to another node of the Cluster, or there already";
const NOT_SERVED: &str = "the Cluster serves no slots, or not this one: primaries are away (CLUSTER INFO)";
const BECAME_A_REPLICA: &str =
    "the server has become a replica, which takes no locks: name the primary, or an address that follows it";

/// The meaning of the server's error.
fn said(code: &str, detail: &str) -> Meaning {
    use ErrorKind::{Denied, Exhausted, Unreachable};
    let within_a_script = || word_of_a_script(detail).filter(|_| code == "ERR");
    match within_a_script().unwrap_or(code) {
        "WRONGPASS" => refused(Denied, "the server refused the user or the password"),
        "NOAUTH" => refused(
            Denied,
            "the server wants a password: in the URL before the host, as user:password, or as :password for the default user",
        ),
        // The refused command may be in the middle of a script.
        "NOPERM" => Meaning { unknown: true, ..refused(Denied, DENIED) },
        "DENIED" => refused(
            Denied,
            "the server is in protected mode and takes local clients only: give it a password, or say `protected-mode no` where the network is trusted",
        ),
        "READONLY" => passing(Unreachable, BECAME_A_REPLICA),
        "LOADING" => passing(Unreachable, "the server is still loading its data"),
        "BUSY" => passing(
            Unreachable,
            "the server is busy with a script of another client that runs for long (SCRIPT KILL ends it)",
        ),
        "MASTERDOWN" => passing(Unreachable, "the server is a replica that has lost its primary: name the primary"),
        "NOREPLICAS" => passing(Unreachable, "the server has fewer replicas than its min-replicas-to-write"),
        "NOSCRIPT" => passing(Unreachable, "the server keeps forgetting our scripts (SCRIPT FLUSH)"),
        "CLUSTERDOWN" => passing(Unreachable, NOT_SERVED),
        // A request that follows ASK would miss keys that have not arrived yet.
        "MOVED" | "ASK" | "TRYAGAIN" => passing(Unreachable, MOVING),
        "CROSSSLOT" => refused(
            ErrorKind::Unsupported,
            "the keys of this lock are in several slots of a Cluster: leave braces out of its name, and name nodes in redis+cluster://",
        ),
        "ERR" if MOVING_WORDS.iter().any(|word| detail.contains(word)) => {
            Meaning { unknown: true, ..passing(Unreachable, MOVING) }
        }
        "OOM" => passing(Exhausted, "the server has no memory left (its maxmemory is reached)"),
        "MISCONF" => passing(
            Exhausted,
            "the server takes no writes, because it cannot save its data (stop-writes-on-bgsave-error)",
        ),
        "ERR" if detail.contains("max number of clients") => {
            passing(Exhausted, "the server has as many clients as it takes (its maxclients)")
        }
        "ERR" if detail.contains("DB index is out of range") => {
            refused(ErrorKind::Config, "the server has no database of that number")
        }
        "ERR" if detail.contains("OOM command not allowed") => {
            passing(Exhausted, "the server has no memory left (its maxmemory is reached)")
        }
        "ERR" if UNKNOWN_WORDS.iter().any(|word| detail.contains(word)) => refused(ErrorKind::Unsupported, UNKNOWN),
        _ => Meaning {
            unknown: true,
            ..refused(ErrorKind::Internal, "the server answered with an error that this release does not know")
        },
    }
}

/// The meaning of an error without a reply of the server.
fn happened(kind: Wire) -> Meaning {
    let lost = |message| Meaning { unknown: true, ..passing(ErrorKind::Unreachable, message) };
    match kind {
        Wire::Io => lost("the connection was lost before the answer came"),
        Wire::Parse => lost("the answer is not that of a Redis server"),
        Wire::AuthenticationFailed => refused(ErrorKind::Denied, "the server refused the user or the password"),
        Wire::RESP3NotSupported => refused(ErrorKind::Unsupported, OLD_PROTOCOL),
        Wire::InvalidClientConfig | Wire::Client => refused(ErrorKind::Config, "the client refused the request"),
        _ => Meaning {
            unknown: true,
            ..refused(ErrorKind::Internal, "the client crate failed in a way that this release does not know")
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_passes_is_worth_another_try() {
        use ErrorKind::{Config, Denied, Exhausted, Internal, Unreachable, Unsupported};
        for (code, kind, retryable, unknown) in [
            ("WRONGPASS", Denied, false, false),
            ("NOAUTH", Denied, false, false),
            ("NOPERM", Denied, false, true),
            ("DENIED", Denied, false, false),
            ("READONLY", Unreachable, true, false),
            ("LOADING", Unreachable, true, false),
            ("BUSY", Unreachable, true, false),
            ("MASTERDOWN", Unreachable, true, false),
            ("NOREPLICAS", Unreachable, true, false),
            ("NOSCRIPT", Unreachable, true, false),
            ("CLUSTERDOWN", Unreachable, true, false),
            ("TRYAGAIN", Unreachable, true, false),
            ("MOVED", Unreachable, true, false),
            ("ASK", Unreachable, true, false),
            ("CROSSSLOT", Unsupported, false, false),
            ("OOM", Exhausted, true, false),
            ("MISCONF", Exhausted, true, false),
            ("ERR", Internal, false, true),
            ("WHATEVER", Internal, false, true),
        ] {
            let meant = said(code, "");
            assert_eq!((meant.kind, meant.retryable, meant.unknown), (kind, retryable, unknown), "{code}");
        }
        for (detail, kind) in [
            ("max number of clients reached", Exhausted),
            ("DB index is out of range", Config),
            (
                "Error running script: @user_script: 1: OOM command not allowed when used memory > 'maxmemory'.",
                Exhausted,
            ),
            ("unknown command `EVALSHA`, with args", Unsupported),
            (
                "Error running script (call to f_1): @user_script:1: -READONLY You can't write against a read only replica.",
                Unreachable,
            ),
            ("NOREPLICAS Not enough good replicas to write. script: 66b, on @user_script:1.", Unreachable),
            (
                "ACL failure in script: User a has no permissions to run the 'hset' command script: on @user_script:1.",
                Denied,
            ),
            ("ACL failure in script: No permissions to access a key script: on @user_script:1.", Denied),
            ("MISCONF Redis is configured to save RDB snapshots, script: 66b, on @user_script:1.", Exhausted),
            (
                "Script attempted to access a non local key in a cluster node script: 66b, on @user_script:1.",
                Unreachable,
            ),
        ] {
            assert_eq!(said("ERR", detail).kind, kind, "{detail}");
        }
        for (wire, kind, retryable, unknown) in [
            (Wire::Io, Unreachable, true, true),
            (Wire::Parse, Unreachable, true, true),
            (Wire::AuthenticationFailed, Denied, false, false),
            (Wire::RESP3NotSupported, Unsupported, false, false),
            (Wire::Client, Config, false, false),
            (Wire::UnexpectedReturnType, Internal, false, true),
        ] {
            let meant = happened(wire);
            assert_eq!((meant.kind, meant.retryable, meant.unknown), (kind, retryable, unknown), "{wire:?}");
        }
    }

    #[test]
    fn quotations_of_a_request_by_the_server_are_not_repeated() {
        let detail = "unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'me' 's3cret'";
        let error = RedisError::from((Wire::Client, "setup", detail.to_owned()));
        assert!(!format!("{:?}", fault("connect", &error)).contains("s3cret"));
        assert!(is_old_protocol(&error));
    }
}
