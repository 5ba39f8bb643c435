//! `fencelock run --once-per` and `fencelock jobs`: a slot has one run, whose result is kept.

use std::process::Stdio;

use fencelock_testbed::redis::shared;
use fencelock_testbed::{mysql, postgres, zookeeper};
use nix::sys::signal::Signal;

use crate::common::{Place, Running, code, ended, output, stderr, stdout, until, written};

/// A place on each store that keeps notes.
fn every_store() -> [Place; 5] {
    [
        Place::new(),
        Place::with_store(shared().url_with("ttl_ms=60000")),
        Place::with_store(zookeeper::shared().url_with("ttl_ms=60000")),
        Place::with_store(postgres::KIND.shared().url_with("ttl_ms=60000")),
        Place::with_store(mysql::KIND.shared().url_with("ttl_ms=60000")),
    ]
}

/// The row of the job in `jobs --json`.
fn last(place: &Place) -> serde_json::Value {
    let shown = output(&mut place.fencelock(&["jobs", "--json", "job"]));
    match code(&shown) {
        // A directory that no `run` has made yet.
        69 if stderr(&shown).contains("is not there") => return serde_json::json!({"state": "never"}),
        other => assert_eq!(other, 0, "{shown:?}"),
    }
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    shown[0].clone()
}

fn checked(place: &Place) -> i32 {
    code(&output(&mut place.fencelock(&["jobs", "--check", "job"])))
}

fn runs_once(place: &Place) {
    let slot = ["--slot", "2026-11-25", "job"];
    assert_eq!(last(place)["state"].as_str(), Some("never"));
    let asked: Vec<_> = (0..5).map(|_| Running::start(&mut place.run(&slot, "echo $FENCELOCK_SLOT >> ran"))).collect();
    // On each host a single command waits.
    let codes: Vec<_> = asked.into_iter().map(Running::code).collect();
    assert!(codes.contains(&0) && codes.iter().all(|code| [0, 72].contains(code)), "{codes:?}");
    assert_eq!(written(&place.path("ran")), "2026-11-25\n");
    let (code, said) = ended(&mut place.run(&slot, "false"));
    assert_eq!(code, 0);
    assert!(
        said.contains("job has had its run; the last one was for the slot 2026-11-25: pid ")
            && said.contains("ended well"),
        "{said}"
    );
    let quiet = [&["--quiet", "--try"][..], &slot].concat();
    assert_eq!(ended(&mut place.run(&quiet, "false")), (0, String::new()));
    let shown = last(place);
    assert_eq!((shown["state"].as_str(), shown["slot"].as_str()), (Some("succeeded"), Some("2026-11-25")));
    assert!(shown["pid"].is_u64() && shown["took_ms"].is_u64() && shown["missed"].is_null(), "{shown}");
    assert_eq!(checked(place), 0);
    assert_eq!(place.contenders("job").len(), 0);
}

#[test]
fn of_five_that_ask_at_once_one_runs_the_job_and_later_ones_say_who() {
    runs_once(&Place::new());
    runs_once(&Place::with_store(shared().url_with("ttl_ms=60000")));
}

#[test]
fn a_job_of_a_schedule_runs_once_until_the_next_slot_begins() {
    let place = Place::new();
    assert_eq!(ended(&mut place.run(&["--once-per", "52w", "job"], "true")), (0, String::new()));
    for schedule in ["52w", "0 0 1 1 *@Europe/Berlin"] {
        let (code, said) = ended(&mut place.run(&["--once-per", schedule, "job"], "false"));
        assert!(code == 0 && said.contains("job has had its run"), "{code} {said}");
    }
    let shown = last(&place);
    assert_eq!((shown["schedule"].as_str(), shown["missed"].as_u64(), checked(&place)), (Some("52w"), Some(0), 0));
}

