//! Every verb with `zk:`, against a real server.

mod common;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Stdio;

use common::hand::by_hand;
use common::{Place, Running, code, ended, is_alive, output, stderr, stdout, until, written};
use fencelock_testbed::zookeeper::{Ensemble, Settings, shared};
use fencelock_testbed::{Port, Proxy, Way};
use nix::sys::signal::Signal;

/// A session that no slowness of a test ends.
fn place() -> Place {
    Place::with_store(format!("{}&ttl_ms=60000", shared().url()))
}

#[test]
fn run_does_on_zookeeper_what_it_does_elsewhere() {
    let place = place();
    let told = || {
        let told = output(&mut place.run(&["job/x"], "echo $FENCELOCK_NAME $FENCELOCK_TOKEN"));
        assert_eq!((code(&told), stderr(&told)), (0, String::new()));
        stdout(&told).trim_end().strip_prefix("job/x ").unwrap().parse::<i64>().unwrap()
    };
    assert!(told() < told(), "tokens rise");
    for (script, expected) in [("exit 3", 3), ("kill -TERM $$", 143)] {
        assert_eq!(ended(&mut place.run(&["job"], script)), (expected, String::new()), "{script}");
    }
    assert_eq!(ended(&mut place.run(&["--max-hold", "300ms", "--quiet", "job"], "exec sleep 600")).0, 76);
    assert_eq!(ended(place.fencelock(&["--require-store"]).args(["run", "job", "--", "true"])), (0, String::new()));
    let (code, text) = ended(&mut place.run(&["job"], "exec no-such-command"));
    assert_eq!((code, text.contains("no-such-command")), (127, true), "{text}");
    assert_eq!(place.contenders("job").len(), 0);
}

