//! A configuration file that gives each name its store.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use fencelock_testbed::redis::shared;

use crate::common::http::{Served, ask, token};
use crate::common::{Place, Running, code, ended, output, stderr, stdout, until};

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
    let (code, said) = ended(&mut fencelock(&place, &["bench"]));
    assert!(code == 64 && said.contains("a store for each name") && said.contains("--store"), "{said}");
}

#[test]
fn the_list_has_all_stores_and_each_row_names_its_store() {
    let place = place(TWO);
    let store = |name: &str| format!("file://{}/{name}", place.directory.path().display());
    for name in ["pay/job", "job"] {
        assert_eq!(ended(&mut fencelock(&place, &["run", "--slot", "a", name, "--", "true"])), (0, String::new()));
    }
    let script = "for verb in 'ls' 'ls --json' 'top --once' 'jobs' 'jobs --json' 'jobs job pay/job' 'doctor --json'
        do \"$0\" $verb; echo ---; done";
    let mut both = fencelock(&place, &["run", "pay/7", "--", "sh", "-c"]);
    both.args(["\"$0\" run stock -- sh -c \"$1\" \"$0\"", crate::common::PROGRAM, script]);
    let done = output(&mut both);
    let text = stdout(&done);
    let parts: Vec<_> = text.split("---\n").collect();
    let row = |part: usize, name: &str| parts[part].lines().find(|line| line.starts_with(name)).unwrap_or_default();
    for part in [0, 2] {
        assert!(parts[part].lines().next().unwrap().ends_with("STORE"), "{text}");
        for (name, of) in [("pay/7 ", "safe"), ("stock ", "fast")] {
            assert!(row(part, name).ends_with(&store(of)), "{text}");
        }
    }
    for part in [3, 5] {
        for (name, of) in [("pay/job ", "safe"), ("job ", "fast")] {
            assert!(row(part, name).contains("succeeded") && row(part, name).ends_with(&store(of)), "{text}");
        }
    }
    for (part, names) in [(1, ["stock", "pay/7"]), (4, ["job", "pay/job"])] {
        let json: serde_json::Value = serde_json::from_str(parts[part]).unwrap();
        let listed: Vec<_> = json.as_array().unwrap().iter().map(|row| (&row["name"], &row["store"])).collect();
        let expected = [(names[0].into(), store("fast").into()), (names[1].into(), store("safe").into())];
        assert_eq!(listed, expected.iter().map(|(name, store)| (name, store)).collect::<Vec<_>>(), "{text}");
    }
    let reports: serde_json::Value = serde_json::from_str(parts[6]).unwrap();
    assert_eq!((&reports[0]["store"], &reports[1]["store"]), (&store("fast").into(), &store("safe").into()), "{text}");
    fs::remove_dir_all(place.path("safe")).unwrap();
    let listed = output(&mut fencelock(&place, &["run", "stock", "--", crate::common::PROGRAM, "ls"]));
    assert!(code(&listed) == 69 && stdout(&listed).contains("stock "), "{}{}", stdout(&listed), stderr(&listed));
    assert!(stderr(&listed).contains("safe is not there"), "{}", stderr(&listed));
}

#[test]
fn stores_of_one_server_that_an_option_sets_apart_are_listed_and_counted_apart() {
    let server = shared().url_with("prefix=one");
    let place = place(&format!(
        "[routes]\n\"a\" = \"{server}\"\n\"**\" = \"{}\"\n",
        server.replace("prefix=one", "prefix=two")
    ));
    let program = crate::common::PROGRAM;
    let ls = output(&mut fencelock(&place, &["run", "a", "--", program, "run", "b", "--", program, "ls", "--json"]));
    let listed: serde_json::Value = serde_json::from_slice(&ls.stdout).unwrap();
    let of = |name: &str| listed.as_array().unwrap().iter().find(|row| row["name"] == name).unwrap()["store"].clone();
    let name = |prefix: &str| format!("{}?prefix={prefix}", server.split('?').next().unwrap());
    assert_eq!((of("a"), of("b")), (name("one").into(), name("two").into()), "{}", stderr(&ls));
    let mut command = fencelock(&place, &["serve", "--every", "20ms", "--listen", "127.0.0.1:0"]);
    let served = Served::of(&mut command, &name("one"));
    for prefix in ["one", "two"] {
        let line = format!("fencelock_store_up{{store=\"{}\"}} 1\n", name(prefix));
        until(&line, || served.get("/metrics").body.contains(&line).then_some(()));
    }
}

#[test]
fn the_page_the_figures_and_the_json_of_serve_are_of_all_stores() {
    let place = place(TWO);
    let store = |name: &str| format!("file://{}/{name}", place.directory.path().display());
    let hold = |name: &str, url: &str| {
        let mut command = fencelock(&place, &["--store", url, "run", name, "--", "cat"]);
        let holder = Running::start(command.stdin(Stdio::piped()));
        until("it is held", || {
            let shown = output(&mut fencelock(&place, &["--store", url, "show", name]));
            stdout(&shown).contains("holder").then_some(())
        });
        holder
    };
    // A name that a program with other routes holds in another store is seen in both.
    let _holders = [hold("pay/7", &store("safe")), hold("pay/7", &store("fast")), hold("stock", &store("fast"))];
    let (token, file) = token(&place);
    let mut command = fencelock(&place, &["serve", "--every", "20ms", "--listen", "127.0.0.1:0"]);
    let served = Served::of(command.args(["--allow-break", "--token-file", &file]), &store("fast"));
    let bearer = format!("Bearer {token}");
    let with = [("Authorization", bearer.as_str())];
    let get = |path: &str| ask(served.address, "GET", path, &with, "");
    let figure = |of: &str, count: u32| {
        let line = format!("fencelock_store_locks{{store=\"{}\",class=\"other\"}} {count}\n", store(of));
        until(&line, || get("/metrics").body.contains(&line).then_some(()));
    };
    figure("safe", 1);
    figure("fast", 2);
    let text = get("/metrics").body;
    assert_eq!(text.matches("# TYPE fencelock_store_locks gauge").count(), 1, "{text}");
    let listed = get("/api/locks?contains=pay").json();
    let stores: Vec<_> = listed["locks"].as_array().unwrap().iter().map(|row| row["store"].as_str().unwrap()).collect();
    assert_eq!((stores, served.get("/healthz").status), (vec![&*store("fast"), &*store("safe")], 200));
    let request =
        |of: &str| get(&format!("/api/locks/pay%2F7?store={}", store(of))).json()["contenders"][0]["request"].clone();
    assert_ne!(request("safe"), request("fast"));
    let order = serde_json::json!({ "request": request("safe"), "reason": "stuck" });
    assert_eq!(served.post("/api/locks/pay%2F7/break", &with, &order.to_string()).status, 400, "which store?");
    let order = serde_json::json!({ "store": store("safe"), "request": request("safe"), "reason": "stuck" });
    assert_eq!(served.post("/api/locks/pay%2F7/break", &with, &order.to_string()).status, 200);
    figure("safe", 0);
    figure("fast", 2);
}

#[test]
fn a_name_that_moves_is_held_in_its_old_store_and_in_its_new_one() {
    let place = place(
        "[routes]\n\"**\" = \"file://{}/old\"\n\"pay/**\" = { from = \"file://{}/old\", to = \"file://{}/new\" }\n",
    );
    let store = |name: &str| format!("file://{}/{name}", place.directory.path().display());
    for name in ["old", "new"] {
        // A client that still uses the old configuration, or has finished moving. 73 means that this command holds the
        // lock.
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