#[test]
fn a_note_of_ones_own_is_not_written_over_what_became_of_a_job() {
    let place = Place::new();
    assert_eq!(ended(&mut place.run(&["--slot", "a", "job"], "true")).0, 0);
    let (code, said) = ended(&mut place.fencelock(&["note", "job", "--set", "mine"]));
    assert!(code == 64 && said.contains("--delete"), "{code} {said}");
    assert_eq!(last(&place)["state"].as_str(), Some("succeeded"));
    assert_eq!(ended(&mut place.fencelock(&["note", "job", "--delete"])).0, 0);
    assert_eq!(ended(&mut place.fencelock(&["note", "job", "--set", "mine"])).0, 0);
}

#[test]
fn a_note_that_waited_for_its_lock_is_not_written_over_what_became_of_a_job_meanwhile() {
    let place = Place::new();
    let holder = place.holder("job");
    let runs = Running::start(&mut place.run(&["--quiet", "--slot", "a", "job"], "true"));
    place.queued("job", 2);
    let writes = Running::start(place.fencelock(&["note", "job", "--set", "mine"]).stderr(Stdio::piped()));
    place.queued("job", 3);
    drop(holder);
    assert_eq!(runs.code(), 0);
    let refused = writes.end();
    assert!(code(&refused) == 64 && stderr(&refused).contains("--delete"), "{refused:?}");
    assert_eq!(last(&place)["state"].as_str(), Some("succeeded"));
}

#[test]
fn a_job_that_exits_with_the_code_of_a_lost_lock_has_failed() {
    let place = Place::new();
    assert_eq!(ended(&mut place.run(&["--slot", "a", "job"], "exit 76")).0, 76);
    let shown = last(&place);
    assert_eq!((shown["state"].as_str(), shown["detail"].as_str()), (Some("failed"), Some("exit code 76")));
}

#[test]
fn a_job_that_fails_keeps_its_exit_code_and_is_run_again_as_often_as_is_allowed() {
    let place = Place::new();
    let run = |slot: &str, retries: &str| {
        let script = "echo x >> tried; exit 3";
        ended(&mut place.run(&["--quiet", "--slot", slot, "--retries", retries, "job"], script)).0
    };
    assert_eq!([run("a", "0"), run("a", "0")], [3, 0]);
    let shown = last(&place);
    assert_eq!((shown["state"].as_str(), shown["detail"].as_str()), (Some("failed"), Some("exit code 3")));
    assert_eq!(checked(&place), 1);
    assert_eq!([run("b", "1"), run("b", "1"), run("b", "1")], [3, 3, 0]);
    assert_eq!(written(&place.path("tried")).lines().count(), 3);
    let table = stdout(&output(&mut place.fencelock(&["jobs", "job"])));
    assert!(table.contains("JOB") && table.contains("exit code 3") && table.contains("store: file://"), "{table}");
}

#[test]
fn the_waiting_host_follows_one_that_dies_or_is_asked_to_end() {
    let place = Place::new();
    let mut before = None;
    for (slot, signal) in [("a", Signal::SIGKILL), ("b", Signal::SIGTERM)] {
        let options = ["--quiet", "--close", "--slot", slot, "job"];
        let first = Running::start(place.run(&options, "echo >> began; exec sleep 1000").stdin(Stdio::null()));
        until("it runs", || (last(&place)["state"] == "running" && last(&place)["slot"] == slot).then_some(()));
        let waits = Running::start(&mut place.run(&options, "echo $FENCELOCK_TOKEN >> ended"));
        place.queued("job", 2);
        let running = stdout(&output(&mut place.fencelock(&["jobs"])));
        assert!(running.contains("running") && running.contains(slot), "{running}");
        first.signal(signal);
        assert_eq!(
            (waits.code(), last(&place)["state"].as_str(), last(&place)["attempt"].as_u64()),
            (0, Some("succeeded"), Some(2))
        );
        let ended = written(&place.path("ended")).lines().count();
        assert_eq!(before.replace(ended).unwrap_or(0) + 1, ended);
    }
}