#[test]
fn a_program_that_cannot_run_is_named_and_the_lock_given_back() {
    let place = place();
    let file = place.path("plain");
    std::fs::write(&file, "x").unwrap();
    for (program, expected) in [(file.to_str().unwrap(), 126), ("no-such-command", 127)] {
        let (code, text) = ended(&mut place.fencelock(&["run", "job", "--", program, "--argument"]));
        assert_eq!(code, expected);
        assert!(text.starts_with("fencelock: cannot execute ") && text.contains(program), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    assert_eq!(ended(&mut place.run(&["--try", "job"], "true")).0, 0);
}

#[test]
fn a_busy_lock_is_refused_with_its_holder_named_and_nothing_is_left_behind() {
    place().refuses_a_busy_lock_with_its_holder_named();
}

#[test]
fn waiters_run_in_the_order_of_their_arrival_and_are_shown_in_it() {
    let place = place();
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
    assert_eq!(std::fs::read_to_string(place.path("order")).unwrap(), "0\n1\n2\n");
    assert_eq!(stdout(&output(&mut place.fencelock(&["ls", "--json"]))), "[]\n");
}

#[test]
fn a_command_whose_node_is_deleted_is_stopped() {
    let parent = shared().parent();
    let place = Place::with_store(format!("zk://{}{parent}?tick_ms=500&ttl_ms=60000", shared().address()));
    let script = "trap 'echo told >> told; exit 0' TERM; echo > ready; while :; do sleep 0.02; done";
    let running = Running::start(place.run(&["--grace-after-loss", "60s", "job"], script).stderr(Stdio::piped()));
    written(&place.path("ready"));
    by_hand(async |client| {
        let (children, _) = client.get_children(&format!("{parent}/job")).await.unwrap();
        for child in children {
            client.delete(&format!("{parent}/job/{child}"), None).await.unwrap();
        }
    });
    let output = running.end();
    assert_eq!(code(&output), 76);
    assert!(stderr(&output).contains("lost"), "{}", stderr(&output));
    assert_eq!(written(&place.path("told")), "told\n");
}

#[test]
fn a_command_whose_lock_cannot_be_renewed_is_gone_before_the_next_one_starts() {
    let server = shared().address();
    let proxy = Proxy::start(server).unwrap();
    let url = |server, parent: &str| format!("zk://{server}{parent}?tick_ms=500&ttl_ms=4000");
    let parent = shared().parent();
    let (place, rival) = (Place::with_store(url(proxy.address(), &parent)), Place::with_store(url(server, &parent)));
    let log = place.path("log");
    let script =
        format!("trap '' TERM; echo started >> {0}; while echo alive >> {0}; do sleep 0.02; done", log.display());
    let running = Running::start(place.run(&["job"], &script).stderr(Stdio::piped()));
    until("the command runs", || log.exists().then_some(()));
    let waiting = Running::start(&mut rival.run(&["--quiet", "job"], &format!("echo rival >> {}", log.display())));
    rival.queued("job", 2);
    proxy.hold(Way::Both);
    let output = running.end();
    assert_eq!((code(&output), waiting.code()), (76, 0));
    let said = stderr(&output);
    assert!(
        said.contains("could not be renewed until") && said.contains("the command is stopped before it lapses"),
        "{said}"
    );
    let log = std::fs::read_to_string(&log).unwrap();
    assert!(
        log.starts_with("started\nalive\n") && log.ends_with("alive\nrival\n"),
        "who ignores TERM is killed in time"
    );
}

#[test]
fn a_command_runs_for_as_long_as_renewals_come_through() {
    // With the times that people get who give none. A renewal proves less there than it does elsewhere.
    let place = Place::with_store(format!("zk://{}{}", shared().address(), shared().parent()));
    assert_eq!(ended(&mut place.run(&["--grace", "1h", "job"], "exec sleep 8")), (0, String::new()));
}

/// Starts a command that ignores what can be ignored, and says which process it is.
fn stubborn(place: &Place) -> (Running, i32) {
    let script = "trap '' TERM HUP; echo $$ > pid; while :; do read line; done";
    let running = Running::start(place.run(&["job"], script).stdin(Stdio::piped()));
    (running, written(&place.path("pid")).trim().parse().unwrap())
}

#[test]
fn a_killed_fencelock_takes_its_command_along_while_the_lock_is_still_held() {
    let place = place();
    let (mut running, child) = stubborn(&place);
    running.signal(Signal::SIGKILL);
    assert_eq!(running.0.take().unwrap().wait().unwrap().code(), None);
    until("the command is gone", || (!is_alive(child)).then_some(()));
    // The session lives for a minute; nobody starts before the end of it.
    assert_eq!(place.contenders("job").len(), 1);
    assert_eq!(ended(&mut place.run(&["--try", "--quiet", "job"], "true")).0, 75);
}

#[test]
fn a_command_whose_fencelock_died_before_it_began_does_not_begin() {
    let place = place();
    // This test is not the process that it is told to be bound to.
    let (code, text) = ended(&mut place.fencelock(&["bound", "1", "--", "touch", "begun"]));
    assert_eq!((code, text.as_str(), place.path("begun").exists()), (137, "", false));
}

#[test]
fn the_drill_of_a_hundred_workers_ends_exact() {
    let arguments = ["bench", "--workers", "100", "--sections", "400", "--json"];
    let drilled = output(&mut place().fencelock(&arguments));
    assert_eq!((code(&drilled), stderr(&drilled)), (0, String::new()));
    let figures: serde_json::Value = serde_json::from_str(&stdout(&drilled)).unwrap();
    assert_eq!((figures["sections"].as_u64(), figures["counter"].as_u64()), (Some(400), Some(400)));
    assert_eq!((figures["exact"].as_bool(), figures["overlaps"].as_u64()), (Some(true), Some(0)));
    assert_eq!(figures["tokens_not_rising"].as_u64(), Some(0));
}

#[test]
fn stores_lists_zookeeper_and_its_options() {
    let listed = stdout(&output(&mut Place::new().fencelock(&["stores", "--json"])));
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let zk = listed.as_array().unwrap().iter().find(|store| store["scheme"] == "zk").unwrap();
    assert_eq!(
        (&zk["compiled_in"], &zk["capability"]["order"]),
        (&true.into(), &"first come, first served".into()),
        "{zk}"
    );
    assert!(zk["options"].as_array().unwrap().contains(&"layout".into()), "{zk}");
}

/// Answers every connection with `text`, or with nothing at all.
fn no_zookeeper(text: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let _ = connection.write_all(text.as_bytes());
            std::thread::spawn(move || connection.read_to_end(&mut Vec::new()));
        }
    });
    address.to_string()
}

#[test]
fn a_server_that_is_not_there_or_is_something_else_ends_with_69() {
    let nobody = Port::reserve().unwrap().address().to_string();
    let web = no_zookeeper("HTTP/1.1 400 Bad Request\r\nServer: web\r\nConnection: close\r\n\r\n");
    let silent = no_zookeeper("");
    for server in [nobody, web, silent] {
        let place = Place::with_store(format!("zk://me:s3cret@{server}/locks?tick_ms=100&ttl_ms=2000"));
        for arguments in
            [&["run", "--connect-wait", "0", "job", "--", "true"][..], &["ls"], &["show", "job"], &["bench"]]
        {
            let (code, text) = ended(&mut place.fencelock(arguments));
            assert_eq!(code, 69, "{arguments:?}: {text}");
            assert!(text.contains(&server) && text.contains("FENCELOCK_STORE"), "{text}");
            let lines: Vec<_> = text.lines().collect();
            assert!(!text.contains("s3cret") && lines.len() == 2 && lines[0].contains("in the clear"), "{text}");
        }
    }
}

