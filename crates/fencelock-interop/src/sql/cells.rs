//! Who is played against whom in a database, and what must come of it.

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

static PROVIDER: Client = row("ShedLock, usingDbTime, New York", JAVA, "ShedLock");
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

static ON_MARIADB: [Pair; 4] = [
    pair(&SHEDLOCK, &PROVIDER, Waits, Waits),
    pair(&TABLE, &JDBC, Waits, Waits),
    pair(&TABLE, &BY_HAND, Waits, Waits),
    pair(&NAMED, &MARIADB, Waits, Waits),
];

/// Every cell, both ways: those on PostgreSQL, and those on MariaDB.
pub(crate) fn all(among: Among) -> [Vec<Cell>; 2] {
    [&ON_POSTGRES, &ON_MARIADB].map(|pairs| chosen(among, pairs.iter().flat_map(both_ways).collect()))
}
