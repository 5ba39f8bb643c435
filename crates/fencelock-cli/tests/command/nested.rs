//! `fencelock run` under `fencelock run`: a lock inside itself would wait for ever.

use std::process::{Command, Stdio};

use crate::common::{PROGRAM, Place, Running, code, ended, output, stderr, stdout, written};
use fencelock_testbed::redis::shared;
use nix::sys::signal::Signal;

/// `run` with a script that knows the program as `$FL`.
fn run(place: &Place, options: &[&str], script: &str) -> Command {
    let mut command = place.run(options, script);
    command.env("FL", PROGRAM);
    command
}

#[test]
fn a_lock_inside_itself_ends_at_once_and_names_the_command_around_it() {
    let place = Place::new();
    let inner = |script: &str| Running::start(run(&place, &["job"], script).stderr(Stdio::piped()));
    for script in [
        "\"$FL\" run job -- touch ran",
        "\"$FL\" run --quiet --wait 1h job -- touch ran",
        "\"$FL\" run --try job -- touch ran",
        "\"$FL\" wait job && touch ran",
        "sh -c '\"$FL\" run other -- \"$FL\" run --quiet job -- touch ran; exit $?'",
    ] {
        let outer = inner(script);
        let named = format!("pid {} for \"sh\" since 2", outer.pid());
        let output = outer.end();
        assert_eq!(code(&output), 73, "{script}: {}", stderr(&output));
        assert!(stderr(&output).contains(&named), "{script}: {}", stderr(&output));
    }
    assert!(!place.path("ran").exists());
    assert_eq!(ended(&mut run(&place, &["job"], "\"$FL\" wait --timeout 1ms job")).0, 75);
    assert_eq!(ended(&mut run(&place, &["job"], "\"$FL\" run other -- true")), (0, String::new()));
}

#[test]
fn a_lock_inside_itself_by_another_url_of_the_store_ends_at_once() {
    let server = shared().url_with("ttl_ms=60000");
    for (store, other) in
        [(server.clone(), server.replace("127.0.0.1", "localhost")), (server.clone(), server + "&layout=fair")]
    {
        let place = Place::with_store(store);
        for inner in ["run job -- true", "run --quiet --try other job -- true", "acquire job --pid $$", "wait job"] {
            let script = format!("FENCELOCK_STORE='{other}' \"$FL\" {inner}");
            let (code, said) = ended(&mut run(&place, &["job"], &script));
            assert!(code == 73 && said.contains("which job is in redis://"), "{other} {inner}: {code} {said}");
        }
        let note = format!("FENCELOCK_STORE='{other}' \"$FL\" note job --set here");
        assert_eq!(ended(&mut run(&place, &["job"], &note)), (0, String::new()));
    }
}

#[test]
fn a_reader_shares_its_lock_once_more_while_a_writer_waits() {
    let place = Place::new();
    let script = "echo > ready; while ! test -e go; do sleep 0.02; done; echo $FENCELOCK_TOKEN
        \"$FL\" run other -- \"$FL\" run --shared page -- sh -c 'echo $FENCELOCK_NAME; echo $FENCELOCK_TOKEN; exit 5'";
    let reader = Running::start(run(&place, &["--shared", "page"], script).stdout(Stdio::piped()));
    written(&place.path("ready"));
    let writer = Running::start(&mut place.run(&["--quiet", "--exclusive", "page"], "true"));
    place.queued("page", 2);
    std::fs::write(place.path("go"), "").unwrap();
    let output = reader.end();
    let text = stdout(&output);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!((code(&output), lines[1], lines[2]), (5, "page", lines[0]), "{text}");
    assert_eq!(writer.code(), 0);
}

#[test]
fn a_writer_is_refused_inside_a_reader_and_a_reader_inside_a_writer() {
    let place = Place::new();
    for (outer, inner) in [("--shared", "--exclusive"), ("--exclusive", "--shared"), ("--exclusive", "--exclusive")] {
        let (code, said) = ended(&mut run(&place, &[outer, "page"], &format!("\"$FL\" run {inner} page -- true")));
        assert_eq!((code, said.contains("this command runs under it")), (73, true), "{said}");
    }
}

