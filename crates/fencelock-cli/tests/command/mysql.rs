//! The command on MariaDB: behaviour that only this store has.

use crate::common::{PROGRAM, Place, Running, code, output, stderr, stdout};
use fencelock_testbed::mysql::{KIND, Server, Settings};

#[test]
fn migrate_lets_an_account_use_the_locks_that_may_make_nothing() {
    let server = Server::start(Settings::default()).unwrap();
    server.sql("CREATE DATABASE app; CREATE USER service@'%' IDENTIFIED BY 'secret'").unwrap();
    let at = |user: &str| Place::with_store(format!("mysql://{user}@{}/app", server.address()));
    let (admin, service) = (at("root"), at("service:secret"));
    let job = || output(&mut service.run(&["--try", "job"], "true"));
    assert!(stderr(&job()).contains("may not use this database"), "{}", stderr(&job()));
    let migrate = |arguments: &[&str]| output(admin.fencelock(&["migrate"]).args(arguments));
    let made = migrate(&[]);
    assert_eq!((code(&made), stdout(&made)), (0, "the schema was made\n".to_owned()), "{}", stderr(&made));
    let again = migrate(&["--grant", "service@%"]);
    assert_eq!((code(&again), stdout(&again)), (0, "the schema is there, and up to date\n".to_owned()));
    let refused = migrate(&["--grant", "nobody"]);
    assert!(code(&refused) == 64 && stderr(&refused).contains("no account of that name"), "{}", stderr(&refused));
    assert_eq!((code(&job()), stderr(&job())), (0, String::new()));
}

#[test]
fn migrate_prints_statements_that_the_servers_own_command_runs() {
    let server = Server::start(Settings::default()).unwrap();
    let place = Place::with_store(server.url());
    let printed = output(place.fencelock(&["migrate"]).args(["--print", "--grant", "fencelock"]));
    assert_eq!(code(&printed), 0, "{}", stderr(&printed));
    server.sql(&stdout(&printed)).unwrap();
    let made = output(&mut place.fencelock(&["migrate"]));
    assert_eq!(stdout(&made), "the schema is there, and up to date\n");
    let unlogged = output(&mut place.fencelock(&["migrate", "--unlogged"]));
    assert!(code(&unlogged) == 78 && stderr(&unlogged).contains("only PostgreSQL"), "{}", stderr(&unlogged));
}

#[test]
fn names_that_a_collation_takes_for_one_are_refused_together_and_inside_each_other_and_any_order_finishes() {
    let server = Server::start(Settings::default()).unwrap();
    let key = "VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY";
    server
        .sql(&format!(
            "USE fencelock; CREATE TABLE distributed_lock (lock_key {key}, lock_value VARCHAR(64), expire_time DATETIME); \
             CREATE TABLE shedlock (name {key}, lock_until DATETIME(3), locked_at DATETIME(3), locked_by VARCHAR(255))"
        ))
        .unwrap();
    for layout in ["distributed_lock", "shedlock"] {
        let place = Place::with_store(format!("{}?layout={layout}", server.url()));
        for [one, other] in [["Job", "job"], ["job", "job "], ["caf\u{e9}", "cafe"]] {
            let both = output(&mut place.run(&[one, other], "true"));
            assert!(code(&both) == 64 && stderr(&both).contains("one lock"), "{layout}: {}", stderr(&both));
            for url in [place.url(), place.url().replacen("mysql:", "mariadb:", 1)] {
                let script = format!("FENCELOCK_STORE='{url}' {PROGRAM} run '{other}' -- true");
                let inside = output(&mut place.run(&[one], &script));
                assert_eq!(code(&inside), 73, "{url}: {}", stderr(&inside));
            }
        }
        let rounds = |names: &str| {
            let script = format!(
                "for round in 1 2 3 4 5; do {PROGRAM} run --quiet {names} -- sh -c 'mkdir both && rmdir both' || exit 1; done"
            );
            let mut shell = std::process::Command::new("sh");
            shell.env("FENCELOCK_STORE", place.url()).current_dir(place.directory.path()).args(["-c", &script]);
            Running::start(&mut shell)
        };
        let (first, second) = (rounds("a B"), rounds("A b"));
        assert_eq!((first.code(), second.code()), (0, 0), "{layout}");
    }
}

#[test]
fn mariadb_is_another_name_of_the_scheme() {
    let url = KIND.shared().url_with("ttl_ms=60000");
    let other = url.replacen("mysql:", "mariadb:", 1);
    let held = Place::with_store(url).made().fencelock(&["run", "job", "--", "true"]).output().unwrap();
    assert_eq!(code(&held), 0, "{}", stderr(&held));
    assert_eq!(code(&output(&mut Place::with_store(other).run(&["--try", "job"], "true"))), 0);
}
