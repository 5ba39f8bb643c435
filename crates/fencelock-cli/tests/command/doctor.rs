//! `fencelock doctor`, on servers that are set up badly.

use std::io::Write as _;
use std::process::Output;

use fencelock_testbed::{PATIENCE, etcd, mysql, postgres, redis, wait_until, zookeeper};
use fencelock_zookeeper::CreateMode;
use serde_json::Value;

use crate::common::hand::{by_hand, plant};
use crate::common::{Place, code, output, stderr, stdout};
use crate::redis::certificates;

/// With a ttl that is much longer than a request takes on any machine.
fn patient(url: &str) -> String {
    let sign = if url.contains('?') { '&' } else { '?' };
    format!("{url}{sign}ttl_ms=600000")
}

/// The exit code and the report.
fn report(url: &str) -> (i32, Value) {
    let done = output(&mut Place::with_store(url).fencelock(&["doctor", "--json"]));
    let report = serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{done:?}"));
    (code(&done), report)
}

/// Whether a finding of this severity says all of `parts`.
fn found(report: &Value, severity: &str, parts: &[&str]) -> bool {
    let is_it = |finding: &Value| {
        let what = finding["what"].as_str().unwrap();
        let is_whole = ["why", "set"].iter().all(|part| finding[part].as_str().is_some_and(|text| !text.is_empty()));
        finding["severity"] == severity && is_whole && parts.iter().all(|part| what.contains(part))
    };
    report["findings"].as_array().unwrap().iter().any(is_it)
}

#[test]
fn a_directory_that_a_cleaner_empties_is_warned_of_and_another_is_not() {
    let place = Place::new();
    let done = output(&mut place.fencelock(&["doctor", &patient(&place.url())]));
    // The directory is missing: the first client that locks makes it.
    assert_eq!((code(&done), stdout(&done).contains("/tmp")), (1, true), "{done:?}");
    assert!(stdout(&done).contains("why: cleaners") && stdout(&done).contains("round trip: "), "{done:?}");
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let (code, said) = report(&patient(&format!("file://{}/locks", memory.path().display())));
    assert_eq!((code, said["round_trip_ms"]["worst"].is_number()), (0, true), "{said}");
    assert!(!found(&said, "warning", &[]));
}

#[test]
fn a_redis_that_evicts_forgets_and_hangs_up_is_reported() {
    let settings = |lines: &[&str]| redis::Settings {
        extra: lines.iter().map(|line| (*line).to_owned()).collect(),
        ..redis::Settings::default()
    };
    let bad = ["maxmemory 100mb", "maxmemory-policy allkeys-lru", "timeout 300", "save \"\""];
    let server = redis::Server::start(settings(&bad)).unwrap();
    let (code, said) = report(&patient(&server.url()));
    assert_eq!(code, 2, "{said}");
    assert!(found(&said, "problem", &["maxmemory-policy is allkeys-lru"]), "{said}");
    assert!(found(&said, "problem", &["no lock can be taken", "noeviction"]), "{said}");
    assert!(found(&said, "warning", &["keeps nothing on disk"]), "{said}");
    assert!(found(&said, "warning", &["timeout is 300"]), "{said}");

    let role = redis::Role::ReplicaOf(server.address());
    let replica = redis::Server::start(redis::Settings { role, ..settings(&[]) }).unwrap();
    let (code, said) = report(&patient(&replica.url()));
    assert_eq!((code, found(&said, "problem", &["this is a replica"])), (2, true), "{said}");
    assert!(wait_until(PATIENCE, || server.info("connected_slaves").unwrap() == "1"));
    let (_, said) = report(&patient(&server.url()));
    assert!(found(&said, "warning", &["1 replicas copy this server"]), "{said}");
    let role = redis::Role::SentinelOf(server.address());
    let sentinel = redis::Server::start(redis::Settings { role, ..settings(&[]) }).unwrap();
    let (code, said) = report(&sentinel.url());
    assert_eq!((code, found(&said, "problem", &["redis+sentinel://"])), (2, true), "{said}");
}