#[test]
fn permits_are_refused_inside_permits_only_where_none_can_be_left() {
    let place = Place::new();
    let script = "\"$FL\" run --permits 1/2 seats -- \"$FL\" run --permits 1/2 seats -- true; test $? = 73";
    assert_eq!(ended(&mut run(&place, &["--permits", "1/3", "other"], "\"$FL\" run --permits 2/3 other -- true")).0, 0);
    assert_eq!(ended(&mut run(&place, &["--permits", "1/2", "seats"], script)).0, 0);
}

#[test]
fn a_process_that_outlives_the_command_of_its_lock_may_take_that_lock() {
    let place = Place::new();
    let daemon =
        "setsid sh -c 'while ! test -e go; do sleep 0.02; done; \"$FL\" run --try job -- true; echo $? > code'";
    assert_eq!(ended(&mut run(&place, &["job"], &format!("{daemon} >/dev/null 2>&1 &"))).0, 0);
    std::fs::write(place.path("go"), "").unwrap();
    assert_eq!(written(&place.path("code")), "0\n");
}

#[test]
fn an_environment_that_names_a_process_that_is_another_one_now_refuses_nothing() {
    let place = Place::new();
    let told = stdout(&output(&mut run(&place, &["job"], "echo \"$FENCELOCK_HELD\"")));
    let mut held: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&held[0]["locks"][0][0], &held[0]["mode"]), (&"job".into(), &"mutex".into()));
    // Our own process is an ancestor, and started at another time.
    held[0]["pid"] = std::process::id().into();
    let mut stale = place.run(&["--try", "job"], "true");
    assert_eq!(ended(stale.env("FENCELOCK_HELD", held.to_string())).0, 0);
    let mut strange = place.run(&["--try", "job"], "true");
    let (code, said) = ended(strange.env("FENCELOCK_HELD", "[{\"pid\":"));
    assert_eq!((code, said.contains("FENCELOCK_HELD") && said.contains("unset it")), (64, true), "{said}");
}

#[test]
fn commands_with_a_hundred_locks_each_run_inside_each_other_and_names_that_do_not_fit_end_with_64() {
    let place = Place::new();
    let nested = |levels: usize, long: &str| {
        let names = |level: usize| (0..100).map(move |lock| format!("{level}-{lock}-{long}"));
        let inner = |level: usize| names(level).chain(["--".to_owned()]);
        let start = |level: usize| [PROGRAM.to_owned(), "run".to_owned()].into_iter().chain(inner(level));
        let mut arguments: Vec<String> = (0..levels).flat_map(start).skip(1).collect();
        arguments.push("true".to_owned());
        ended(place.fencelock(&[]).args(arguments))
    };
    assert_eq!(nested(8, "a-name-of-a-lock-that-is-neither-long-nor-short"), (0, String::new()));
    let (code, said) = nested(4, &"x".repeat(480));
    assert!(code == 64 && said.contains("FENCELOCK_HELD, which has at most 122880"), "{code} {said}");
    assert_eq!(ended(&mut place.run(&["--try", "--quiet", "0-0-x"], "true")).0, 0);
}

#[test]
fn a_command_that_shares_a_lock_once_more_ends_with_the_one_around_it() {
    let place = Place::new();
    let script =
        "exec \"$FL\" run --shared page -- sh -c 'trap \"exit 4\" TERM; echo > ready; while :; do sleep 0.02; done'";
    let outer = Running::start(&mut run(&place, &["--shared", "page"], script));
    written(&place.path("ready"));
    outer.signal(Signal::SIGTERM);
    assert_eq!(outer.code(), 4);
}

#[test]
fn a_reader_in_the_background_that_outlives_the_reader_around_it_has_a_lock_of_its_own() {
    let place = Place::new();
    let script =
        "\"$FL\" run --shared page -- sh -c 'echo > ready; while ! test -e go; do sleep 0.02; done; echo > ended' >/dev/null 2>&1 &
        while ! test -e ready; do sleep 0.02; done";
    assert_eq!(ended(&mut run(&place, &["--shared", "page"], script)).0, 0);
    assert_eq!(ended(&mut place.run(&["--quiet", "--try", "--exclusive", "page"], "true")), (75, String::new()));
    std::fs::write(place.path("go"), "").unwrap();
    written(&place.path("ended"));
}
