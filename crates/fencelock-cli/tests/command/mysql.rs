//! The command on MariaDB: what only this store has.

use crate::common::{Place, code, output, stderr, stdout};
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
fn mariadb_is_another_name_of_the_scheme() {
    let url = KIND.shared().url();
    let other = url.replacen("mysql:", "mariadb:", 1);
    let held = Place::with_store(url).fencelock(&["run", "job", "--", "true"]).output().unwrap();
    assert_eq!(code(&held), 0, "{}", stderr(&held));
    assert_eq!(code(&output(&mut Place::with_store(other).run(&["--try", "job"], "true"))), 0);
}
