//! The servers start, serve, break and come back on command.

use fencelock_testbed::postgres::{Server, Settings, shared};
use fencelock_testbed::{PATIENCE, wait_until};

#[test]
fn a_server_keeps_what_it_committed_however_it_ends() {
    let server = Server::start(Settings::default()).unwrap();
    server.sql("fencelock", "CREATE TABLE kept (a int)").unwrap();
    for number in 0..3 {
        server.sql("fencelock", &format!("INSERT INTO kept VALUES ({number})")).unwrap();
        match number {
            0 => server.kill(),
            1 => server.stop_immediately().unwrap(),
            _ => {}
        }
        server.restart().unwrap();
        server.wait_until_serving().unwrap();
        let counted = server.sql("fencelock", "SELECT count(*) FROM kept").unwrap();
        assert_eq!(counted.trim(), (number + 1).to_string());
    }
}

#[test]
fn a_server_heals_from_a_pause_and_from_death_and_its_clock_jumps() {
    let server = Server::start(Settings { own_clock: true, ..Settings::default() }).unwrap();
    server.pause();
    server.heal().unwrap();
    server.set_clock(3600).unwrap();
    let ahead = || {
        let here = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let there: u64 = server
            .sql("postgres", "SELECT extract(epoch FROM clock_timestamp())::bigint")
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        there.saturating_sub(here) > 3000
    };
    assert!(wait_until(PATIENCE, ahead));
    server.heal().unwrap();
    assert!(wait_until(PATIENCE, || !ahead()));
    server.kill();
    assert!(!server.is_running());
    server.heal().unwrap();
}

#[test]
fn a_standby_follows_and_takes_writes_once_it_is_promoted() {
    let primary = Server::start(Settings::default()).unwrap();
    let standby = Server::start(Settings { standby_of: Some(primary.address()), ..Settings::default() }).unwrap();
    assert!(standby.sql("postgres", "CREATE TABLE mine (a int)").is_err());
    primary.sql("postgres", "CREATE TABLE theirs (a int)").unwrap();
    assert!(wait_until(PATIENCE, || standby.sql("postgres", "SELECT * FROM theirs").is_ok()));
    standby.promote().unwrap();
    standby.sql("postgres", "CREATE TABLE mine (a int)").unwrap();
}

#[test]
fn each_namespace_is_new() {
    let (one, two) = (shared().namespace(), shared().namespace());
    assert_ne!(one, two);
}
