//! Every verb with `redis:`, `rediss:` and `redis+unix:`, against real servers.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Place, Running, code, ended, is_alive, output, stderr, stdout, until, written};
use fencelock_testbed::redis::{Server, Settings, Tls, shared};
use fencelock_testbed::{Port, Proxy, Way};
use nix::sys::signal::Signal;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// A session that no slowness of a test ends, in a database of the test's own.
fn place() -> Place {
    Place::with_store(format!("{}?ttl_ms=60000", shared().url()))
}

/// `run` with its exit codes and tokens, `ls`, `show`, `break` and `bench`, all on this store.
fn every_verb_works(place: &Place) {
    let told = || {
        let told = output(&mut place.run(&["job/{x}"], "echo $FENCELOCK_NAME $FENCELOCK_TOKEN"));
        assert_eq!((code(&told), stderr(&told)), (0, String::new()));
        stdout(&told).trim_end().strip_prefix("job/{x} ").unwrap().parse::<i64>().unwrap()
    };
    assert!(told() < told(), "tokens rise");
    assert_eq!(ended(&mut place.run(&["job"], "exit 3")), (3, String::new()));
    place.refuses_a_busy_lock_with_its_holder_named();
    let holder = place.holder("another");
    let listed = stdout(&output(&mut place.fencelock(&["ls"])));
    assert!(listed.contains("another"), "{listed}");
    let shown = stdout(&output(&mut place.fencelock(&["show", "another"])));
    assert!(shown.contains("holder") && shown.contains("to test"), "{shown}");
    let token = place.contenders("another")[0]["token"].as_str().unwrap().to_owned();
    let command = ["break", "another", "--reason", "stuck", "--yes", "--token", &token];
    assert_eq!(ended(&mut place.fencelock(&command)), (0, String::new()));
    assert_eq!(holder.code(), 76);
    let figures = drilled(place, "8", "40");
    assert_eq!((figures["exact"].as_bool(), figures["overlaps"].as_u64()), (Some(true), Some(0)), "{figures}");
    assert_eq!(place.contenders("another").len(), 0);
}

/// What `bench` says of so many workers and sections.
fn drilled(place: &Place, workers: &str, sections: &str) -> serde_json::Value {
    let drilled = output(&mut place.fencelock(&["bench", "--workers", workers, "--sections", sections, "--json"]));
    assert_eq!((code(&drilled), stderr(&drilled)), (0, String::new()));
    serde_json::from_str(&stdout(&drilled)).unwrap()
}

#[test]
fn run_does_on_redis_what_it_does_elsewhere() {
    let place = place();
    for (script, expected) in [("exit 3", 3), ("kill -TERM $$", 143)] {
        assert_eq!(ended(&mut place.run(&["job"], script)), (expected, String::new()), "{script}");
    }
    assert_eq!(ended(&mut place.run(&["--max-hold", "300ms", "--quiet", "job"], "exec sleep 600")).0, 76);
    assert_eq!(ended(place.fencelock(&["--require-store"]).args(["run", "job", "--", "true"])), (0, String::new()));
    let file = place.path("plain");
    fs::write(&file, "x").unwrap();
    for (program, expected) in [(file.to_str().unwrap(), 126), ("no-such-command", 127)] {
        let (code, text) = ended(&mut place.fencelock(&["run", "job", "--", program]));
        assert_eq!((code, text.contains(program), text.lines().count()), (expected, true, 1), "{text}");
    }
    assert_eq!(place.contenders("job").len(), 0);
}

#[test]
fn every_verb_works_in_a_database_of_its_own() {
    every_verb_works(&place());
}

#[test]
fn every_verb_works_over_a_socket_file() {
    let server = Server::start(Settings { password: Some("s3cret".to_owned()), ..Settings::default() }).unwrap();
    let url = |password: &str| format!("redis+unix://:{password}@{}?db=3&ttl_ms=60000", server.socket().display());
    every_verb_works(&Place::with_store(url("s3cret")));
    let (code, text) = ended(&mut Place::with_store(url("wr0ng")).run(&["job"], "true"));
    assert_eq!((code, text.contains("wr0ng")), (77, false), "{text}");
}

/// Writes an authority to `ca.pem`, and what it says of a server here to `server.key` and `server.crt`.
fn certificates(directory: &Path) {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "an authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    fs::write(directory.join("ca.pem"), authority.pem()).unwrap();
    fs::write(directory.join("server.key"), key.serialize_pem()).unwrap();
    fs::write(directory.join("server.crt"), certificate.pem()).unwrap();
}

