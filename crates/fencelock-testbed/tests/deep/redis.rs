//! A Redis server that takes its time.

use std::time::Duration;

use fencelock_testbed::redis::{Server, Settings};
use fencelock_testbed::wait_until;

#[test]
fn a_server_that_reads_its_data_says_so() {
    let server = Server::start(
        Settings::default().with("key-load-delay 500").with("loading-process-events-interval-bytes 1024"),
    );
    let server = server.unwrap();
    server.ask(&["DEBUG", "POPULATE", "20000"]).unwrap();
    server.backup().unwrap();
    server.restart().unwrap();
    let loads = || server.ask(&["DBSIZE"]).is_err_and(|error| error.to_string().starts_with("LOADING"));
    assert!(wait_until(Duration::from_secs(8), loads));
    server.kill();
}