#[test]
fn a_run_that_is_asked_to_end_or_outlives_max_hold_has_died_with_any_exit_code() {
    let place = Place::new();
    let told = "trap 'exit 0' TERM HUP; echo >> began-$FENCELOCK_SLOT; while :; do sleep 0.05; done";
    for (slot, signal) in [("b", Signal::SIGHUP), ("a", Signal::SIGTERM)] {
        let first = Running::start(place.run(&["--slot", slot, "job"], told).stdin(Stdio::null()));
        until("it runs", || place.path(&format!("began-{slot}")).exists().then_some(()));
        first.signal(signal);
        assert_eq!((first.code(), last(&place)["state"].as_str()), (0, Some("died")));
    }
    let (code, _) = ended(place.run(&["--max-hold", "1ms", "--slot", "a", "job"], told).stdin(Stdio::null()));
    assert_eq!((code, last(&place)["state"].as_str(), checked(&place)), (76, Some("died"), 1));
    assert_eq!(ended(&mut place.run(&["--slot", "a", "job"], "true")), (0, String::new()));
    assert_eq!((last(&place)["attempt"].as_u64(), checked(&place)), (Some(3), 0));
}

fn refuses_a_second_waiter(place: &Place) {
    // The first client of a busy server makes the schema, which may take long.
    let slot = ["--connect-wait", "180s", "--slot", "a", "job"];
    let first = Running::start(place.run(&slot, "echo >> began; exec cat").stdin(Stdio::piped()));
    until("it runs", || place.path("began").exists().then_some(()));
    let waits = Running::start(&mut place.run(&[&["--quiet"], &slot[..]].concat(), "false"));
    place.queued("job", 2);
    assert_eq!(place.contenders("job")[1]["purpose"], "sh (slot a)");
    let (code, said) = ended(&mut place.run(&slot, "false"));
    assert!(code == 72 && said.contains("another client of this host waits"), "{code} {said}");
    assert_eq!(ended(&mut place.run(&[&["--quiet"], &slot[..]].concat(), "false")), (72, String::new()));
    first.signal(Signal::SIGKILL);
    drop(waits);
}

#[test]
fn a_second_waiter_of_a_host_for_one_slot_ends_with_72() {
    every_store().iter().for_each(refuses_a_second_waiter);
}

#[test]
fn a_record_from_the_future_fails_the_check_and_a_run_warns_of_it() {
    let place = Place::new();
    let record = r#"{"job":1,"slot":"2999-01-01T00:00:00Z","slot_start":"2999-01-01T00:00:00Z","schedule":"1h","state":"succeeded","began":"2999-01-01T00:00:00Z","attempt":1,"missed":0}"#;
    assert_eq!(ended(&mut place.fencelock(&["note", "job", "--set", record])).0, 0);
    assert_eq!((checked(&place), last(&place)["ahead"].as_bool()), (1, Some(true)));
    let (code, said) = ended(&mut place.run(&["--once-per", "52w", "job"], "true"));
    assert!(code == 0 && said.contains("from the future"), "{code} {said}");
    assert_eq!((last(&place)["state"].as_str(), checked(&place)), (Some("succeeded"), 0));
}

#[test]
fn slots_that_were_missed_before_the_last_run_fail_the_check() {
    let place = Place::new();
    let record = r#"{"job":1,"slot":"a","state":"succeeded","began":"2001-01-01T00:00:00Z","attempt":1,"missed":82}"#;
    assert_eq!(ended(&mut place.fencelock(&["note", "job", "--set", record])).0, 0);
    assert_eq!((last(&place)["missed_before"].as_u64(), checked(&place)), (Some(82), 1));
}

#[test]
fn a_named_slot_that_falls_out_of_memory_is_reported() {
    let place = Place::new();
    let past: Vec<_> = (0..30).map(|number| format!("{number:0>126}")).collect();
    let record = serde_json::json!({"job": 1, "slot": "x", "state": "succeeded", "began": "2001-01-01T00:00:00Z", "attempt": 1, "missed": 0, "past": past});
    assert_eq!(ended(&mut place.fencelock(&["note", "job", "--set", &record.to_string()])).0, 0);
    let (code, said) = ended(&mut place.run(&["--slot", &"y".repeat(128), "job"], "true"));
    assert!(code == 0 && said.contains("no room for this slot") && said.contains(&past[0]), "{code} {said}");
    assert_eq!(ended(&mut place.run(&["--quiet", "--slot", &past[29], "job"], "false")).0, 0);
}