#[test]
fn a_redis_that_is_set_up_for_locks_is_left_in_peace() {
    let server = redis::Server::start(redis::Settings { durable: true, ..redis::Settings::default() }).unwrap();
    let done = output(&mut Place::with_store(patient(&server.url())).fencelock(&["doctor"]));
    assert_eq!((code(&done), stderr(&done)), (0, String::new()), "{done:?}");
    assert!(stdout(&done).starts_with("round trip: "), "{done:?}");
}

#[test]
fn a_single_member_of_etcd_is_a_warning() {
    let (code, said) = report(&patient(&etcd::KIND.shared().url()));
    assert_eq!((code, found(&said, "warning", &["there is one member"])), (1, true), "{said}");
}

#[test]
fn servers_are_asked_over_tls_as_the_url_has_it() {
    let directory = tempfile::tempdir().unwrap();
    certificates(directory.path());
    let [certificate, key, trusted] = ["server.crt", "server.key", "ca.pem"].map(|file| directory.path().join(file));
    let ca = trusted.display().to_string();
    let tls = redis::Tls { certificate: certificate.clone(), key: key.clone(), trusted, asks_clients: false };
    let settings =
        redis::Settings { extra: vec!["timeout 300".to_owned()], tls: Some(tls), ..redis::Settings::default() };
    let server = redis::Server::start(settings).unwrap();
    let (code, said) = report(&patient(&format!("rediss://{}?tls_ca={ca}", server.secure_address().unwrap())));
    assert_eq!(code, 1, "{said}");
    assert!(found(&said, "warning", &["timeout is 300"]), "{said}");
    let tls = postgres::Tls { certificate, key };
    let settings = postgres::Settings { tls: Some(tls), ..postgres::Settings::default() };
    let server = postgres::Server::start(settings.with("fsync = off")).unwrap();
    let sign = if server.url().contains('?') { '&' } else { '?' };
    let (code, said) = report(&patient(&format!("{}{sign}sslmode=verify-full&tls_ca={ca}", server.url())));
    assert_eq!(code, 2, "{said}");
    assert!(found(&said, "problem", &["fsync is off"]), "{said}");
}

#[test]
fn a_clock_that_is_ahead_is_reported() {
    let settings = redis::Settings { own_clock: true, ..redis::Settings::default() };
    let server = redis::Server::start(settings).unwrap();
    server.set_clock(3600).unwrap();
    let (_, said) = report(&patient(&server.url()));
    assert!(found(&said, "warning", &["the server's clock is 3", "ms ahead"]), "{said}");
}

#[test]
fn a_postgresql_that_does_not_wait_for_its_disk_is_reported() {
    let bad = ["fsync = off", "full_page_writes = off", "synchronous_commit = off", "idle_session_timeout = 60000"];
    let settings = bad.iter().fold(postgres::Settings::default(), |settings, line| settings.with(line));
    let server = postgres::Server::start(settings).unwrap();
    let (code, said) = report(&patient(&server.url()));
    assert_eq!(code, 2, "{said}");
    assert!(found(&said, "problem", &["fsync is off"]), "{said}");
    assert!(found(&said, "warning", &["full_page_writes is off"]), "{said}");
    assert!(found(&said, "note", &["synchronous_commit is off"]), "{said}");
    assert!(found(&said, "note", &["idle_session_timeout is 60000 ms"]), "{said}");
    assert!(said["round_trip_ms"]["median"].is_number(), "locks can still be taken: {said}");
}

#[test]
fn a_postgresql_without_an_identity_of_its_own_is_found_and_warned_of_at_each_connection() {
    let server = postgres::Server::start(postgres::Settings::default()).unwrap();
    server.sql(postgres::OWNER, "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC").unwrap();
    let url = patient(&format!("{}?schema=our%20%22locks'", server.url()));
    let done = output(&mut Place::with_store(&url).run(&["job"], "true"));
    assert!(code(&done) == 0 && stderr(&done).contains("cannot read pg_control_system()"), "{done:?}");
    let (code, said) = report(&url);
    assert_eq!(code, 1, "{said}");
    assert!(found(&said, "warning", &["may not call pg_control_system()"]), "{said}");
}