#[test]
fn a_wrong_password_is_refused_with_77_and_never_shown() {
    let (server, parent) = (shared().address(), shared().parent());
    let with = |who: &str| Place::with_store(format!("zk://{who}@{server}{parent}?tick_ms=500"));
    let (right, wrong) = (with("me:right"), with("me:s3cret"));
    let _holder = right.holder("job");
    for arguments in [&["run", "job", "--", "true"][..], &["run", "another", "--", "true"], &["show", "job"], &["ls"]] {
        let (code, text) = ended(&mut wrong.fencelock(arguments));
        assert_eq!(code, 77, "{text}");
        assert!(text.contains("access control lists") && !text.contains("s3cret"), "{text}");
        assert_eq!(text.matches("the access control list does").count(), 1, "said once: {text}");
    }
    assert_eq!(right.contenders("job").len(), 1);
}

#[test]
fn wrong_urls_and_what_zookeeper_does_not_offer_are_wrong_usage() {
    let (server, tick) = (shared().address(), Settings::default().tick_ms);
    for (url, said) in [
        ("zk://".to_owned(), "zk"),
        (format!("zk://{server}"), "name the node under which the locks are"),
        (format!("zk://{server}/a//b"), "no part of a path"),
        (format!("zk://{server}/l?layout=etcd"), "curator kazoo shared"),
        (format!("zk://{server}/l?handover=fast"), "watch"),
        (format!("zk://{server}/l?no_such=1"), "no_such"),
        (format!("zk://{server}/l?tick_ms={tick}&ttl_ms=1000"), "2s"),
        (format!("zk://me@{server}/l"), "user:password"),
        (format!("zks://{server}/l?tls_ca=/no/such/file"), "/no/such/file"),
    ] {
        let (code, text) = ended(&mut Place::with_store(&url).run(&["job"], "true"));
        assert_eq!(code, 64, "{url}: {text}");
        assert!(text.contains(said) && text.lines().count() == 1, "{url}: {text}");
    }
    let place = Place::with_store(format!("{}&layout=shared", shared().url()));
    for options in [["--shared", "job"], ["--exclusive", "job"], ["--permits=1/3", "job"]] {
        let (code, text) = ended(&mut place.run(&options, "true"));
        assert_eq!((code, text.contains("mutex")), (64, true), "{text}");
    }
}

#[test]
fn those_who_share_run_together_and_are_shown_as_what_they_are() {
    for options in ["", "&layout=kazoo"] {
        Place::with_store(format!("{}&ttl_ms=60000{options}", shared().url())).lets_those_who_share_run_together();
    }
}

#[test]
fn a_broken_holder_is_told_why_and_the_record_is_shown() {
    place().tells_a_broken_holder_why_and_shows_the_record();
}

#[test]
fn what_the_library_warns_of_is_said_as_often_as_was_asked() {
    let (server, parent) = (shared().address(), shared().parent());
    let place = Place::with_store(format!("zk://me:s3cret@{server}{parent}?tick_ms=500"));
    let said = |options: &[&str], level: Option<&str>| {
        let mut command = place.run(options, "true");
        if let Some(level) = level {
            command.env("FENCELOCK_LOG", level);
        }
        let (code, said) = ended(&mut command);
        assert!(!said.contains("s3cret"), "{said}");
        (code, said)
    };
    let (code, warned) = said(&["job"], None);
    assert_eq!((code, warned.lines().count()), (0, 1), "{warned}");
    assert!(warned.starts_with("fencelock: warn: the password is sent in the clear"), "{warned}");
    for (options, level) in
        [(&["--quiet", "job"][..], None), (&["--log-level", "off", "job"], None), (&["job"], Some("error"))]
    {
        assert_eq!(said(options, level), (0, String::new()), "{options:?}");
    }
    assert!(
        said(&["--quiet", "--log-level", "warn", "job"], Some("off")).1.contains("in the clear"),
        "the option wins"
    );
    let (code, wrong) = said(&["job"], Some("loud"));
    assert_eq!((code, wrong.contains("FENCELOCK_LOG") && wrong.contains("off, error, warn")), (78, true), "{wrong}");
}

#[test]
fn the_end_of_a_locks_numbers_is_warned_of_by_those_who_take_it_and_those_who_look() {
    let server = Ensemble::start(Settings::default().with("digest.enabled", "false")).unwrap();
    let place = Place::with_store(format!("{}&ttl_ms=60000", server.url("/locks")));
    let warns = |told: &str, parent: &str| {
        told.contains("half of the numbers") && told.contains("1073741824") && told.contains(parent)
    };
    assert_eq!(ended(&mut place.run(&["job"], "true")).0, 0);
    server.server(0).set_sequence(&["/locks/job"], 1 << 30).unwrap();
    let (ended_with, text) = ended(&mut place.run(&["other"], "true"));
    assert_eq!((ended_with, text.as_str()), (0, ""), "another lock has numbers of its own");
    let (ended_with, text) = ended(&mut place.run(&["job"], "true"));
    assert!(ended_with == 0 && warns(&text, "/locks/job"), "{text}");
    let _holder = place.holder("job");
    let shown = output(&mut place.fencelock(&["show", "job"]));
    assert!(code(&shown) == 0 && stderr(&shown).contains("half of the numbers"), "{}", stderr(&shown));
}
