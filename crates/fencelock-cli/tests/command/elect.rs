//! `fencelock elect`: a command that runs only while its fencelock leads.

use std::process::Stdio;
use std::time::Duration;

use fencelock_testbed::Proxy;
use fencelock_testbed::redis::{Server, Settings, shared};
use nix::sys::signal::Signal;

use crate::common::{PROGRAM, Place, Running, code, ended, output, stderr, stdout, until, written};

/// A candidate that writes its term into `file` and stays.
fn candidate(place: &Place, file: &str) -> Running {
    let script = format!("echo $FENCELOCK_TOKEN >> {file}; exec sleep 1000");
    let mut command = place.fencelock(&["elect", "--quiet", "leader", "--", "sh", "-c", &script]);
    Running::start(command.stderr(Stdio::piped()))
}

/// The terms that a candidate wrote.
fn terms(place: &Place, file: &str) -> Vec<u64> {
    let text = std::fs::read_to_string(place.path(file)).unwrap_or_default();
    text.lines().filter_map(|term| term.parse().ok()).collect()
}

fn one_leads_and_is_followed(place: &Place) {
    let first = candidate(place, "first");
    until("a candidate leads", || (!terms(place, "first").is_empty()).then_some(()));
    let second = candidate(place, "second");
    place.queued("leader", 2);
    assert!(terms(place, "second").is_empty(), "a candidate does not run its command");
    // A leader whose grant is broken stops its command, prints the reason, and is a candidate again.
    assert_eq!(ended(&mut place.fencelock(&["break", "leader", "--reason", "stuck", "--yes"])).0, 0);
    until("the next one leads", || (!terms(place, "second").is_empty()).then_some(()));
    place.queued("leader", 2);
    second.signal(Signal::SIGTERM);
    assert_eq!(second.code(), 143);
    until("the first leads again", || (terms(place, "first").len() == 2).then_some(()));
    let all = [terms(place, "first")[0], terms(place, "second")[0], terms(place, "first")[1]];
    assert!(all.is_sorted() && all[0] != all[1] && all[1] != all[2], "{all:?}");
    first.signal(Signal::SIGTERM);
    let output = first.end();
    assert_eq!(code(&output), 143);
    assert!(stderr(&output).contains("the lock leader in") && stderr(&output).contains("stuck"), "{}", stderr(&output));
    assert!(place.contenders("leader").is_empty());
}

#[test]
fn a_leader_that_loses_stops_its_command_and_is_a_candidate_again() {
    one_leads_and_is_followed(&Place::new());
}

#[test]
fn leaders_follow_each_other_on_a_redis_server() {
    one_leads_and_is_followed(&Place::with_store(shared().url_with("ttl_ms=60000")));
}

#[test]
fn every_client_sees_the_address_of_the_leader_while_it_leads() {
    let place = Place::new();
    let mut command =
        place.fencelock(&["elect", "--quiet", "leader", "--address", "10.0.0.7:80", "--", "sleep", "1000"]);
    let leader = Running::start(command.stderr(Stdio::piped()));
    let show = || stdout(&output(&mut place.fencelock(&["show", "leader"])));
    until("the leader tells its address", || show().contains("note, the holder's: 10.0.0.7:80").then_some(()));
    let json = stdout(&output(&mut place.fencelock(&["show", "leader", "--json"])));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["note"]["value"], "10.0.0.7:80");
    assert_eq!(json["note"]["token"], json["contenders"][0]["token"]);
    assert_eq!(stdout(&output(&mut place.fencelock(&["note", "leader"]))), "10.0.0.7:80\n");
    leader.signal(Signal::SIGTERM);
    assert_eq!(leader.code(), 143);
    assert_eq!(ended(&mut place.fencelock(&["note", "leader"])).0, 1, "whoever resigns takes its address along");
    assert!(!show().contains("note"));
    let long = "x".repeat(4097);
    for address in ["", &long] {
        let (code, said) = ended(&mut place.fencelock(&["elect", "leader", "--address", address, "--", "true"]));
        assert!(code == 64 && said.contains("--address"), "{said}");
    }
    // Else a job would run twice in its slot.
    assert_eq!(ended(&mut place.fencelock(&["run", "--once-per", "1d", "report", "--", "true"])).0, 0);
    let (code, said) = ended(&mut place.fencelock(&["elect", "report", "--address", "x", "--", "touch", "ran"]));
    assert!(code == 64 && said.contains("a job's runs") && !place.path("ran").exists(), "{said}");
    let plain = Place::with_store(shared().url_with("layout=plain"));
    let (code, said) = ended(&mut plain.fencelock(&["elect", "leader", "--address", "x", "--", "touch", "ran"]));
    assert!(code == 64 && said.contains("keeps no notes") && !plain.path("ran").exists(), "{said}");
}

#[test]
fn an_address_is_taken_back_from_a_slow_store_too() {
    let (server, proxy) = (shared().address(), Proxy::start(shared().address()).unwrap());
    let place = Place::with_store(shared().url_with("ttl_ms=60000"));
    let slow = place.url().replace(&server.to_string(), &proxy.address().to_string());
    proxy.delay(Duration::from_millis(200));
    let command = ["elect", "--quiet", "leader", "--address", "10.0.0.7:80", "--", "sleep", "1000"];
    let leader = Running::start(place.fencelock(&command).env("FENCELOCK_STORE", slow)).begun();
    // A busy server may not answer in time.
    let has_note = || {
        until("the note is read", || match ended(&mut place.fencelock(&["note", "leader"])).0 {
            code @ (0 | 1) => Some(code == 0),
            _ => None,
        })
    };
    assert!(has_note());
    leader.signal(Signal::SIGTERM);
    assert_eq!(leader.code(), 143);
    assert!(!has_note());
}

#[test]
fn a_command_that_ended_is_not_run_again_though_its_lock_was_lost_meanwhile() {
    let server = Server::start(Settings::default()).unwrap();
    // Nothing is renewed meanwhile.
    let place = Place::with_store(format!("{}?ttl_ms=600000", server.url()));
    let script = "echo >> runs; until [ -e go ]; do sleep 0.01; done; exit 3";
    let mut command = place.fencelock(&["elect", "--quiet", "leader", "--", "sh", "-c", script]);
    let leader = Running::start(command.stderr(Stdio::piped()));
    until("it leads", || place.path("runs").exists().then_some(()));
    server.ask(&["FLUSHALL"]).unwrap();
    std::fs::write(place.path("go"), "").unwrap();
    assert_eq!(code(&leader.end()), 76);
    assert_eq!(written(&place.path("runs")), "\n");
}

#[test]
fn a_command_that_ends_by_itself_ends_the_candidacy_with_its_code() {
    let place = Place::new();
    let elect = |script: &str| output(&mut place.fencelock(&["elect", "leader", "--", "sh", "-c", script]));
    assert_eq!(code(&elect("exit 7")), 7);
    // The same with the exit code of a lost lock.
    assert_eq!(code(&elect("exit 76")), 76);
    let inner = format!("{PROGRAM} elect leader -- touch ran");
    assert_eq!(code(&elect(&inner)), 73);
    assert!(!place.path("ran").exists());
    assert_eq!(ended(&mut place.fencelock(&["elect", "a", "b", "--", "true"])).0, 64);
    let script = "echo $FENCELOCK_NAME > told";
    assert_eq!(code(&elect(script)), 0);
    assert_eq!(written(&place.path("told")), "leader\n");
}
