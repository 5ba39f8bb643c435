//! `fencelock break`: ends exactly the grant that is named, and tells its holder.

use std::process::Stdio;

use crate::common::terminal::Screen;
use crate::common::{Place, Running, code, ended, output, stderr, stdout};

fn token(place: &Place, name: &str) -> i64 {
    place.contenders(name)[0]["token"].as_str().unwrap().parse().unwrap()
}

#[test]
fn a_break_gives_the_holder_its_reason_raises_the_next_token_and_leaves_a_record() {
    let place = Place::new();
    let mut command = place.run(&["job", "--purpose", "to test"], "cat");
    let holder = Running::start(command.stdin(Stdio::piped()).stderr(Stdio::piped())).begun();
    let (before, pid) = (token(&place, "job"), holder.pid());
    let next = Running::start(place.run(&["--quiet", "job"], "cat").stdin(Stdio::piped()));
    place.queued("job", 2);
    let broke = output(&mut place.fencelock(&["break", "job", "--reason", "stuck since noon", "--yes"]));
    assert_eq!(code(&broke), 0, "{broke:?}");
    let said = stdout(&broke);
    assert!(said.contains(&format!("pid {pid}")) && said.contains("to test"), "{said}");
    let told = holder.end();
    assert_eq!(code(&told), 76);
    let text = stderr(&told);
    assert!(text.contains("it was broken by pid") && text.contains("stuck since noon"), "{text}");
    place.queued("job", 1);
    assert!(token(&place, "job") > before);
    let shown = stdout(&output(&mut place.fencelock(&["show", "job", "--json"])));
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let record = &shown["breaks"][0];
    assert_eq!((&record["reason"], &record["pid"]), (&"stuck since noon".into(), &pid.as_raw().into()));
    assert_eq!(record["token"].as_str().unwrap().parse::<i64>().unwrap(), before);
    assert!(record["by_pid"].as_u64().is_some() && record["at"].as_str().unwrap().ends_with('Z'));
    let table = stdout(&output(&mut place.fencelock(&["show", "job"])));
    assert!(table.lines().any(|line| line.contains("broken") && line.contains("stuck since noon")), "{table}");
    drop(next);
}

#[test]
fn a_lock_without_a_holder_cannot_be_broken() {
    let place = Place::new();
    let _holder = place.holder("job");
    let (code, said) = ended(&mut place.fencelock(&["break", "idle", "--reason", "why not", "--yes"]));
    assert_eq!(code, 1);
    assert!(said.contains("no client holds idle"), "{said}");
    let wrong = ["break", "job", "--reason", "why not", "--yes", "--token", "1"];
    assert_eq!(ended(&mut place.fencelock(&wrong)).0, 1);
    assert_eq!(place.contenders("job").len(), 1);
}

#[test]
fn of_several_holders_the_token_names_one() {
    let place = Place::new();
    let start = |options: &[&str]| Running::start(place.run(options, "cat").stdin(Stdio::piped())).begun();
    let _readers = [start(&["--shared", "page"]), start(&["--shared", "page"])];
    place.queued("page", 2);
    let (code, said) = ended(&mut place.fencelock(&["break", "page", "--reason", "x", "--yes"]));
    assert_eq!(code, 64);
    let second = place.contenders("page")[1]["token"].as_str().unwrap().to_owned();
    assert!(said.contains(&second) && said.contains("--token"), "{said}");
    let named = ["break", "page", "--reason", "x", "--yes", "--token", &second];
    assert_eq!(ended(&mut place.fencelock(&named)), (0, String::new()));
    place.queued("page", 1);
    assert_eq!(ended(&mut place.fencelock(&named)).0, 1, "it is gone, and the other one is not taken for it");
    place.queued("page", 1);
}

#[test]
fn break_asks_on_a_terminal_and_needs_yes_elsewhere() {
    let place = Place::new();
    let holder = place.holder("job");
    let (code, said) = ended(&mut place.fencelock(&["break", "job", "--reason", "x"]));
    assert_eq!(code, 64);
    assert!(said.contains("--yes"), "{said}");
    for (answer, code) in [("\n", 1), ("no\n", 1), ("y\n", 0)] {
        let mut screen = Screen::start(&place.fencelock(&["break", "job", "--reason", "x"]));
        screen.shows(&format!("pid {}", holder.pid()));
        screen.shows("[y/N]");
        screen.types(answer);
        assert_eq!(screen.code(), code, "{answer:?}");
    }
    assert_eq!(holder.code(), 76);
}

#[test]
fn a_reason_is_needed_and_checked() {
    let place = Place::new();
    assert_eq!(ended(&mut place.fencelock(&["break", "job", "--yes"])).0, 64);
    for bad in ["", " ", "a\u{1b}b", &"x".repeat(513)] {
        let (code, said) = ended(&mut place.fencelock(&["break", "job", "--yes", "--reason", bad]));
        assert_eq!(code, 64, "{bad:?}: {said}");
    }
}
