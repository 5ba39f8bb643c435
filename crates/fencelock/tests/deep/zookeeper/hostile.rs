//! Hostile servers: limits hold for any bytes that they send.

use std::time::{Duration, Instant};

use fencelock::{Client, ErrorKind};
use fencelock_testbed::within;
use fencelock_testbed::zookeeper::{Manner, hostile};

use super::lab::soon;

/// The time that a busy machine may take beyond the configured limit.
const BOUND: Duration = Duration::from_secs(5);

const LIMIT: Duration = Duration::from_secs(1);

fn url(manner: Manner) -> String {
    format!("zk://{}/locks", hostile(manner, 10_000).unwrap())
}

#[tokio::test]
async fn connecting_ends_in_time_for_any_bytes_of_a_server() {
    for manner in Manner::WITHOUT_SESSION {
        let start = Instant::now();
        let error = soon(Client::builder().connect_timeout(LIMIT).connect(&url(manner))).await.unwrap_err();
        within(LIMIT + BOUND, start.elapsed(), &format!("{manner:?}"));
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{manner:?}: {error}");
    }
}

#[tokio::test]
async fn after_a_session_began_a_wait_ends_in_time_and_is_no_contention_for_any_bytes_of_a_server() {
    for manner in Manner::WITH_SESSION {
        // A wait that is shorter than this deadline times out, whether the server is silent or not.
        let client = soon(Client::builder().request_deadline(LIMIT / 2).connect(&url(manner))).await.unwrap();
        let start = Instant::now();
        let error = soon(client.mutex("job").unwrap().acquire_within(LIMIT)).await.unwrap_err();
        within(LIMIT + BOUND, start.elapsed(), &format!("{manner:?}"));
        assert!(!matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Busy), "{manner:?}: {error}");
    }
}
