//! A configuration file that gives each name its store.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::common::{Place, code, ended, output, stderr, stdout};

/// A place whose store no variable names, with this configuration; `{}` is its directory.
fn place(routes: &str) -> Place {
    let place = Place::new();
    let directory = place.directory.path().display().to_string();
    fs::write(place.path("fencelock.toml"), routes.replace("{}", &directory)).unwrap();
    fs::set_permissions(place.path("fencelock.toml"), PermissionsExt::from_mode(0o600)).unwrap();
    place
}

/// `fencelock` there.
fn fencelock(place: &Place, arguments: &[&str]) -> std::process::Command {
    let mut command = place.fencelock(arguments);
    command.env_remove("FENCELOCK_STORE");
    command
}

const TWO: &str = "[routes]\n\"**\" = \"file://{}/fast\"\n\"pay/**\" = \"file://{}/safe\"\n";

#[test]
fn each_name_is_locked_and_shown_in_its_own_store() {
    let place = place(TWO);
    for (name, store) in [("pay/7", "safe"), ("stock", "fast")] {
        let script = format!("\"$0\" --store \"file://$PWD/{store}\" show {name}; \"$0\" show {name}");
        let mut run = fencelock(&place, &["run", name, "--", "sh", "-c", &script, crate::common::PROGRAM]);
        let output = output(&mut run);
        assert_eq!((code(&output), stdout(&output).matches("holder").count()), (0, 2), "{}", stderr(&output));
    }
    assert_eq!(ended(&mut fencelock(&place, &["run", "pay/1", "pay/2", "--", "true"])), (0, String::new()));
    let (code, said) = ended(&mut fencelock(&place, &["run", "stock", "pay/2", "--", "true"]));
    assert!(code == 64 && said.contains("stock and pay/2 different stores"), "{said}");
    let (code, said) = ended(&mut fencelock(&place, &["ls"]));
    assert!(code == 64 && said.contains("a store for each name") && said.contains("--store"), "{said}");
}

#[test]
fn a_name_that_moves_is_held_in_its_old_store_and_in_its_new_one() {
    let place = place(
        "[routes]\n\"**\" = \"file://{}/old\"\n\"pay/**\" = { from = \"file://{}/old\", to = \"file://{}/new\" }\n",
    );
    let store = |name: &str| format!("file://{}/{name}", place.directory.path().display());
    for name in ["old", "new"] {
        // One that is still on the old configuration, or has finished. 73 is that this command holds the lock.
        let script = "for held in \"$FENCELOCK_HELD\" ''; do FENCELOCK_HELD=$held \"$0\" --store \"$1\" run --try -q pay/7 -- true; echo $?; done";
        let mut both =
            fencelock(&place, &["run", "pay/7", "--", "sh", "-c", script, crate::common::PROGRAM, &store(name)]);
        assert_eq!(stdout(&output(&mut both)), "73\n75\n", "{name}");
        let hold = ["--store", &store(name), "run", "pay/7", "--", "sh", "-c"];
        let script = "env -u FENCELOCK_HELD \"$0\" run --try pay/7 -- true".to_owned();
        let mut outer = fencelock(&place, &[&hold[..], &[&script, crate::common::PROGRAM]].concat());
        let (code, said) = ended(&mut outer);
        assert!(code == 75 && said.contains("/old") && said.contains(" and "), "{name}: {said}");
    }
    let script = "echo \"$FENCELOCK_NAME $FENCELOCK_TOKEN\"; \"$0\" --store \"$1\" show --json pay/2";
    let new = store("new");
    let mut run = fencelock(&place, &["run", "pay/2", "pay/1", "--", "sh", "-c", script, crate::common::PROGRAM, &new]);
    let said = stdout(&output(&mut run));
    let (told, json) = said.split_once('{').unwrap();
    let told: Vec<_> = told.split_whitespace().collect();
    let json: serde_json::Value = serde_json::from_str(&format!("{{{json}")).unwrap();
    assert_eq!(told.len(), 4, "a name and a token for each lock: {told:?}");
    assert_eq!((&told[..2], told[3]), (&["pay/1", "pay/2"][..], json["contenders"][0]["token"].as_str().unwrap()));
    let pid = std::process::id().to_string();
    for verb in [&["show", "pay/7"][..], &["acquire", "--pid", &pid, "pay/7"], &["note", "pay/7"]] {
        let (code, said) = ended(&mut fencelock(&place, verb));
        assert!(code == 64 && said.contains("moves the lock pay/7 from") && said.contains("--store"), "{said}");
    }
    for options in [&["--shared"][..], &["--permits", "1/2"], &["--once-per", "1d"]] {
        let (code, said) = ended(&mut fencelock(&place, &[&["run"], options, &["pay/7", "--", "true"]].concat()));
        assert!(code == 64 && said.contains("only mutexes move"), "{said}");
    }
}

