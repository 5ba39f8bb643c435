//! Checks of a lock table that are the same on every server.

use super::{LockTable, TableKind};
use crate::error::{Error, ErrorKind, Result};

const HOLDER_LENGTH: i64 = 36;

const NO_TABLE: &str = "the database has no such lock table: make it with `fencelock migrate` or with this statement, or name the one that there is (options `table` and `columns`)";
const NO_COLUMN: &str =
    "the lock table has no such column: say how key, holder and end are called there (option `columns`)";
const NO_KEY: &str = "nothing keeps two rows of one key out of the lock table, so two clients would hold one lock: the column of the key must be unique by itself, in its whole length";
const NO_ROOM: &str = "the column has no room for what a holder is known by, a UUID of 36 characters";

pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) longest: Option<i64>,
    pub(crate) collation: Option<String>,
    pub(crate) digits: u32,
    /// The unique index of this column alone.
    pub(crate) unique: Option<String>,
}

pub(crate) struct Words {
    pub(crate) quoted: fn(&str) -> String,
    pub(crate) ignores_case: bool,
    pub(crate) texts: &'static [&'static str],
    pub(crate) holders: &'static [&'static str],
    pub(crate) no_text: &'static str,
}

pub(crate) struct Fit<'a> {
    pub(crate) key: &'a Column,
    pub(crate) holder: &'a Column,
    pub(crate) end: &'a Column,
    pub(crate) began: Option<&'a Column>,
}

impl Words {
    pub(crate) fn table(&self, of: &LockTable) -> String {
        of.name.iter().map(|part| (self.quoted)(part)).collect::<Vec<_>>().join(".")
    }

    /// The statement that makes the table. `tutorial` has the types of key, holder and end; `shedlock` needs the columns of key, holder and times.
    pub(crate) fn ddl(&self, of: &LockTable, tutorial: [&str; 3], shedlock: [&str; 3], rest: &str) -> String {
        let columns: Vec<String> = of.columns.iter().map(|column| (self.quoted)(column)).collect();
        let [key, holder, end, began @ ..] = columns.as_slice() else { return String::new() };
        let table = self.table(of);
        let columns = match of.kind {
            TableKind::Tutorial => {
                let [keys, holders, ends] = tutorial;
                format!("{key} {keys} PRIMARY KEY, {holder} {holders} NOT NULL, {end} {ends}")
            }
            TableKind::ShedLock { .. } => {
                let ([keys, holders, times], began) = (shedlock, began.join(""));
                format!(
                    "{key} {keys} PRIMARY KEY, {end} {times} NOT NULL, {began} {times} NOT NULL, {holder} {holders} NOT NULL"
                )
            }
        };
        format!("CREATE TABLE IF NOT EXISTS {table} ({columns}){rest}")
    }
}

impl LockTable {
    pub(crate) fn refuse(&self, kind: ErrorKind, message: &'static str) -> Error {
        Error::new(kind, "connect", message).with("table", self.name.join("."))
    }

    pub(crate) fn missing(&self, statement: &str) -> Error {
        self.refuse(ErrorKind::Layout, NO_TABLE).with("statement", statement)
    }

    pub(crate) fn refuse_column(&self, column: &Column, message: &'static str) -> Error {
        self.refuse(ErrorKind::Layout, message).with("column", &column.name).with("type", &column.kind)
    }

    /// Finds the columns that the URL names among the table's, and refuses a table with which two clients could hold one lock.
    pub(crate) fn fit<'a>(&self, there: &'a [Column], words: &Words) -> Result<Fit<'a>> {
        let find = |name: &String| {
            let missing = || {
                let there: Vec<&str> = there.iter().map(|column| &*column.name).collect();
                self.refuse(ErrorKind::Layout, NO_COLUMN).with("column", name).with("there", there.join(" "))
            };
            let is_it =
                |column: &&Column| column.name == *name || words.ignores_case && column.name.eq_ignore_ascii_case(name);
            there.iter().find(is_it).ok_or_else(missing)
        };
        let columns: Vec<&Column> = self.columns.iter().map(find).collect::<Result<_>>()?;
        let &[key, holder, end, ref began @ ..] = columns.as_slice() else {
            return Err(self.refuse(ErrorKind::Internal, "a lock table has three columns"));
        };
        if key.unique.is_none() {
            let change = format!("ALTER TABLE {} ADD UNIQUE ({})", words.table(self), (words.quoted)(&key.name));
            return Err(self.refuse_column(key, NO_KEY).with("statement", change));
        }
        let is_text = |column: &Column| words.texts.contains(&&*column.kind);
        for (column, is_fit) in
            [(key, is_text(key)), (holder, is_text(holder) || words.holders.contains(&&*holder.kind))]
        {
            if !is_fit {
                return Err(self.refuse_column(column, words.no_text));
            }
        }
        if holder.longest.is_some_and(|longest| longest < HOLDER_LENGTH) {
            return Err(self.refuse_column(holder, NO_ROOM));
        }
        Ok(Fit { key, holder, end, began: began.first().copied() })
    }
}

impl Column {
    /// How many microseconds to add to a time, so that a column of fewer digits, which cuts or rounds, never keeps an earlier time.
    pub(crate) fn unit(&self) -> Option<u32> {
        (self.digits < 6).then(|| 10_u32.pow(6 - self.digits))
    }

    pub(crate) fn longest_key(&self) -> Option<usize> {
        self.longest.and_then(|longest| usize::try_from(longest).ok())
    }
}
