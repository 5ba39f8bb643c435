//! The server's errors and the driver's as the store's: a single function, so that nothing is retryable by accident.

use crate::error::{Error, ErrorKind};
use crate::kit::fault::{Meaning, passing, refused};

pub(super) fn fault(operation: &'static str, error: &tokio_postgres::Error) -> Error {
    fault_in(operation, error, &|_| None)
}

pub(super) fn fault_in(operation: &'static str, error: &tokio_postgres::Error, own: Own<'_>) -> Error {
    let Some(said) = error.as_db_error() else {
        return happened(error).of(operation).with("cause", chain(error));
    };
    let cause: String = said.message().chars().filter(|c| !c.is_control()).take(300).collect();
    let code = if cause.contains("statement pooling") { "0A000" } else { said.code().code() };
    own(code).unwrap_or_else(|| meant(code)).of(operation).with("cause", cause).with("sqlstate", said.code().code())
}

pub(super) type Own<'a> = &'a (dyn Fn(&str) -> Option<Meaning> + Sync);

/// The meaning of the server's error codes. An error undoes the transaction, unless the connection ends: then the outcome is unknown.
fn meant(code: &str) -> Meaning {
    use ErrorKind::{Busy, Config, Denied, Exhausted, Layout, Unreachable, Unsupported};
    let ended = |message| Meaning { unknown: true, ..passing(Unreachable, message) };
    match code {
        "28P01" | "28000" => refused(
            Denied,
            "the server refused the user, the password, or this host (its pg_hba.conf says who may connect from where, and whether encrypted)",
        ),
        "42704" => refused(Config, "there is no role of that name"),
        "3D000" => refused(Config, "the server has no database of that name"),
        "42501" => refused(
            Denied,
            "the user may not do that: it needs USAGE on the schema and EXECUTE on its functions, which `fencelock migrate --grant` gives",
        ),
        "25006" => passing(Unreachable, "the server takes no writes: it is a standby, or read-only"),
        "3F000" | "42883" | "42P01" | "42P02" | "42703" | "42804" | "22004" | "22023" | "23502" | "23514" => refused(
            Layout,
            "the schema is not what this release makes: it is damaged, or of another program (`fencelock migrate` makes it)",
        ),
        "40001" | "40P01" | "25P02" => passing(Busy, "the server undid the request in favour of another one"),
        "55P03" => passing(
            Busy,
            "another transaction keeps what the request needs, such as the rows of this lock (pg_locks shows whose)",
        ),
        "57014" => ended("the request was cancelled at the server"),
        "53300" => passing(
            Exhausted,
            "the server has as many connections as it takes (its max_connections without its superuser_reserved_connections, or the limit of the user or the database)",
        ),
        "53100" => passing(Exhausted, "the server's disk is full"),
        "FL003" => {
            refused(Config, "the functions work in READ COMMITTED transactions, with the settings of clients alone")
        }
        "42P10" | "55000" => refused(Config, "a publication leaves out keys of our tables: publish whole tables"),
        "FL004" => refused(Config, "the tables of the locks are logged in part: a crash would not be noticed"),
        "0A000" | "26000" => refused(Unsupported, "no PostgreSQL, or a pooler that needs pool_mode = transaction"),
        "FL006" => passing(Unreachable, "the pooler leads to another server now"),
        "57P03" => passing(Unreachable, "the server is starting up, shutting down or recovering"),
        "57P01" | "57P02" | "57P05" | "25P03" | "57P04" => ended("the server ended the connection"),
        code if code.starts_with("53") => passing(Exhausted, "the server has no room"),
        code if code.starts_with("08") => ended("the connection was lost before the answer came"),
        code if code.starts_with("58") => ended("the server's disk or operating system failed"),
        _ => Meaning {
            unknown: true,
            ..refused(ErrorKind::Internal, "the server answered with an error that this release does not know")
        },
    }
}

fn happened(error: &tokio_postgres::Error) -> Meaning {
    let text = error.to_string();
    match text.contains("invalid configuration") || text.contains("authentication") {
        true => refused(
            ErrorKind::Denied,
            "the server asks for a password, or for a way to prove who we are that this release does not know",
        ),
        false => Meaning {
            unknown: true,
            ..passing(
                ErrorKind::Unreachable,
                "the connection was lost before the answer came, or the answer is not that of a PostgreSQL server",
            )
        },
    }
}

fn chain(error: &tokio_postgres::Error) -> String {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    let cause: Vec<String> = causes.map(ToString::to_string).collect();
    cause.join(": ").chars().filter(|c| !c.is_control()).take(300).collect()
}
