//! Behaviour of the command that every store with servers shares, against real servers.

use std::fs;
use std::process::Stdio;

use crate::common::{Place, Running, code, ended, is_alive, output, stderr, stdout, until, written};
use fencelock_testbed::Kind;
use nix::sys::signal::Signal;

/// The tests of this file, on one kind of server.
macro_rules! on {
    ($kind:expr, $($test:ident)*) => {
        $(#[test]
        fn $test() {
            super::$test($kind);
        })*
    };
}

/// All of them, on each kind.
macro_rules! on_each {
    ($($server:ident)*) => {
        $(mod $server {
            on! {
                &fencelock_testbed::$server::KIND,
                run_gives_tokens_that_rise_and_ends_as_its_command_does
                a_program_that_cannot_run_is_named_and_the_lock_given_back
                a_busy_lock_is_refused_with_its_holder_named_and_nothing_is_left_behind
                waiters_run_in_the_order_of_their_arrival_and_are_shown_in_it
                a_waiter_behind_a_suspended_one_gets_the_lock
                readers_and_permits_run_together_and_are_shown_with_their_kinds
                a_broken_holder_gets_the_reason_and_the_record_is_shown
                a_killed_fencelock_takes_its_command_along_while_the_lock_is_still_held
                stores_lists_the_store_and_its_options
            }
        })*

        #[test]
        fn every_kind_of_server_is_tried() {
            assert_eq!(fencelock_testbed::KINDS.len(), [$(stringify!($server)),*].len());
        }
    };
}

on_each!(etcd mysql postgres redis zookeeper);

/// A session that survives a slow test, in a part of the server that no other test uses.
fn place(kind: &'static Kind) -> Place {
    Place::with_store(kind.shared().url_with("ttl_ms=60000")).made()
}

fn run_gives_tokens_that_rise_and_ends_as_its_command_does(kind: &'static Kind) {
    let place = place(kind);
    let told = || {
        let told = output(&mut place.run(&["job/{x}"], "echo $FENCELOCK_NAME $FENCELOCK_TOKEN"));
        assert_eq!((code(&told), stderr(&told)), (0, String::new()));
        stdout(&told).trim_end().strip_prefix("job/{x} ").unwrap().parse::<i64>().unwrap()
    };
    assert!(told() < told(), "tokens rise");
    for (script, expected) in [("exit 3", 3), ("kill -TERM $$", 143)] {
        assert_eq!(ended(&mut place.run(&["job"], script)), (expected, String::new()), "{script}");
    }
    assert_eq!(ended(&mut place.run(&["--max-hold", "300ms", "--quiet", "job"], "exec sleep 600")).0, 76);
    assert_eq!(ended(place.fencelock(&["--require-store"]).args(["run", "job", "--", "true"])), (0, String::new()));
    assert_eq!(place.contenders("job").len(), 0);
}

