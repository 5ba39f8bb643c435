//! `fencelock ls`: every lock with a holder or a waiter.

use std::fs::File;
use std::process::Stdio;

use crate::common::{Place, Running, code, ended, output, stderr, stdout};

#[test]
fn held_locks_are_listed_with_their_holders_and_how_many_wait() {
    let place = Place::new();
    let (one, _two) = (place.holder("job/one"), place.holder("other"));
    let _waiter = Running::start(&mut place.run(&["--quiet", "job/one"], "true"));
    place.queued("job/one", 2);
    let listed = output(&mut place.fencelock(&["ls"]));
    let text = stdout(&listed);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!((code(&listed), stderr(&listed).as_str(), lines.len()), (0, "", 4), "{text}");
    assert!(lines[0].starts_with("NAME"));
    assert!(lines[1].starts_with("job/one") && lines[1].contains(&format!("pid {}", one.pid())), "{text}");
    assert!(lines[1].contains("to test") && lines[1].ends_with('1'), "{text}");
    assert!(lines[2].starts_with("other") && lines[2].ends_with('0'), "{text}");
}

#[test]
fn json_says_the_same_and_a_prefix_narrows_it() {
    let place = Place::new();
    let (one, _two) = (place.holder("job/one"), place.holder("other"));
    let listed = stdout(&output(&mut place.fencelock(&["ls", "job/", "--json"])));
    let locks: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(locks.as_array().unwrap().len(), 1, "{listed}");
    let lock = &locks[0];
    assert_eq!((lock["name"].as_str(), lock["waiting"].as_u64()), (Some("job/one"), Some(0)));
    let holder = &lock["holders"][0];
    assert_eq!(holder["pid"].as_i64(), Some(one.pid().as_raw().into()));
    assert!(holder["token"].as_str().unwrap().parse::<i64>().unwrap() > 0);
}

#[test]
fn nothing_held_is_an_empty_list() {
    let place = Place::new();
    assert_eq!(ended(&mut place.run(&["job"], "true")).0, 0);
    assert_eq!(stdout(&output(&mut place.fencelock(&["ls", "--json"]))), "[]\n");
    assert_eq!(stdout(&output(&mut place.fencelock(&["ls"]))).lines().count(), 2, "the head and the store");
}

#[test]
fn a_reader_that_went_away_is_no_failure() {
    let place = Place::new();
    assert_eq!(ended(&mut place.run(&["job"], "true")).0, 0);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(ended(place.fencelock(&["ls"]).stdout(writer)), (0, String::new()));
    let (code, text) = ended(place.fencelock(&["ls"]).stdout(Stdio::from(File::create("/dev/full").unwrap())));
    assert_eq!(code, 74);
    assert!(text.contains("cannot write"), "{text}");
}

#[test]
fn names_that_a_terminal_would_obey_are_written_out() {
    let place = Place::new();
    let _holder = place.holder("a\u{202e}b");
    let text = stdout(&output(&mut place.fencelock(&["ls"])));
    assert!(text.contains("a\\u{202e}b") && !text.contains('\u{202e}'), "{text}");
}

#[test]
fn a_named_directory_that_is_not_there_is_said_and_not_made() {
    let place = Place::new();
    for arguments in [&["ls"][..], &["ls", "--json"], &["show", "job"], &["break", "job", "--yes", "--reason", "x"]] {
        let (code, said) = ended(&mut place.fencelock(arguments));
        assert_eq!(code, 69, "{arguments:?}: {said}");
        assert!(
            said.contains(&place.url()) && said.contains("is not there") && said.contains("FENCELOCK_STORE"),
            "{said}"
        );
    }
    assert!(!place.path("store").exists());
}

#[test]
fn of_a_store_out_of_reach_no_empty_list_is_printed() {
    let place = Place::with_store("redis://127.0.0.1:1/0".to_owned());
    for arguments in [&["ls"][..], &["ls", "--json"], &["jobs"], &["jobs", "--json"], &["top", "--once"]] {
        let shown = output(&mut place.fencelock(arguments));
        assert_eq!((code(&shown), &*stdout(&shown)), (69, ""), "{arguments:?}");
    }
}

#[test]
fn an_unused_default_directory_shows_no_holder_and_is_not_made() {
    let place = Place::new();
    let home = |arguments: &[&str]| {
        let mut command = place.fencelock(arguments);
        command.env_remove("FENCELOCK_STORE").env("HOME", place.directory.path());
        command.env_remove("XDG_STATE_HOME").env_remove("XDG_CONFIG_HOME");
        output(&mut command)
    };
    // Root's is another directory, which may be there.
    if nix::unistd::geteuid().is_root() {
        return;
    }
    assert_eq!(stdout(&home(&["ls", "--json"])), "[]\n");
    assert!(stdout(&home(&["show", "job"])).starts_with("no client holds or waits for job\n"));
    assert!(!place.path(".local").exists());
}
