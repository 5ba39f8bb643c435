//! Hostile servers: limits hold for any bytes that they send.

use std::time::{Duration, Instant};

use crate::common::{event, soon};
use fencelock_testbed::within;
use fencelock_testbed::zookeeper::{Manner, hostile};
use fencelock_zookeeper::{Client, Config, Event};

/// The time that a busy machine may take beyond the configured limit.
const BOUND: Duration = Duration::from_secs(5);

const LIMIT: Duration = Duration::from_secs(1);
const TIMEOUT_MS: u32 = 1500;

/// A configuration of a server of this manner, which gives sessions of a second and a half.
fn config(manner: Manner) -> Config {
    let address = hostile(manner, TIMEOUT_MS).unwrap();
    Config::new(&address.to_string()).unwrap().session_timeout(Duration::from_millis(TIMEOUT_MS.into()))
}

#[tokio::test]
async fn connecting_ends_in_time_for_any_bytes_of_a_server() {
    for manner in Manner::WITHOUT_SESSION {
        let config = config(manner).session_timeout(Duration::from_secs(60)).connect_deadline(LIMIT);
        let start = Instant::now();
        let error = soon(Client::connect(config)).await.unwrap_err();
        within(LIMIT + BOUND, start.elapsed(), &format!("{manner:?}"));
        assert!(error.to_string().contains("127.0.0.1:"), "{manner:?}: {error}");
    }
}

#[tokio::test]
async fn after_a_session_began_requests_and_closing_end_in_time_for_any_bytes_of_a_server() {
    for manner in Manner::WITH_SESSION {
        let config = config(manner).connect_deadline(crate::common::PATIENCE).request_deadline(LIMIT);
        let (client, _events) = soon(Client::connect(config)).await.unwrap();
        let start = Instant::now();
        for answer in [client.exists("/a"), client.exists("/b")] {
            let outcome = soon(answer).await;
            within(LIMIT + BOUND, start.elapsed(), &format!("{manner:?}"));
            assert!(!matches!(outcome, Ok(Some(_))), "{manner:?}: {outcome:?}");
        }
        let start = Instant::now();
        let _ = soon(client.close()).await;
        let limit = Duration::from_millis(TIMEOUT_MS.into());
        within(limit + BOUND, start.elapsed(), &format!("{manner:?}"));
    }
}

#[tokio::test]
async fn a_server_that_sends_much_and_answers_nothing_is_given_up() {
    for manner in [Manner::ThenDrips, Manner::ThenEvents] {
        let (client, mut events) =
            soon(Client::connect(config(manner).connect_deadline(crate::common::PATIENCE))).await.unwrap();
        let unanswered = client.exists("/a");
        let left = event(&mut events, |event| matches!(event, Event::Disconnected { .. })).await;
        assert!(format!("{left:?}").contains("no whole answer"), "{manner:?}: {left:?}");
        assert!(soon(unanswered).await.unwrap_err().outcome_unknown());
    }
}
