//! `fencelock run` with several names: all of them, or none.

use std::process::Stdio;

use crate::common::{PROGRAM, Place, Running, code, ended, output, refused, stderr, stdout};

#[test]
fn the_command_holds_all_names_and_gets_them_in_their_order_with_their_tokens() {
    let place = Place::new();
    let script = format!(
        "echo \"$FENCELOCK_NAME\"; echo \"$FENCELOCK_TOKEN\"
         for name in a b c; do {PROGRAM} run --quiet --try $name -- true; echo $?; done"
    );
    let output = output(place.run(&["c", "a b", "b"], &script).env_remove("FENCELOCK_HELD"));
    let text = stdout(&output);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[..3], ["a b", "b", "c"], "{text}");
    assert!(lines[3..6].iter().all(|token| token.parse::<u64>().is_ok()), "{text}");
    // 73: the outer command holds the lock.
    assert_eq!(lines[6..], ["0", "73", "73"], "{text}");
    for name in ["a b", "b", "c"] {
        assert_eq!(place.contenders(name).len(), 0);
    }
}

#[test]
fn none_is_taken_while_one_is_busy() {
    let place = Place::new();
    let holder = place.holder("b");
    for limit in [&["--try"][..], &["--wait", "1ms"]] {
        let all = [limit, &["a", "b", "c"]].concat();
        let text = refused(&mut place.run(&all, "true"), &format!("pid {}", holder.pid()));
        assert!(text.contains("name b"), "{text}");
        assert!(place.contenders("a").is_empty() && place.contenders("c").is_empty());
    }
}

#[test]
fn two_that_name_the_same_locks_in_opposite_orders_both_come_to_their_end() {
    let place = Place::new();
    let rounds = |names: [&str; 2]| {
        let script = format!(
            "for round in 1 2 3 4 5; do {PROGRAM} run --quiet {} {} -- sh -c 'mkdir both && rmdir both' || exit 1; done",
            names[0], names[1]
        );
        let mut shell = std::process::Command::new("sh");
        shell.env("FENCELOCK_STORE", place.url()).current_dir(place.directory.path()).args(["-c", &script]);
        Running::start(&mut shell)
    };
    let (one, other) = (rounds(["a", "b"]), rounds(["b", "a"]));
    assert_eq!((one.code(), other.code()), (0, 0));
}

#[test]
fn a_command_is_stopped_when_one_of_its_locks_is_broken_and_that_one_is_named() {
    let place = Place::new();
    let mut command = place.fencelock(&["run", "a", "b", "--", "sleep", "1000"]);
    let command = Running::start(command.stderr(Stdio::piped())).begun();
    assert_eq!(ended(&mut place.fencelock(&["break", "b", "--reason", "stuck", "--yes"])).0, 0);
    let output = command.end();
    assert_eq!(code(&output), 76);
    let said = stderr(&output);
    assert!(said.contains("the lock b in") && said.contains("was broken by pid") && said.contains("stuck"), "{said}");
    assert!(place.contenders("a").is_empty());
}

#[test]
fn names_that_cannot_be_taken_together_are_refused() {
    let place = Place::new();
    let many: Vec<_> = (0..101).map(|name| format!("n{name}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    for (options, said) in [
        (&["a", "b", "a"][..], "the lock a is named twice"),
        (&["--shared", "a", "b"], "take one name"),
        (&["--exclusive", "a", "b"], "take one name"),
        (&["--permits", "1/2", "a", "b"], "take one name"),
        (&many, "101 locks are named; a command takes 100 at most"),
        (&[], "NAME"),
    ] {
        let (code, text) = ended(&mut place.run(options, "true"));
        assert_eq!(code, 64, "{text}");
        assert!(text.contains(said), "{text}");
    }
    assert_eq!(ended(&mut place.run(&many[..100], "true")), (0, String::new()));
}