#[test]
fn every_verb_works_over_tls() {
    let directory = tempfile::tempdir().unwrap();
    certificates(directory.path());
    let [certificate, key, trusted] = ["server.crt", "server.key", "ca.pem"].map(|file| directory.path().join(file));
    let ca = trusted.display().to_string();
    let tls = Some(Tls { certificate, key, trusted, asks_clients: false });
    let server = Server::start(Settings { tls, ..Settings::default() }).unwrap();
    let address = server.secure_address().unwrap();
    every_verb_works(&Place::with_store(format!("rediss://{address}?ttl_ms=60000&tls_ca={ca}")));
    // Whom nobody vouches for is not spoken to.
    let stranger = Place::with_store(format!("rediss://{address}?ttl_ms=3000"));
    let (code, text) = ended(&mut stranger.run(&["--connect-wait", "0", "job"], "true"));
    assert_eq!((code, text.contains(&address.to_string())), (69, true), "{text}");
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
    assert_eq!(fs::read_to_string(place.path("order")).unwrap(), "0\n1\n2\n");
    assert_eq!(stdout(&output(&mut place.fencelock(&["ls", "--json"]))), "[]\n");
}

#[test]
fn those_who_share_run_together_and_are_shown_as_what_they_are() {
    place().lets_those_who_share_run_together();
}

#[test]
fn a_broken_holder_is_told_why_and_the_record_is_shown() {
    place().tells_a_broken_holder_why_and_shows_the_record();
}

#[test]
fn a_command_whose_lock_the_server_forgot_is_stopped() {
    let server = Server::start(Settings::default()).unwrap();
    let place = Place::with_store(format!("{}?ttl_ms=4000", server.url()));
    let script = "trap 'echo told >> told; exit 0' TERM; echo > ready; while :; do sleep 0.02; done";
    let running = Running::start(place.run(&["--grace-after-loss", "60s", "job"], script).stderr(Stdio::piped()));
    written(&place.path("ready"));
    server.ask(&["FLUSHALL"]).unwrap();
    let output = running.end();
    assert_eq!(code(&output), 76);
    assert!(stderr(&output).contains("lost"), "{}", stderr(&output));
    assert_eq!(written(&place.path("told")), "told\n");
}

#[test]
fn a_command_whose_lock_cannot_be_renewed_is_gone_before_the_next_one_starts() {
    let (server, database) = (shared().address(), shared().database());
    let proxy = Proxy::start(server).unwrap();
    let at = |address| Place::with_store(format!("redis://{address}/{database}?ttl_ms=4000"));
    let (place, rival) = (at(proxy.address()), at(server));
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
    let log = fs::read_to_string(&log).unwrap();
    assert!(log.starts_with("started\nalive\n") && log.ends_with("alive\nrival\n"), "killed in time");
}

#[test]
fn a_killed_fencelock_takes_its_command_along_while_the_lock_is_still_held() {
    let place = place();
    let script = "trap '' TERM HUP; echo $$ > pid; while :; do read line; done";
    let mut running = Running::start(place.run(&["job"], script).stdin(Stdio::piped()));
    let child = written(&place.path("pid")).trim().parse().unwrap();
    running.signal(Signal::SIGKILL);
    assert_eq!(running.0.take().unwrap().wait().unwrap().code(), None);
    until("the command is gone", || (!is_alive(child)).then_some(()));
    // The session lives for a minute; nobody starts before the end of it.
    assert_eq!(place.contenders("job").len(), 1);
    assert_eq!(ended(&mut place.run(&["--try", "--quiet", "job"], "true")).0, 75);
}

#[test]
fn the_drill_of_a_hundred_workers_ends_exact() {
    let figures = drilled(&place(), "100", "400");
    assert_eq!((figures["sections"].as_u64(), figures["counter"].as_u64()), (Some(400), Some(400)));
    assert_eq!((figures["exact"].as_bool(), figures["overlaps"].as_u64()), (Some(true), Some(0)));
    assert_eq!(figures["tokens_not_rising"].as_u64(), Some(0));
}

#[test]
fn stores_lists_redis_and_its_options() {
    let listed = stdout(&output(&mut Place::new().fencelock(&["stores", "--json"])));
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    for scheme in ["redis", "rediss", "redis+unix"] {
        let store = listed.as_array().unwrap().iter().find(|store| store["scheme"] == scheme).unwrap();
        let order = &store["capability"]["order"];
        assert_eq!((&store["compiled_in"], order), (&true.into(), &"first come, first served".into()), "{store}");
        assert!(store["options"].as_array().unwrap().contains(&"layout".into()), "{store}");
    }
}

