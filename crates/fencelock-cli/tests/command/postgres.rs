//! The command on PostgreSQL: behaviour that only this store has.

use crate::common::{PROGRAM, Place, code, output, stderr, stdout};
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

/// `plumless` and `buckeroo` have one CRC-32.
#[test]
fn names_that_are_one_advisory_lock_are_refused_together_and_inside_each_other() {
    let url = KIND.shared().url();
    let and = if url.contains('?') { '&' } else { '?' };
    let at = |keys: &str| Place::with_store(format!("{url}{and}layout=advisory&key={keys}"));
    for (keys, outer, inner) in [("with_advisory_lock", "plumless", "buckeroo"), ("bigint:42", "one", "other")] {
        let place = at(keys);
        let both = output(&mut place.run(&[outer, inner], "true"));
        assert!(code(&both) == 64 && stderr(&both).contains("one lock"), "{}", stderr(&both));
        for verb in ["run NAME -- touch ran", "acquire NAME --pid $$ && touch ran", "wait NAME && touch ran"] {
            let verb = verb.replace("NAME", inner);
            let inside = output(&mut place.run(&[outer], &format!("{PROGRAM} {verb}")));
            let said = stderr(&inside);
            assert!(code(&inside) == 73 && said.contains("this command runs under it"), "{said}");
        }
        assert!(!place.path("ran").exists());
    }
    let place = at("bigint");
    let apart = output(&mut place.run(&["4"], &format!("{PROGRAM} run 5 6 -- true")));
    assert_eq!((code(&apart), stderr(&apart)), (0, String::new()));
}

#[test]
fn migrate_of_another_store_is_refused() {
    let place = Place::with_store("redis://localhost".to_owned());
    let refused = output(&mut place.fencelock(&["migrate"]));
    assert!(code(&refused) == 78 && stderr(&refused).contains("only stores in PostgreSQL"), "{}", stderr(&refused));
}

#[test]
fn a_host_of_several_that_has_no_address_is_warned_of_by_name_and_the_others_serve() {
    // No label of a host name may be so long: the resolver fails without asking a server.
    let unknown = format!("{}:1", "x".repeat(64));
    let url = KIND.shared().url_with("sslmode=disable").replace("//", &format!("//{unknown},"));
    let done = output(&mut Place::with_store(url).run(&["job"], "true"));
    let told = stderr(&done).matches(&format!("cannot be resolved (server {unknown}")).count();
    assert_eq!((code(&done), told), (0, 1), "{}", stderr(&done));
}

/// As `docs/locks-in-postgresql.md` has it, with the lines of the script there.
#[test]
fn a_script_of_psql_holds_the_lock_that_run_took_and_no_other() {
    let (shared, namespace) = (KIND.shared(), KIND.shared().namespace());
    let url = format!("postgres://fencelock@{}{namespace}", shared.address());
    let place = Place::with_store(url.clone());
    let text = include_str!("../../../../docs/locks-in-postgresql.md");
    let script = text.split("```").find(|block| block.contains("-f sell.sql")).unwrap().trim_start_matches("sql\n");
    let line = script.lines().next().unwrap();
    let psql = line.split_once("sh -c '").unwrap().1.trim_end_matches('\'');
    std::fs::write(place.path("sell.sql"), script).unwrap();
    std::fs::write(
        place.path("stock.sql"),
        "CREATE TABLE stock (item int, left_over int); INSERT INTO stock VALUES (42, 7);",
    )
    .unwrap();
    let run = |script: &str| output(&mut place.run(&["stock/42"], &script.replace("psql", &format!("psql -Xd {url}"))));
    let made = run("psql -f stock.sql");
    assert_eq!(code(&made), 0, "{}", stderr(&made));
    let sold = run(psql);
    assert!(code(&sold) == 0 && stdout(&sold).contains("COMMIT"), "{}", stderr(&sold));
    let stale = run(&format!("FENCELOCK_TOKEN=$((FENCELOCK_TOKEN - 4096)); {psql}"));
    assert!(code(&stale) == 3 && stderr(&stale).contains("is not held under the token"), "{}", stderr(&stale));
}