fn lists_its_jobs(place: &Place) {
    let run = |name: &str, slot: &str, script: &str| {
        ended(&mut place.run(&["--connect-wait", "180s", "--slot", slot, name], script)).0
    };
    assert_eq!([run("job", "a", "exit 3"), run("job", "b", "true"), run("other", "a", "true")], [3, 0, 0]);
    let shown = output(&mut place.fencelock(&["jobs", "--json"]));
    assert_eq!(code(&shown), 0, "{shown:?}");
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!((shown[0]["name"].as_str(), shown[1]["name"].as_str()), (Some("job"), Some("other")));
    let before = &shown[0]["earlier"][0];
    assert_eq!((before["state"].as_str(), before["detail"].as_str()), (Some("failed"), Some("exit code 3")));
    assert!(before["took_ms"].is_u64() && shown[0]["last_success"].is_string(), "{shown}");
    let said = output(&mut place.fencelock(&["jobs"]));
    let table = stdout(&said);
    let failed = table.lines().find(|line| line.contains("exit code 3")).unwrap_or_else(|| panic!("{said:?}"));
    let host = before["host"].as_str().unwrap();
    assert!(failed.contains(host) && failed.contains(before["began"].as_str().unwrap()), "{table}");
    assert_eq!(code(&output(&mut place.fencelock(&["note", "job", "--delete"]))), 0);
    let said = output(&mut place.fencelock(&["jobs"]));
    let table = stdout(&said);
    assert!(!table.contains("job ") && table.contains("other"), "{said:?}");
}

#[test]
fn without_names_all_jobs_are_shown_that_have_a_record_with_their_last_runs() {
    every_store().iter().for_each(lists_its_jobs);
    let plain = Place::with_store(shared().url_with("layout=plain"));
    let (code, text) = ended(&mut plain.fencelock(&["jobs"]));
    assert!(code == 64 && text.contains("keeps no notes"), "{code} {text}");
}

#[test]
fn a_command_that_could_not_be_started_leaves_the_slot_to_others() {
    let place = Place::new();
    let cannot = output(&mut place.fencelock(&["run", "--slot", "a", "job", "--", "no-such-command"]));
    assert_eq!((code(&cannot), last(&place)["state"].as_str()), (127, Some("died")), "{}", stderr(&cannot));
    assert_eq!(ended(&mut place.run(&["--slot", "a", "job"], "exit 0")), (0, String::new()));
}

#[test]
fn a_wrong_job_is_refused_with_words() {
    let place = Place::new();
    for (options, said) in [
        (&["--once-per", "sometimes", "job"][..], "daily@Europe/Berlin"),
        (&["--once-per", "1h30m", "job"], "--once-per"),
        (&["--once-per", "1d", "--slot", "a", "job"], "--slot"),
        (&["--once-per", "1d", "--shared", "job"], "--shared"),
        (&["--once-per", "1d", "--hold-at-least", "1s", "job"], "--hold-at-least"),
        (&["--once-per", "1d", "a", "b"], "one name"),
        (&["--slot", "a\tb", "job"], "control characters"),
        (&["--retries", "1", "job"], "--once-per <SLOT>|--slot <TEXT>"),
    ] {
        let (code, text) = ended(&mut place.run(options, "true"));
        assert!(code == 64 && text.contains(said), "{options:?}: {code} {text}");
    }
    let (code, text) = ended(&mut place.fencelock(&["jobs", "--check"]));
    assert!(code == 64 && text.contains("NAME"), "{code} {text}");
    let plain = shared().url_with("layout=plain");
    let (code, text) = ended(&mut Place::with_store(plain).run(&["--slot", "a", "job"], "true"));
    assert!(code == 64 && text.contains("keeps no notes"), "{code} {text}");
}
