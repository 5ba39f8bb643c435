//! The pairs of clients that are played in a database, and the expected results.

use fencelock_interop::Foreign;

use crate::cells::Expected::Waits;
use crate::cells::{Among, Cell, Pair, both_ways, chosen, pair};
use crate::clients::{Client, Nodes, Program, at};

const OURS: Program = Program::Fencelock;
const JAVA: Program = Program::Other(Foreign::Jdbc);
const PYTHON: Program = Program::Other(Foreign::PythonSql);

const fn row(title: &'static str, program: Program, recipe: &'static str) -> Client {
    at(Nodes::Apart, title, program, recipe)
}

static TABLE: Client = row("fencelock layout=distributed_lock", OURS, "layout=distributed_lock");
static SHEDLOCK: Client = row("fencelock layout=shedlock", OURS, "layout=shedlock");
static ADVISORY: Client = row("fencelock layout=advisory", OURS, "layout=advisory&key=with_advisory_lock");
static NAMED: Client = row("fencelock layout=get_lock", OURS, "layout=get_lock&key=.net");

// On MariaDB the programs of others have sessions at -05:00, and the server is in UTC.
static TABLE_AT: Client =
    row("fencelock layout=distributed_lock zone=-05:00", OURS, "layout=distributed_lock&zone=-05:00");
static SHEDLOCK_AT: Client = row("fencelock layout=shedlock zone=-05:00", OURS, "layout=shedlock&zone=-05:00");
static SHEDLOCK_DATETIME: Client =
    row("fencelock layout=shedlock, datetime", OURS, "layout=shedlock&table=shedlock_datetime");

static PROVIDER: Client = row("ShedLock, usingDbTime, New York", JAVA, "ShedLock:shedlock");
static PROVIDER_DATETIME: Client = row("ShedLock, usingDbTime, New York, datetime", JAVA, "ShedLock:shedlock_datetime");
static JDBC: Client = row("a tutorial's lock by JDBC", JAVA, "tutorial");
static BY_HAND: Client = row("a tutorial's lock in Python", PYTHON, "tutorial");
static PSQL: Client = row("psql, pg_try_advisory_lock", PYTHON, "session");
static MARIADB: Client = row("mariadb, GET_LOCK", PYTHON, "session");

static ON_POSTGRES: [Pair; 4] = [
    pair(&SHEDLOCK, &PROVIDER, Waits, Waits),
    pair(&TABLE, &JDBC, Waits, Waits),
    pair(&TABLE, &BY_HAND, Waits, Waits),
    pair(&ADVISORY, &PSQL, Waits, Waits),
];

static ON_MARIADB: [Pair; 5] = [
    pair(&SHEDLOCK_AT, &PROVIDER, Waits, Waits),
    pair(&SHEDLOCK_DATETIME, &PROVIDER_DATETIME, Waits, Waits),
    pair(&TABLE_AT, &JDBC, Waits, Waits),
    pair(&TABLE_AT, &BY_HAND, Waits, Waits),
    pair(&NAMED, &MARIADB, Waits, Waits),
];

/// Every cell, both ways: first on PostgreSQL, then on MariaDB.
pub(crate) fn all(among: Among) -> [Vec<Cell>; 2] {
    let pairs: [&[Pair]; 2] = [&ON_POSTGRES, &ON_MARIADB];
    pairs.map(|pairs| chosen(among, pairs.iter().flat_map(both_ways).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::{words_of, written};

    #[test]
    fn the_documents_say_of_every_pair_what_is_played() {
        let (text, _) = written("sql", &[]);
        for Pair { first, second, second_tries, first_tries } in ON_POSTGRES.iter().chain(&ON_MARIADB) {
            let words = (words_of(*second_tries), words_of(*first_tries));
            let row = format!("| {} | {} | {} | {} |\n", first.title, second.title, words.0, words.1);
            assert!(text.contains(&row), "interop/who-waits-sql.md lacks: {row}");
        }
        let rows = text.lines().filter(|line| line.starts_with("| fencelock layout=")).count();
        assert_eq!(rows, ON_POSTGRES.len() + ON_MARIADB.len());
    }
}
