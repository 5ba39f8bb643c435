//! Helpers of these tests.

use fencelock_testbed::postgres::{KIND, Server, Settings};
use tokio_postgres::NoTls;
use tokio_postgres::error::SqlState;

pub(crate) use crate::patience::*;

/// A database of this test's own on the server that all share: its URL, and what `psql` takes.
pub(crate) fn database() -> (String, String) {
    let shared = KIND.shared();
    let name = shared.namespace().trim_start_matches('/').to_owned();
    (format!("postgres://fencelock:secret@{}/{name}", shared.address()), name)
}

/// A server of this test's own.
pub(crate) fn server(settings: Settings) -> Server {
    Server::start(settings).unwrap()
}

/// Far longer than anything here is waited for, so that no lease ends.
pub(crate) const LONG: u64 = 3_600_000;
const _: () = assert!(LONG > 10 * PATIENCE.as_millis() as u64);

/// A connection of a user whose transactions may be idle for longer than any test waits. `hold` limits other transactions to a minute.
pub(crate) async fn patient_user(url: &str) -> tokio_postgres::Client {
    connection(&with(url, "options=-c%20idle_in_transaction_session_timeout%3D1h")).await
}

/// The settings of clients' connections, without which the functions that requests call refuse.
pub(crate) const AS_CLIENTS: &str = "SET search_path = pg_catalog, pg_temp; SET client_min_messages = warning";

/// A connection of a user's own.
pub(crate) async fn connection(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// The SQLSTATE of the server's refusal.
pub(crate) fn code<T: std::fmt::Debug>(result: Result<T, tokio_postgres::Error>) -> String {
    result.unwrap_err().code().map(SqlState::code).unwrap_or_default().to_owned()
}
