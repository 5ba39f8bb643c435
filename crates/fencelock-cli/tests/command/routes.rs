//! A configuration file that gives each name its store.

use std::fs;

use crate::common::{Place, code, ended, output, stderr, stdout};

/// A place whose store no variable names, with this configuration; `{}` is its directory.
fn place(routes: &str) -> Place {
    let place = Place::new();
    let directory = place.directory.path().display().to_string();
    fs::write(place.path("fencelock.toml"), routes.replace("{}", &directory)).unwrap();
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
