//! A store that is not there at the start: waited for within the limit, and never taken for a busy lock.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::common::{Place, Running, code, ended_once};
use fencelock_testbed::redis::{Server, Settings};

fn server() -> (Server, Place) {
    let server = Server::start(Settings::default()).unwrap();
    let place = Place::with_store(format!("{}?ttl_ms=60000", server.url()));
    (server, place)
}

#[test]
fn a_store_that_comes_back_within_the_limit_is_waited_for() {
    for options in [&["--wait", "180s"][..], &["--connect-wait", "180s", "--wait", "60s"], &["--connect-wait", "180s"]]
    {
        let (server, place) = server();
        server.kill();
        let mut command = place.run(&[options, &["job"]].concat(), "exit 5");
        let mut running = Running::start(command.stderr(Stdio::piped()));
        let mut said = String::new();
        let told = running.0.as_mut().unwrap().stderr.take().unwrap();
        BufReader::new(told).read_line(&mut said).unwrap();
        assert!(said.contains("is not reached yet") && said.contains("180s"), "{said}");
        server.restart().unwrap();
        assert_eq!(running.code(), 5, "{options:?}");
    }
}

#[test]
fn a_silent_store_that_is_tried_once_is_reported_as_silent() {
    let server = Server::start(Settings::default()).unwrap();
    server.pause();
    let place = Place::with_store(format!("{}?request_deadline_ms=10000&ttl_ms=60000", server.url()));
    let done = place.run(&["--try", "job"], "true").output().unwrap();
    let said = str::from_utf8(&done.stderr).unwrap();
    assert_eq!(code(&done), 69, "{said}");
    assert!(said.contains("is not reached yet, and is tried once") && !said.contains("0ns"), "{said}");
}

#[test]
fn a_store_that_is_not_there_is_never_a_busy_lock() {
    let (server, place) = server();
    server.kill();
    for limit in [&["--try"][..], &["--wait", "1500ms"], &["--connect-wait", "0"], &["--connect-wait", "1s"]] {
        let (code, said) = ended_once(&mut place.run(&[limit, &["-q", "-E", "0", "job"]].concat(), "true"));
        assert_eq!(code, 69, "{limit:?}: {said}");
        assert!(!said.contains("busy") && said.contains("redis://"), "{said}");
    }
}