#[test]
fn a_postgresql_that_grants_nothing_after_a_promotion_says_until_when_in_doctor_show_wait_and_errors() {
    let primary = postgres::Server::start(postgres::Settings::default()).unwrap();
    // The client of the longest ttl says for how long the standby grants nothing.
    assert_eq!(code(&output(&mut Place::with_store(patient(&primary.url())).run(&["job"], "true"))), 0);
    let settings = postgres::Settings { standby_of: Some(primary.address()), ..postgres::Settings::default() };
    let standby = postgres::Server::start(settings).unwrap();
    standby.promote().unwrap();
    let url = patient(&standby.url());
    let place = Place::with_store(&url);
    let says = |done: &Output| {
        let said = stderr(done);
        said.contains("no client is granted a lock until 2") && said.contains(", because this server")
    };
    // On a busy machine, an error may come before the store said why.
    assert!(wait_until(PATIENCE, || says(&output(&mut place.run(&["--try", "job"], "true")))));
    assert!(says(&output(&mut place.fencelock(&["show", "job"]))));
    // The standby may lack a holder: a lock that it shows without one is not free.
    let waited = output(&mut place.fencelock(&["wait", "job", "--timeout", "10ms"]));
    assert!(code(&waited) == 75 && says(&waited), "{waited:?}");
    let (code, said) = report(&url);
    assert_eq!(code, 2, "{said}");
    assert!(found(&said, "problem", &["no client is granted a lock until 2"]), "{said}");
}

#[test]
fn a_transaction_that_keeps_the_lock_of_a_dead_holder_is_named_by_doctor_show_and_ls() {
    let server = postgres::Server::start(postgres::Settings::default()).unwrap();
    let url = patient(&server.url());
    let place = Place::with_store(&url);
    let [new, token] = ["new", "token"].map(|file| place.path(file));
    let script = format!("echo $FENCELOCK_TOKEN > {0}; mv {0} {1}; sleep 600", new.display(), token.display());
    let mut holder = place.run(&["job"], &script).spawn().unwrap();
    assert!(wait_until(PATIENCE, || token.exists()));
    let token = std::fs::read_to_string(&token).unwrap();
    let mut psql = std::process::Command::new("psql");
    psql.args(["-qXd", &format!("{}?application_name=idler", server.url())]).stdin(std::process::Stdio::piped());
    let mut psql = psql.spawn().unwrap();
    writeln!(psql.stdin.as_mut().unwrap(), "BEGIN; SELECT fencelock.hold('job', {});", token.trim()).unwrap();
    let idles = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'idler' AND state = 'idle in transaction' AND state_change < now() - interval '1 second'";
    assert!(wait_until(PATIENCE, || server.sql(postgres::OWNER, idles).unwrap().trim() == "1"));
    server.sql(postgres::OWNER, "DELETE FROM fencelock.session").unwrap();
    let (_, said) = report(&url);
    assert!(found(&said, "warning", &["idler (process ", "idle in transaction since"]), "{said}");
    let says = |done: &Output| {
        let said = stdout(done) + &stderr(done);
        said.contains("idler (process ") && said.contains("idle in transaction since")
    };
    assert!(says(&output(&mut place.fencelock(&["show", "job"]))));
    assert!(wait_until(PATIENCE, || says(&output(&mut place.run(&["--try", "job"], "true")))));
    assert!(stdout(&output(&mut place.fencelock(&["ls"]))).contains("job"));
    psql.kill().unwrap();
    psql.wait().unwrap();
    holder.kill().unwrap();
    holder.wait().unwrap();
}

#[test]
fn a_postgresql_in_which_others_planted_operators_runs_none_of_them_for_the_command() {
    let server = postgres::Server::start(postgres::Settings::default()).unwrap();
    server.sql(postgres::OWNER, postgres::PLANTED).unwrap();
    let path = format!("ALTER DATABASE {} SET search_path = public, pg_catalog", postgres::OWNER);
    server.sql("postgres", &path).unwrap();
    let place = Place::with_store(patient(&server.url()));
    for arguments in [&["migrate"][..], &["doctor"], &["run", "job", "--", "true"], &["show", "job"], &["ls"]] {
        let done = output(&mut place.fencelock(arguments));
        assert_eq!((code(&done), stdout(&done).contains("was not asked")), (0, false), "{arguments:?} {done:?}");
    }
    assert_eq!(server.sql(postgres::OWNER, "SELECT is_called FROM public.planted").unwrap().trim(), "f");
}

