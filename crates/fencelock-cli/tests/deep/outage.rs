//! A store that goes away: never taken for a busy lock, and not taken leave of at length.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::{Place, Running, is_alive, until, written};
use fencelock_testbed::redis::{Server, Settings};
use fencelock_testbed::{Proxy, Way, within};

fn server() -> (Server, Place) {
    let server = Server::start(Settings::default()).unwrap();
    let place = Place::with_store(format!("{}?ttl_ms=3000", server.url()));
    (server, place)
}

#[test]
fn a_store_that_goes_away_while_we_wait_is_never_a_busy_lock() {
    for is_silent in [true, false] {
        let (server, place) = server();
        let _holder = place.holder("job");
        let waiter =
            Running::start(place.run(&["--wait", "8s", "-q", "-E", "0", "job"], "true").stderr(Stdio::piped()));
        place.queued("job", 2);
        if is_silent {
            server.pause();
        } else {
            server.kill();
        }
        let output = waiter.end();
        let said = crate::common::stderr(&output);
        assert_eq!(crate::common::code(&output), 69, "silent {is_silent}: {said}");
        let store = format!("the store is {}", server.url());
        assert_eq!((said.lines().count(), said.matches(&store).count()), (1, 1), "silent {is_silent}: {said}");
    }
}

#[test]
fn a_wait_that_ends_in_an_outage_ends_with_its_limit_and_no_farewell_prolongs_it() {
    const LIMIT: Duration = Duration::from_secs(4);
    for is_silent in [true, false] {
        let server = Server::start(Settings::default()).unwrap();
        // The default ttl: the end of a session is retried for that long.
        let place = Place::with_store(server.url());
        let _holder = place.holder("job");
        let started = Instant::now();
        let mut waiter = place.run(&["--connect-wait", "60s", "--wait", "4s", "-q", "job"], "true");
        let waiter = Running::start(waiter.stderr(Stdio::piped()));
        place.queued("job", 2);
        // The limit counts from somewhere between the start and now.
        let queued = Instant::now();
        if is_silent {
            server.pause();
        } else {
            server.kill();
        }
        let output = waiter.end();
        assert_eq!(crate::common::code(&output), 69, "silent {is_silent}: {}", crate::common::stderr(&output));
        assert!(started.elapsed() >= LIMIT, "silent {is_silent}: after {:?}", started.elapsed());
        // A busy machine gets two and a half seconds; farewells of five seconds and more took longer.
        let late = queued.elapsed().saturating_sub(LIMIT);
        within(Duration::from_millis(2500), late, &format!("late, silent {is_silent}"));
    }
}

#[test]
fn a_store_that_falls_silent_before_the_end_of_a_command_is_not_taken_leave_of_at_length() {
    let server = Server::start(Settings::default()).unwrap();
    let place = Place::with_store(server.url());
    let mut holder = place.holder("job");
    server.pause();
    let started = Instant::now();
    drop(holder.0.as_mut().unwrap().stdin.take());
    let code = holder.code();
    let took = started.elapsed();
    server.resume();
    // A third of the ttl for the release.
    assert_eq!(code, 0);
    within(Duration::from_millis(6500), took, "an end with a server that fell silent");
}

#[test]
fn fencelock_ends_soon_after_a_command_that_it_killed_while_its_server_was_silent() {
    let server = Server::start(Settings::default()).unwrap();
    let place = Place::with_store(server.url());
    let running = Running::start(&mut place.run(&["-q", "job"], "echo $$ > pid; while :; do sleep 0.02; done"));
    let command: i32 = written(&place.path("pid")).trim().parse().unwrap();
    server.pause();
    until("the command is killed", || (!is_alive(command)).then_some(()));
    let killed = Instant::now();
    assert_eq!(running.code(), 76);
    // Giving the lock back has 0.3 s, and the farewell half a second. A request deadline is a third of the ttl, 3.3 s.
    within(Duration::from_secs(2), killed.elapsed(), "an end after a killed command");
}

#[test]
fn the_last_look_for_a_second_holder_does_not_wait_for_a_silent_server() {
    let zookeeper = &fencelock_testbed::zookeeper::KIND;
    let proxy = Proxy::start(zookeeper.shared().address()).unwrap();
    let options = "ttl_ms=60000&request_deadline_ms=6000";
    let place = Place::with_store(zookeeper.url(proxy.address(), &zookeeper.shared().namespace(), options));
    let mut holder = place.holder("job");
    proxy.hold(Way::Both);
    let started = Instant::now();
    drop(holder.0.as_mut().unwrap().stdin.take());
    let code = holder.code();
    let took = started.elapsed();
    // The release takes one request deadline. A last look that waited too would take a second one.
    assert_eq!(code, 0);
    within(Duration::from_secs(10), took, "an end whose last look is not answered");
}
