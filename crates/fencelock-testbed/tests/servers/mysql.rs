//! The servers start, serve, break and come back on command.

use fencelock_testbed::mysql::{KIND, Server, Settings};

#[test]
fn a_server_keeps_what_it_committed_heals_from_a_pause_and_comes_back_from_death() {
    let server = Server::start(Settings::default()).unwrap();
    server.sql("CREATE TABLE fencelock.kept (a int)").unwrap();
    for number in 0..2 {
        server.sql(&format!("INSERT INTO fencelock.kept VALUES ({number})")).unwrap();
        if number == 0 {
            server.kill();
            assert!(!server.is_running());
        } else {
            server.pause();
        }
        server.heal().unwrap();
        assert_eq!(server.sql("SELECT count(*) FROM fencelock.kept").unwrap().trim(), (number + 1).to_string());
    }
}

#[test]
fn each_namespace_is_new() {
    let (one, two) = (KIND.shared().namespace(), KIND.shared().namespace());
    assert_ne!(one, two);
}