fn a_program_that_cannot_run_is_named_and_the_lock_given_back(kind: &'static Kind) {
    let place = place(kind);
    let file = place.path("plain");
    fs::write(&file, "x").unwrap();
    for (program, expected) in [(file.to_str().unwrap(), 126), ("no-such-command", 127)] {
        let (code, text) = ended(&mut place.fencelock(&["run", "job", "--", program, "--argument"]));
        assert_eq!(code, expected);
        assert!(text.starts_with("fencelock: cannot execute ") && text.contains(program), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    assert_eq!(ended(&mut place.run(&["--try", "job"], "true")).0, 0);
}

fn a_busy_lock_is_refused_with_its_holder_named_and_nothing_is_left_behind(kind: &'static Kind) {
    place(kind).refuses_a_busy_lock_with_its_holder_named();
}

fn waiters_run_in_the_order_of_their_arrival_and_are_shown_in_it(kind: &'static Kind) {
    let place = place(kind);
    let mut holder = place.holder("job");
    let mut waiters = Vec::new();
    for number in 0..3 {
        let options = ["--quiet", "--purpose", &format!("waiter {number}"), "job"];
        waiters.push(Running::start(&mut place.run(&options, &format!("echo {number} >> order"))));
        place.queued("job", number + 2);
    }
    let shown = place.contenders("job");
    for (index, contender) in shown.iter().enumerate() {
        let state = if index == 0 { "holder" } else { "waiter" };
        assert_eq!((&contender["position"], &contender["state"]), (&(index + 1).into(), &state.into()));
        assert!(contender["host"].is_string() && contender["since"].as_str().unwrap().ends_with('Z'), "{contender}");
    }
    assert_eq!(shown[0]["pid"], holder.pid().as_raw());
    assert_eq!(shown[3]["pid"], waiters[2].pid().as_raw());
    assert!(shown[0]["token"].as_str().unwrap().parse::<i64>().unwrap() > 0 && shown[1]["token"].is_null());
    let table = stdout(&output(&mut place.fencelock(&["show", "job"])));
    let lines: Vec<_> = table.lines().collect();
    assert!(lines[1].contains("holder") && lines[1].contains("to test") && lines[4].contains("waiter 2"), "{table}");
    let listed = stdout(&output(&mut place.fencelock(&["ls"])));
    assert!(listed.contains("job") && listed.lines().nth(1).unwrap().ends_with('3'), "{listed}");
    drop(holder.0.as_mut().unwrap().stdin.take());
    assert!(waiters.into_iter().all(|waiter| waiter.code() == 0));
    assert_eq!(fs::read_to_string(place.path("order")).unwrap(), "0\n1\n2\n");
    assert_eq!(stdout(&output(&mut place.fencelock(&["ls", "--json"]))), "[]\n");
}

fn a_waiter_behind_a_suspended_one_gets_the_lock(kind: &'static Kind) {
    // Longer than a test waits for anything, so that the place of a stopped waiter does not go by itself; ZooKeeper grants less.
    let ttl = if kind.scheme == "zk" { "ttl_ms=120000" } else { "ttl_ms=600000" };
    Place::with_store(kind.shared().url_with(ttl)).made().passes_by_a_waiter_that_is_suspended();
}

fn readers_and_permits_run_together_and_are_shown_with_their_kinds(kind: &'static Kind) {
    place(kind).lets_shared_holders_run_together();
}

fn a_broken_holder_gets_the_reason_and_the_record_is_shown(kind: &'static Kind) {
    place(kind).tells_a_broken_holder_why_and_shows_the_record();
}

fn a_killed_fencelock_takes_its_command_along_while_the_lock_is_still_held(kind: &'static Kind) {
    let place = place(kind);
    let script = "trap '' TERM HUP; echo $$ > pid; while :; do read line; done";
    let mut running = Running::start(place.run(&["job"], script).stdin(Stdio::piped()));
    let child = written(&place.path("pid")).trim().parse().unwrap();
    running.signal(Signal::SIGKILL);
    assert_eq!(running.0.take().unwrap().wait().unwrap().code(), None);
    until("the command is gone", || (!is_alive(child)).then_some(()));
    // The session lives for a minute, and no other command starts before its end.
    assert_eq!(place.contenders("job").len(), 1);
    assert_eq!(ended(&mut place.run(&["--try", "--quiet", "job"], "true")).0, 75);
}

fn stores_lists_the_store_and_its_options(kind: &'static Kind) {
    let listed = stdout(&output(&mut Place::new().fencelock(&["stores", "--json"])));
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let is_on_such_a_server = |scheme: &str| scheme == kind.scheme || kind.other_schemes.contains(&scheme);
    let stores: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .filter(|store| is_on_such_a_server(store["scheme"].as_str().unwrap()))
        .collect();
    assert_eq!(stores.len(), 1 + kind.other_schemes.len(), "{listed}");
    for store in stores {
        let order = &store["capability"]["order"];
        assert_eq!((&store["compiled_in"], order), (&true.into(), &"first come, first served".into()), "{store}");
        // Only etcd has one layout.
        let option = if kind.scheme == "etcd" { "password_file" } else { "layout" };
        assert!(store["options"].as_array().unwrap().contains(&option.into()), "{store}");
    }
}