#[test]
fn a_zookeeper_alone_with_few_connections_and_short_sessions_is_reported() {
    let settings = zookeeper::Settings { max_session_timeout_ms: 50_000, ..zookeeper::Settings::default() };
    let ensemble = zookeeper::Ensemble::start(settings.with("maxClientCnxns", 7)).unwrap();
    let url = format!("{}&ttl_ms=60000", ensemble.url("/locks"));
    let (code, said) = report(&url);
    assert_eq!(code, 1, "{said}");
    assert!(found(&said, "warning", &["standalone"]), "{said}");
    assert!(found(&said, "note", &["every user may delete locks", "world:anyone:"]), "{said}");
    assert!(found(&said, "warning", &["maxClientCnxns is 7"]), "{said}");
    assert!(found(&said, "warning", &["maxSessionTimeout is 50000", "60000"]), "{said}");
    let (code, said) = report(&url.replace("tick_ms=500", "tick_ms=400"));
    assert_eq!((code, found(&said, "problem", &["tickTime is 500", "400"])), (2, true), "{said}");
}

#[test]
fn a_mariadb_that_does_not_wait_for_its_disk_is_reported() {
    let bad = ["--innodb-flush-log-at-trx-commit=2", "--wait-timeout=60"];
    let settings = bad.iter().fold(mysql::Settings::default(), |settings, option| settings.with(option));
    let server = mysql::Server::start(settings).unwrap();
    drop(Place::with_store(patient(&server.url())).made());
    let (code, said) = report(&patient(&server.url()));
    assert_eq!(code, 1, "{said}");
    assert!(found(&said, "warning", &["innodb_flush_log_at_trx_commit is 2"]), "{said}");
    assert!(found(&said, "note", &["wait_timeout is 60 s"]), "{said}");
}

#[test]
fn a_lock_of_another_client_under_our_name_is_found() {
    let parent = zookeeper::shared().namespace();
    let url = format!("zk://{}{parent}?tick_ms=500&ttl_ms=60000", zookeeper::shared().address());
    let place = Place::with_store(url.as_str());
    by_hand(async |client| {
        let _holder = place.holder("job");
        let kazoo = "94b6e5cf49364b1f8706ee06e5d07c35__lock__";
        plant(&client, &format!("{parent}/job/{kazoo}"), CreateMode::EphemeralSequential, "10.0.0.8").await;
        let (code, said) = report(&url);
        assert_eq!((code, found(&said, "problem", &["job: ", "kazoo"])), (2, true), "{said}");
    });
}

#[test]
fn an_absent_server_is_no_finding_and_no_secret_is_printed() {
    let settings = redis::Settings { password: Some("right-s3cret".to_owned()), ..redis::Settings::default() };
    let server = redis::Server::start(settings).unwrap();
    let url = |password: &str| patient(&format!("redis://:{password}@{}", server.address()));
    let (code_with, said) = report(&url("right-s3cret"));
    assert_eq!((code_with, found(&said, "warning", &["keeps"])), (1, true), "{said}");
    for command in ["doctor", "doctor --json"] {
        let command: Vec<_> = command.split(' ').collect();
        let done = output(&mut Place::with_store(url("wrong-s3cret")).fencelock(&command));
        assert_eq!(code(&done), 2, "{done:?}");
        assert!(!stdout(&done).contains("s3cret") && !stderr(&done).contains("s3cret"), "{done:?}");
    }
    server.kill();
    let done = output(&mut Place::with_store(url("right-s3cret")).fencelock(&["doctor"]));
    assert_eq!((code(&done), stdout(&done)), (69, String::new()), "{done:?}");
}
