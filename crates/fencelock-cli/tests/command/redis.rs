//! Behaviour that only `redis:` has, and every verb on `rediss:` and `redis+unix:`, against real servers.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use crate::common::{Place, Running, code, ended, output, stderr, stdout, until, written};
use fencelock_testbed::Port;
use fencelock_testbed::redis::{Server, Settings, Tls, shared, shared_cluster, shared_watched};
use nix::sys::signal::Signal;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// A session that no slowness of a test ends, in a database of the test's own.
fn place() -> Place {
    Place::with_store(shared().url_with("ttl_ms=60000"))
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

/// The JSON of `bench` with this many workers and sections.
fn drilled(place: &Place, workers: &str, sections: &str) -> serde_json::Value {
    let drilled = output(&mut place.fencelock(&["bench", "--workers", workers, "--sections", sections, "--json"]));
    assert_eq!((code(&drilled), stderr(&drilled)), (0, String::new()));
    serde_json::from_str(&stdout(&drilled)).unwrap()
}

#[test]
fn every_verb_works_over_a_socket_file() {
    let server = Server::start(Settings { password: Some("s3cret".to_owned()), ..Settings::default() }).unwrap();
    let url = |password: &str| format!("redis+unix://:{password}@{}?db=3&ttl_ms=60000", server.socket().display());
    every_verb_works(&Place::with_store(url("s3cret")));
    let (code, text) = ended(&mut Place::with_store(url("wr0ng")).run(&["job"], "true"));
    assert_eq!((code, text.contains("wr0ng")), (77, false), "{text}");
}

#[test]
fn every_verb_works_by_way_of_sentinels_and_doctor_asks_the_primary() {
    let watched = shared_watched();
    let place = Place::with_store(watched.url(&watched.namespace().unwrap(), "ttl_ms=60000"));
    every_verb_works(&place);
    let doctor = output(&mut place.fencelock(&["doctor"]));
    let said = stdout(&doctor);
    assert_eq!((code(&doctor), said.contains("round trip: "), said.contains("appendonly")), (1, true, true), "{said}");
}

#[test]
fn every_verb_works_in_a_cluster_and_doctor_asks_its_nodes() {
    let cluster = shared_cluster();
    let place = Place::with_store(cluster.url(&format!("prefix={}&ttl_ms=60000", cluster.prefix())));
    every_verb_works(&place);
    let doctor = output(&mut place.fencelock(&["doctor"]));
    let said = stdout(&doctor);
    let nodes = cluster.nodes.iter().all(|node| said.contains(&node.address().to_string()));
    // The nodes keep nothing on disk.
    assert_eq!(
        (code(&doctor), said.contains("round trip: "), said.contains("appendonly"), nodes),
        (1, true, true, true),
        "{said}"
    );
}

/// Writes an authority to `ca.pem`, and its identity of a server here to `server.key` and `server.crt`.
pub(crate) fn certificates(directory: &Path) {
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
    // The client refuses a server whose certificate no trusted authority signed.
    let stranger = Place::with_store(format!("rediss://{address}?ttl_ms=3000"));
    let (code, text) = ended(&mut stranger.run(&["--connect-wait", "0", "job"], "true"));
    assert_eq!((code, text.contains(&address.to_string())), (69, true), "{text}");
}

#[test]
fn a_command_whose_lock_the_server_forgot_is_stopped() {
    let server = Server::start(Settings::default()).unwrap();
    let place = Place::with_store(format!("{}?ttl_ms=60000&renew_interval_ms=500", server.url()));
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
fn a_signal_ends_the_command_although_the_server_does_not_take_the_lock_back() {
    let server = Server::start(Settings::default().with("lua-time-limit 20")).unwrap();
    // The request deadline is longer than the patience of this test.
    let place = Place::with_store(format!("{}?ttl_ms=1800000", server.url()));
    let mut command = place.run(&["job"], "echo > ready; read line; exit 3");
    let mut running = Running::start(command.stdin(Stdio::piped()).stderr(Stdio::piped()));
    written(&place.path("ready"));
    server.hands().unwrap().send(&["EVAL", "while true do end", "0"]).unwrap();
    until("the server is busy", || server.ask(&["PING"]).is_err().then_some(()));
    drop(running.0.as_mut().unwrap().stdin.take());
    // A signal before fencelock has seen the end of stdin ends the command.
    until("it ends", || {
        running.signal(Signal::SIGTERM);
        running.0.as_mut().unwrap().try_wait().unwrap()
    });
    let ended = running.end();
    assert!([3, 143].contains(&code(&ended)), "{ended:?}");
    assert!(stderr(&ended).contains("was not given back: we received a signal to end"), "{ended:?}");
    server.hands().unwrap().ask(&["SCRIPT", "KILL"]).unwrap();
}

#[test]
fn a_lock_that_the_server_cannot_give_back_for_the_moment_is_given_back_as_soon_as_it_can() {
    let server = Server::start(Settings::default().with("lua-time-limit 20")).unwrap();
    let place = Place::with_store(format!("{}?ttl_ms=600000", server.url()));
    // The command's own exit code says nothing about this lock, even if an inner fencelock reports the loss of another one.
    for code_then in [3, 76] {
        let script = format!("echo > ready; read line; echo > ended; exit {code_then}");
        let running = Running::start(place.run(&["job"], &script).stdin(Stdio::piped()));
        written(&place.path("ready"));
        server.hands().unwrap().send(&["EVAL", "while true do end", "0"]).unwrap();
        until("the server is busy", || server.ask(&["PING"]).is_err().then_some(()));
        let ending = thread::spawn(move || running.end());
        written(&place.path("ended"));
        server.hands().unwrap().ask(&["SCRIPT", "KILL"]).unwrap();
        assert_eq!(code(&ending.join().unwrap()), code_then);
        assert_eq!(place.contenders("job").len(), 0);
        for file in ["ready", "ended"] {
            fs::remove_file(place.path(file)).unwrap();
        }
    }
}

#[test]
fn a_server_that_is_not_there_ends_with_69_and_no_password_is_shown() {
    let closed = Port::reserve().unwrap().address().to_string();
    let place = Place::with_store(format!("redis://:s3cret@{closed}?ttl_ms=2000"));
    for arguments in [&["run", "--connect-wait", "0", "job", "--", "true"][..], &["ls"], &["show", "job"], &["bench"]] {
        let (code, text) = ended(&mut place.fencelock(arguments));
        assert_eq!(code, 69, "{arguments:?}: {text}");
        assert!(text.contains(&closed) && text.contains("FENCELOCK_STORE") && !text.contains("s3cret"), "{text}");
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
fn locks_of_a_server_without_memory_are_shown_and_broken() {
    let server = Server::start(Settings::default()).unwrap();
    let place = Place::with_store(format!("{}?ttl_ms=60000&request_deadline_ms=8000", server.url()));
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
    let (server, sentinel) = (shared().address(), shared_watched().sentinels[0].address());
    for (url, said) in [
        (format!("redis://{sentinel}"), "redis+sentinel://"),
        (format!("redis+sentinel://{server}/locks"), "redis://host:6379/0"),
        (format!("redis+sentinel://{sentinel}"), "NAME"),
        (format!("redis://{}", shared_cluster().nodes[0].address()), "redis+cluster://"),
        (format!("redis+cluster://{server}"), "redis://host:6379/0"),
        (format!("redis+sentinel://{sentinel}/other"), "known locks"),
        (format!("redis://{server}/x"), "redis"),
        (format!("redis://{server}?no_such=1"), "no_such"),
        (format!("redis://{server}?layout=no_such"), "layout"),
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
    // A queue of two contenders has a key of its own.
    let _holder = place.holder("bad");
    let _waiter = Running::start(&mut place.run(&["--quiet", "bad"], "true"));
    place.queued("bad", 2);
    let queue = by_hand(&["KEYS", "*:queue:bad"]);
    assert_eq!(by_hand(&["SET", queue.trim_end(), "what no fencelock wrote"]), "OK\n", "{queue}");
    let holder = place.holder("good");
    // No lock has such a name, and no lock is in such a bucket.
    assert_eq!(by_hand(&["HSET", &queue.trim_end().replace("queue:bad", "bucket"), "a//b", "by hand"]), "1\n");
    assert_eq!(by_hand(&["SET", "fencelock:2:{000}:bucket", "what no fencelock wrote"]), "OK\n");
    let listed = output(&mut place.fencelock(&["ls"]));
    let (table, said) = (stdout(&listed), stderr(&listed));
    let lines: Vec<_> = table.lines().collect();
    assert!(lines[1].starts_with("bad") && lines[1].contains("unreadable"), "{table}{said}");
    assert!(lines[2].starts_with("good") && lines[2].contains(&format!("pid {}", holder.pid())), "{table}");
    let alone = code(&output(&mut place.fencelock(&["show", "bad"])));
    assert_eq!((code(&listed), said.contains("not every lock can be read, bad")), (alone, true), "{said}");
    assert_ne!(alone, 0);
    assert!(said.contains("fencelock:2:{000}:bucket"), "{said}");
    let listed = stdout(&output(&mut place.fencelock(&["ls", "--json"])));
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert!(listed[0]["error"].is_string() && listed[1]["error"].is_null(), "{listed}");
}

#[test]
fn a_foreign_string_is_shown_with_its_end_and_one_without_an_end_needs_a_word_of_its_own_to_break() {
    let server = Server::start(Settings::default()).unwrap();
    let place = Place::with_store(format!("{}?layout=plain&ttl_ms=60000", server.url()));
    server.ask(&["SET", "job", "theirs", "PX", "60000"]).unwrap();
    server.ask(&["SET", "data", "a page of text"]).unwrap();
    let shown = |name: &str| stdout(&output(&mut place.fencelock(&["show", name])));
    assert!(shown("data").contains("never"), "{}", shown("data"));
    let expires = place.contenders("job")[0]["expires"].as_str().unwrap().to_owned();
    assert!(expires == "in 1m" || expires.ends_with('s'), "{expires}");
    let order = ["break", "data", "--reason", "stuck", "--yes", "--untold"];
    let (code, said) = ended(&mut place.fencelock(&order));
    assert_eq!(code, 64, "{said}");
    assert!(said.contains("--endless") && said.contains("a page of text"), "{said}");
    assert_eq!(server.ask(&["EXISTS", "data"]).unwrap().number(), Some(1));
    let (code, said) = ended(&mut place.fencelock(&[&order[..], &["--endless"]].concat()));
    assert_eq!((code, server.ask(&["EXISTS", "data"]).unwrap().number()), (0, Some(0)), "{said}");
    let (code, said) = ended(&mut place.fencelock(&["break", "job", "--reason", "stuck", "--yes", "--untold"]));
    assert_eq!((code, server.ask(&["EXISTS", "job"]).unwrap().number()), (0, Some(0)), "{said}");
}
