//! The command on PostgreSQL: what only this store has.

use crate::common::{Place, code, output, stderr, stdout};
use fencelock_testbed::postgres::KIND;

#[test]
fn migrate_makes_the_schema_once_and_lets_a_role_use_it() {
    let place = Place::with_store(KIND.shared().url());
    let migrate = |arguments: &[&str]| output(place.fencelock(&["migrate"]).args(arguments));
    let made = migrate(&[]);
    assert_eq!((code(&made), stdout(&made)), (0, "the schema was made\n".to_owned()), "{}", stderr(&made));
    let again = migrate(&["--grant", "fencelock"]);
    assert_eq!((code(&again), stdout(&again)), (0, "the schema is there, and up to date\n".to_owned()));
    let refused = migrate(&["--grant", "nobody"]);
    assert!(code(&refused) == 64 && stderr(&refused).contains("no role of that name"), "{}", stderr(&refused));
    assert_eq!(code(&output(&mut place.run(&["--try", "job"], "true"))), 0);
}

#[test]
fn migrate_prints_the_statements_and_runs_none() {
    let url = KIND.shared().url();
    let place = Place::new();
    let printed = output(place.fencelock(&["migrate"]).args(["--print", "--grant", "app", &url]));
    let text = stdout(&printed);
    assert_eq!(code(&printed), 0, "{}", stderr(&printed));
    assert!(text.starts_with("BEGIN;") && text.trim_end().ends_with("COMMIT;"), "{text}");
    assert!(text.contains("CREATE SCHEMA IF NOT EXISTS \"fencelock\"") && text.contains("TO \"app\""), "{text}");
    // Nothing was made: the first one to migrate makes it.
    let made = output(place.fencelock(&["migrate"]).arg(&url));
    assert_eq!(stdout(&made), "the schema was made\n");
}

#[test]
fn migrate_of_another_store_is_refused() {
    let place = Place::with_store("redis://localhost".to_owned());
    let refused = output(&mut place.fencelock(&["migrate"]));
    assert!(code(&refused) == 78 && stderr(&refused).contains("only stores in PostgreSQL"), "{}", stderr(&refused));
}
