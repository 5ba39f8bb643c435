//! The server's errors and the driver's as the store's: a single function, so that nothing is retryable by accident.

use std::any::Any;

use mysql_async::{DriverError, Error as AnyError, ServerError};

use crate::error::{Error, ErrorKind};
use crate::kit::fault::{Meaning, passing, refused};

const UNKNOWN_LOGIN: &str = "the account logs in by a method that this release does not know: it knows mysql_native_password and caching_sha2_password, and neither ed25519 nor parsec";

pub(super) fn fault(operation: &'static str, error: &AnyError) -> Error {
    fault_of(operation, error, &|_| None)
}

pub(super) fn fault_of(operation: &'static str, error: &AnyError, other: &dyn Fn(u16) -> Option<Meaning>) -> Error {
    let cut = |text: String| text.chars().filter(|c| !c.is_control()).take(300).collect::<String>();
    match error {
        AnyError::Server(said) => other(said.code)
            .unwrap_or_else(|| meant(said))
            .of(operation)
            .with("cause", cut(said.message.clone()))
            .with("error", format_args!("{} ({})", said.code, cut(said.state.clone()))),
        error => happened(error).of(operation).with("cause", cut(error.to_string())),
    }
}

pub(super) fn panicked(said: &(dyn Any + Send)) -> Error {
    let said = said.downcast_ref::<&str>().copied().or_else(|| said.downcast_ref::<String>().map(String::as_str));
    let is_login = said.is_some_and(|said| said.contains("authentication plugin"));
    let driver = refused(ErrorKind::Internal, "the driver of the database failed while it connected");
    if is_login { refused(ErrorKind::Denied, UNKNOWN_LOGIN) } else { driver }.of("connect")
}

pub(super) fn not_sent(operation: &'static str) -> Error {
    ended("the connection was lost before the answer came").of(operation)
}

pub(super) fn cut_short(operation: &'static str) -> Error {
    ended("the request was ended at the server").of(operation)
}

pub(super) fn too_large(operation: &'static str) -> Error {
    refused(ErrorKind::Exhausted, "the call is larger than the server takes (max_allowed_packet)").of(operation)
}

fn ended(message: &'static str) -> Meaning {
    Meaning { unknown: true, ..passing(ErrorKind::Unreachable, message) }
}

/// The server's error. An error of a procedure has undone its transaction, unless it ended the connection or the query.
fn meant(said: &ServerError) -> Meaning {
    use ErrorKind::{Busy, Config, Denied, Exhausted, Layout, Unreachable, Unsupported};
    match (said.code, &*said.state) {
        (_, "FL003") => refused(Config, "the procedures of fencelock are called in sessions of the time zone +00:00"),
        (_, "FL005") | (1290 | 1836 | 1792, _) => {
            passing(Unreachable, "the server takes no writes: it is a replica, or read-only")
        }
        (1045 | 1698, _) => refused(
            Denied,
            "the server refused the user, the password, this host (an account is a user and the host that it comes from), or a connection without TLS",
        ),
        (1044, _) => refused(Denied, "the user may not use this database, or there is none of that name"),
        (1133 | 1410 | 1396, _) => refused(Config, "there is no account of that name"),
        (1049, _) => refused(Config, "the server has no database of that name"),
        (1142 | 1143 | 1227 | 1370 | 1419, _) => refused(
            Denied,
            "the user may not do that: it needs EXECUTE on the procedures of fencelock, which `fencelock migrate --grant` gives",
        ),
        // 1644: a procedure refuses a parameter.
        (1305 | 1146 | 1054 | 1136 | 1318 | 1630 | 1048 | 1364 | 1366 | 1406 | 1644 | 4025, _) => refused(
            Layout,
            "the tables are not what this release makes: they are damaged, or of another program (`fencelock migrate` makes them)",
        ),
        (1568, _) => ended("a request that another client ended had left its transaction open"),
        (1665, _) => refused(Config, "the server's binlog_format is STATEMENT: locks need ROW or MIXED"),
        (1192 | 1099 | 1100, _) => refused(Config, "LOCK TABLES is in force on this connection"),
        (1690 | 1264, _) => refused(Exhausted, "the numbers are past the last fencing token"),
        (1213 | 1020, _) => passing(Busy, "the server undid the request in favour of another one"),
        (1205 | 3572, _) => {
            passing(Busy, "another transaction keeps what the request needs, such as the rows of this lock")
        }
        (1040 | 1203 | 1226, _) => {
            passing(Exhausted, "the server, or the user, has as many connections as it may (max_connections)")
        }
        (1461, _) => {
            passing(Exhausted, "the server has as many prepared statements as it may (max_prepared_stmt_count)")
        }
        (1021 | 1037 | 1038 | 1041 | 1114 | 1135 | 1206 | 1637, _) => passing(Exhausted, "the server has no room"),
        (1129, _) => passing(Denied, "the server blocks this host after many broken connections (FLUSH HOSTS)"),
        (3159, _) => refused(Denied, "the server asks for TLS: say sslmode=verify-full"),
        (1251, _) => refused(Denied, UNKNOWN_LOGIN),
        (1524, _) => refused(Denied, "the server has not loaded the plugin by which the account logs in"),
        (1317 | 1028 | 3024 | 1969, _) => ended("another client ended the request at the server"),
        (1053 | 1077 | 1079 | 1080 | 1152 | 1158..=1161 | 1184 | 1927 | 4031, _) => {
            ended("the server ended the connection")
        }
        (1047, _) => refused(Unsupported, "the server, or a proxy before it, cannot do what this store needs"),
        _ => Meaning {
            unknown: true,
            ..refused(ErrorKind::Internal, "the server answered with an error that this release does not know")
        },
    }
}

fn happened(error: &AnyError) -> Meaning {
    let denied = |message| refused(ErrorKind::Denied, message);
    match error {
        AnyError::Driver(DriverError::NoClientSslFlagFromServer) => denied(
            "the server does not encrypt: give it a certificate, or say sslmode=disable where the network is trusted",
        ),
        AnyError::Driver(
            DriverError::UnknownAuthPlugin { .. }
            | DriverError::MysqlOldPasswordDisabled
            | DriverError::CleartextPluginDisabled,
        ) => denied(UNKNOWN_LOGIN),
        AnyError::Io(said) if ["certificate", "TLS"].iter().any(|word| said.to_string().contains(word)) => passing(
            ErrorKind::Unreachable,
            "no TLS connection: the server's certificate is not trusted, or the server speaks no TLS",
        ),
        _ => {
            let message = "the connection was lost before the answer came, or what answered does not speak as a MySQL server does";
            Meaning { unknown: true, ..passing(ErrorKind::Unreachable, message) }
        }
    }
}