#[test]
fn a_server_that_is_not_there_ends_with_69_and_no_password_is_shown() {
    let nobody = Port::reserve().unwrap().address().to_string();
    let place = Place::with_store(format!("redis://:s3cret@{nobody}?ttl_ms=2000"));
    for arguments in [&["run", "--connect-wait", "0", "job", "--", "true"][..], &["ls"], &["show", "job"], &["bench"]] {
        let (code, text) = ended(&mut place.fencelock(arguments));
        assert_eq!(code, 69, "{arguments:?}: {text}");
        assert!(text.contains(&nobody) && text.contains("FENCELOCK_STORE") && !text.contains("s3cret"), "{text}");
    }
}

#[test]
fn a_wrong_password_is_refused_with_77_by_every_verb_and_never_shown() {
    let server = Server::start(Settings { password: Some("right".to_owned()), ..Settings::default() }).unwrap();
    let wrong = Place::with_store(format!("redis://:s3cret@{}", server.address()));
    for arguments in [&["run", "job", "--", "true"][..], &["show", "job"], &["ls"]] {
        let (code, text) = ended(&mut wrong.fencelock(arguments));
        assert_eq!((code, text.contains("s3cret")), (77, false), "{arguments:?}: {text}");
    }
}

#[test]
fn what_is_in_a_server_without_memory_is_shown_and_broken() {
    let server = Server::start(Settings::default()).unwrap();
    let place = Place::with_store(format!("{}?ttl_ms=60000", server.url()));
    let holder = place.holder("job");
    server.ask(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    let listed = output(&mut place.fencelock(&["ls"]));
    assert!(code(&listed) == 0 && stdout(&listed).contains("to test"), "{}", stderr(&listed));
    let shown = output(&mut place.fencelock(&["show", "job"]));
    assert!(code(&shown) == 0 && stdout(&shown).contains("to test"), "{}", stderr(&shown));
    let (refused, said) = ended(&mut place.run(&["--try", "other"], "true"));
    assert_eq!((refused, said.contains("maxmemory")), (71, true), "{said}");
    let broken = ended(&mut place.fencelock(&["break", "job", "--reason", "stuck", "--yes"]));
    assert_eq!((broken, holder.code()), ((0, String::new()), 76));
}

#[test]
fn wrong_urls_are_wrong_usage() {
    let server = shared().address();
    for (url, said) in [
        (format!("redis://{server}/x"), "redis"),
        (format!("redis://{server}?no_such=1"), "no_such"),
        (format!("redis://{server}?layout=redisson"), "layout"),
        (format!("rediss://{server}?tls_ca=/no/such/file"), "/no/such/file"),
        ("redis+unix://host/path".to_owned(), "whole path"),
    ] {
        let (code, text) = ended(&mut Place::with_store(&url).run(&["job"], "true"));
        assert_eq!((code, text.contains(said), text.lines().count()), (64, true, 1), "{url}: {text}");
    }
}

#[test]
fn a_queue_that_cannot_be_read_is_a_row_and_the_others_are_listed() {
    let place = place();
    let url = place.url();
    let by_hand = |arguments: &[&str]| {
        let mut command = Command::new("redis-cli");
        stdout(&output(command.args(["-u", url.split('?').next().unwrap(), "--raw"]).args(arguments)))
    };
    // Of two in a queue there is a key of its own.
    let _holder = place.holder("bad");
    let _waiter = Running::start(&mut place.run(&["--quiet", "bad"], "true"));
    place.queued("bad", 2);
    let queue = by_hand(&["KEYS", "*:queue:bad"]);
    assert_eq!(by_hand(&["SET", queue.trim_end(), "what no fencelock wrote"]), "OK\n", "{queue}");
    let holder = place.holder("good");
    let listed = output(&mut place.fencelock(&["ls"]));
    let (table, said) = (stdout(&listed), stderr(&listed));
    let lines: Vec<_> = table.lines().collect();
    assert!(lines[1].starts_with("bad") && lines[1].contains("unreadable"), "{table}{said}");
    assert!(lines[2].starts_with("good") && lines[2].contains(&format!("pid {}", holder.pid())), "{table}");
    let alone = code(&output(&mut place.fencelock(&["show", "bad"])));
    assert_eq!((code(&listed), said.contains("not every lock can be read, bad")), (alone, true), "{said}");
    assert_ne!(alone, 0);
    let listed = stdout(&output(&mut place.fencelock(&["ls", "--json"])));
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert!(listed[0]["error"].is_string() && listed[1]["error"].is_null(), "{listed}");
}