#[test]
fn a_name_without_a_route_has_no_store_and_the_default_is_not_taken() {
    let place = place("[routes]\n\"pay/**\" = \"file://{}/safe\"\n");
    let (code, said) = ended(&mut fencelock(&place, &["run", "stock", "--", "true"]));
    assert!(code == 78 && said.contains("fencelock.toml") && said.contains("name stock"), "{said}");
}

#[test]
fn the_file_of_an_option_wins_over_the_variable_and_has_to_be_there() {
    let place = place("store = \"file://{}/other\"\n");
    let routes = TWO.replace("{}", &place.directory.path().display().to_string());
    fs::write(place.path("routes.toml"), routes).unwrap();
    let run = |config: &str| ended(&mut place.fencelock(&["--config", config, "run", "pay/7", "--", "true"]));
    assert_eq!(run("routes.toml"), (0, String::new()));
    assert!(place.path("safe").exists() && !place.path("store").exists() && !place.path("other").exists());
    for config in ["none.toml", "empty.toml"] {
        fs::write(place.path("empty.toml"), "# nothing\n").unwrap();
        let (code, said) = run(config);
        assert!(code == 78 && said.contains(config), "{said}");
    }
    let both = ended(&mut place.fencelock(&["--config", "a", "--store", "file:///x", "ls"]));
    assert!(both.0 == 64 && both.1.contains("--store"), "{}", both.1);
}

#[test]
fn routes_that_are_wrong_are_named_and_urls_never_repeated() {
    for (routes, said) in [
        ("routes = \"redis://me:s3cret@h\"", "routes is a table"),
        ("[routes]\npay.x = \"redis://me:s3cret@h\"", "both in quotes"),
        ("[routes]\n\"a\" = 7", "the route \"a\" is no URL"),
        ("[routes]\n\"a\" = \"\"", "the route \"a\" is no URL"),
        ("[routes]\n\"a\" = { from = \"redis://me:s3cret@h\" }", "the route \"a\" is no URL"),
        ("[routes]\n\"a\" = { from = \"redis://me:s3cret@h\", to = 7 }", "the route \"a\" is no URL"),
        ("[routes]\n\"a\" = { from = \"redis://me:s3cret@h\", to = \"redis://me:0ther@h\" }", "to the same store"),
        ("[routes]", "no pattern is given"),
        ("[routes]\npay/** = \"redis://me:s3cret@h\"", "line 2"),
        ("[routes]\n\"a/*\" = \"redis://me:s3cret@h\"\n\"*/b\" = \"redis://h\"", "neither is more specific"),
        ("[routes]\n\"a*\" = \"redis://me:s3cret@h\"", "whole part"),
        ("[routes]\n\"a\" = \"redis://me:s3cret@h\"\n\"a\" = \"redis://h\"", "line 3"),
        ("store = \"redis://me:s3cret@h\"\n[routes]\n\"a\" = \"redis://h\"", "write the store as the route \"**\""),
    ] {
        let place = place(routes);
        let (code, text) = ended(&mut fencelock(&place, &["run", "a", "--", "true"]));
        assert!(code == 78 && text.contains(said) && text.contains("fencelock.toml"), "{routes}: {text}");
        assert!(!text.contains("s3cret"), "{text}");
    }
}
