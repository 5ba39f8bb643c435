//! The pairs of clients that are played in a database and in etcd, and the expected results.

use fencelock_interop::Foreign;

use crate::cells::Expected::{Granted, Refused, Waits};
use crate::cells::{Pair, pair};
use crate::clients::{Client, Nodes, Program, at};

const OURS: Program = Program::Fencelock;
const JAVA: Program = Program::Other(Foreign::Jdbc);
const PYTHON: Program = Program::Other(Foreign::PythonSql);
const GO: Program = Program::Other(Foreign::Etcd);

const fn row(title: &'static str, program: Program, recipe: &'static str) -> Client {
    at(Nodes::Apart, title, program, recipe)
}

static TABLE: Client = row("fencelock layout=distributed_lock", OURS, "layout=distributed_lock");
static SHEDLOCK: Client = row("fencelock layout=shedlock", OURS, "layout=shedlock");
static ADVISORY: Client = row("fencelock layout=advisory", OURS, "layout=advisory&key=with_advisory_lock");
static NAMED: Client = row("fencelock layout=get_lock", OURS, "layout=get_lock&key=.net");

// On MariaDB the other programs have sessions at -05:00, and the server is in UTC.
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

pub(super) static ON_POSTGRES: [Pair; 4] = [
    pair(&SHEDLOCK, &PROVIDER, Waits, Waits),
    pair(&TABLE, &JDBC, Waits, Waits),
    pair(&TABLE, &BY_HAND, Waits, Waits),
    pair(&ADVISORY, &PSQL, Waits, Waits),
];

pub(super) static ON_MARIADB: [Pair; 5] = [
    pair(&SHEDLOCK_AT, &PROVIDER, Waits, Waits),
    pair(&SHEDLOCK_DATETIME, &PROVIDER_DATETIME, Waits, Waits),
    pair(&TABLE_AT, &JDBC, Waits, Waits),
    pair(&TABLE_AT, &BY_HAND, Waits, Waits),
    pair(&NAMED, &MARIADB, Waits, Waits),
];

static MUTEX: Client = row("fencelock mutex", OURS, "owner=full");
static WRITE: Client = row("fencelock write lock", OURS, "owner=full#write");
static READ: Client = row("fencelock read lock", OURS, "owner=full#read");
static CLIENTV3: Client = row("clientv3 Mutex", GO, "Mutex");
static ELECTION: Client = row("clientv3 Election", GO, "Election");
static NESTED: Client = row("clientv3 Mutex on a name below it", GO, "nested");

pub(super) static ON_ETCD: [Pair; 7] = [
    pair(&MUTEX, &CLIENTV3, Waits, Waits),
    pair(&MUTEX, &ELECTION, Waits, Waits),
    // To clientv3 every key is a mutex's; fencelock sees the other kind of lock.
    pair(&WRITE, &CLIENTV3, Waits, Refused),
    pair(&READ, &CLIENTV3, Waits, Refused),
    pair(&MUTEX, &NESTED, Granted, Granted),
    pair(&CLIENTV3, &ELECTION, Waits, Waits),
    // clientv3 waits for all keys that begin with the name and a slash.
    pair(&CLIENTV3, &NESTED, Granted, Waits),
];

#[cfg(test)]
mod tests {
    use crate::cells::{words_of, written};
    use crate::sql::PLACES;

    #[test]
    fn the_documents_say_of_every_pair_what_is_played() {
        let (text, _) = written("sql", &[]);
        let pairs = || PLACES.iter().flat_map(|place| place.pairs);
        for pair in pairs() {
            let words = (words_of(pair.second_tries), words_of(pair.first_tries));
            let row = format!("| {} | {} | {} | {} |\n", pair.first.title, pair.second.title, words.0, words.1);
            assert!(text.contains(&row), "interop/who-waits-sql.md lacks: {row}");
        }
        let is_row = |line: &&str| line.starts_with("| fencelock ") || line.starts_with("| clientv3 ");
        assert_eq!(text.lines().filter(is_row).count(), pairs().count());
    }
}
