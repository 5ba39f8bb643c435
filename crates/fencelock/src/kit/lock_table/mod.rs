//! Lock tables of other programs: a row is a lock, and a client that finds the row missing or expired takes the lock. A store brings the
//! statements ([`Rows`]). Sessions, lines and tries are in `kit/try_again/`.

mod fit;
mod holder;
mod rows;

use std::sync::OnceLock;
use std::time::Duration;

use hmac_sha256::Hash;

pub(crate) use self::fit::{Column, Fit, Words};
use self::holder::request;
pub(crate) use self::rows::{Rows, store};
use super::database::call::strange;
use super::database::url::Bad;
use super::try_again::WAKE_BOUND;
use crate::error::{Error, Result};
use crate::queue::Claim;
use crate::store::{
    Capability, Contender, Expiry, Foreign, Grant, Owner, Peer, Presumption, RequestId, Residue, StoreUrl, Waits,
};

pub(crate) fn tutorial(store: &'static str) -> Capability {
    Capability {
        layout: "distributed_lock (lock_key unique, lock_value, expire_time); an unexpired row is held",
        same_as: &[Peer::ExpiryTable],
        residue: &[Residue::RowOfCrashed],
        ..common(store)
    }
}

pub(crate) fn shedlock(store: &'static str) -> Capability {
    Capability {
        layout: "shedlock (name unique, lock_until, locked_at, locked_by); held until lock_until",
        same_as: &[Peer::ShedLock],
        residue: &[Residue::RowPerName],
        ..common(store)
    }
}

fn common(store: &'static str) -> Capability {
    Capability {
        presumes: &[Presumption::CommitsKept, Presumption::KeyStays, Presumption::ClockSteady],
        detection_slack: Duration::from_millis(1100),
        wake_bound: WAKE_BOUND,
        ..Capability::least(store, "a lock table")
    }
}

/// How many characters of ShedLock's `locked_by` are shown.
const SHOWN: usize = 64;
const NAME_MOST: usize = 63;

const OPTIONS: [&str; 3] = ["table", "columns", "zone"];

const NOT_OF_TABLES: &str =
    "`table`, `columns` and `zone` are options of lock tables: say `layout=distributed_lock` or `layout=shedlock`";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TableKind {
    Tutorial,
    /// ShedLock's table, whose rows stay. A lock is held for at least `at_least`, however early the release.
    ShedLock {
        at_least: Duration,
    },
}

/// The layout in the URL of a database.
pub(crate) enum Layout<K> {
    Fair,
    Table(LockTable),
    /// Locks that last as long as a connection, by these keys.
    Session(K),
}

impl<K> Layout<K> {
    /// Takes `layout` and the options of lock tables from the URL. The layout `session` has `keys`. On any other layout, an option of keys is
    /// the error `stray`.
    pub(crate) fn take(
        url: &mut StoreUrl,
        bad: Bad,
        session: &str,
        stray: Option<&'static str>,
        keys: impl FnOnce() -> Result<K>,
    ) -> Result<Self> {
        let layout = url.take("layout");
        let table = LockTable::take(url, layout.as_deref(), bad)?;
        match (layout.as_deref(), table, stray) {
            (Some(layout), ..) if layout == session => keys().map(Self::Session),
            (.., Some(stray)) => Err(bad(stray)),
            (None | Some("fair"), ..) => Ok(Self::Fair),
            (_, Some(table), _) => Ok(Self::Table(table)),
            _ => Err(bad("unknown layout").with("known", format!("fair, distributed_lock, shedlock, {session}"))),
        }
    }

    /// The lock table; `None` for the layout `fair`. Session locks have no table: the error is `nothing`.
    pub(crate) fn table(self, nothing: Error) -> Result<Option<LockTable>> {
        match self {
            Self::Fair => Ok(None),
            Self::Table(table) => Ok(Some(table)),
            Self::Session(_) => Err(nothing),
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct LockTable {
    pub(crate) kind: TableKind,
    pub(crate) name: Vec<String>,
    /// The columns of the key, the holder and the end, and for ShedLock of the beginning.
    pub(crate) columns: Vec<String>,
    /// The time zone of the times that other programs write without a zone.
    pub(crate) zone: Option<String>,
}

/// A lock table. The statements are there once a connection has found the table.
#[derive(Debug)]
pub(crate) struct KnownTable<S> {
    pub(crate) of: LockTable,
    pub(crate) statements: OnceLock<S>,
}

impl<S> From<LockTable> for KnownTable<S> {
    fn from(of: LockTable) -> Self {
        Self { of, statements: OnceLock::new() }
    }
}

impl<S> KnownTable<S> {
    pub(crate) fn known(&self, operation: &'static str) -> Result<&S> {
        self.statements.get().ok_or_else(|| strange(operation))
    }
}

impl LockTable {
    pub(crate) fn take(url: &mut StoreUrl, layout: Option<&str>, bad: Bad) -> Result<Option<Self>> {
        let at_least = url.take_ms("lock_at_least_for_ms")?;
        if at_least.is_some() && layout != Some("shedlock") {
            return Err(bad("`lock_at_least_for_ms` is an option of `layout=shedlock`"));
        }
        let (kind, table, columns) = match layout {
            Some("distributed_lock") => (TableKind::Tutorial, "distributed_lock", "lock_key,lock_value,expire_time"),
            Some("shedlock") => {
                let kind = TableKind::ShedLock { at_least: at_least.unwrap_or_default() };
                (kind, "shedlock", "name,lock_until,locked_at,locked_by")
            }
            _ if OPTIONS.iter().any(|option| url.take(option).is_some()) => return Err(bad(NOT_OF_TABLES)),
            _ => return Ok(None),
        };
        let name = names(&url.take("table").unwrap_or_else(|| table.to_owned()), '.').filter(|name| name.len() <= 2);
        let name = name.ok_or_else(|| {
            bad("a lock table is named unchanged, as in table=distributed_lock or table=app.distributed_lock")
        })?;
        let given = names(&url.take("columns").unwrap_or_else(|| columns.to_owned()), ',');
        let columns = given.filter(|given| given.len() == columns.split(',').count()).ok_or_else(|| {
            bad("the columns of a lock table are named in their order, with commas between").with("by default", columns)
        })?;
        let columns = match kind {
            TableKind::Tutorial => columns,
            // The end is the second of ShedLock's columns, and the holder the last.
            TableKind::ShedLock { .. } => [0, 3, 1, 2].map(|index: usize| columns[index].clone()).to_vec(),
        };
        let zone = url.take("zone");
        if zone.as_deref().is_some_and(|zone| !is_a_zone(zone)) {
            return Err(bad(
                "a time zone is named as the server names it, as in zone=UTC or zone=Europe/Berlin; `localtime` is another zone on each machine",
            ));
        }
        Ok(Some(Self { kind, name, columns, zone }))
    }

    pub(crate) fn rights(&self) -> &'static str {
        match self.kind {
            TableKind::Tutorial => "SELECT, INSERT, UPDATE, DELETE",
            TableKind::ShedLock { .. } => "SELECT, INSERT, UPDATE",
        }
    }

    /// The holder of the lock, whose row is valid for `left` ms. A tutorial's value stays secret: the value is enough to end the lock.
    pub(crate) fn contender(&self, by: &str, left: Option<i64>) -> Contender {
        let left = left.map(|left| Duration::from_millis(left.unsigned_abs()));
        let (grant, expiry) = (Some(Grant::new(None)), left.map_or(Expiry::Never, Expiry::In));
        if let Some(id) = request(by) {
            return Contender { grant, expiry, ..Contender::new(id, Claim::MUTEX) };
        }
        let digest = Hash::hash(by.as_bytes());
        let part = |from: usize| digest[from..from + 8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let id = RequestId { client: part(0), number: part(8) };
        let foreign = Some(Foreign { what: "a row of another program", waits: Waits::Yes });
        let owner = match self.kind {
            TableKind::Tutorial => None,
            TableKind::ShedLock { .. } => Some(Owner::new(id.client, by.chars().take(SHOWN).collect::<String>(), 0)),
        };
        Contender { owner, grant, expiry, foreign, ..Contender::new(id, Claim::MUTEX) }
    }
}

fn names(text: &str, between: char) -> Option<Vec<String>> {
    let names: Vec<String> = text.split(between).map(str::to_owned).collect();
    let is_name = |name: &String| !name.is_empty() && name.len() <= NAME_MOST && !name.contains(char::is_control);
    let is_new = |index: usize| !names[..index].contains(&names[index]);
    (names.iter().all(is_name) && (between == '.' || (0..names.len()).all(is_new))).then_some(names)
}

fn is_a_zone(zone: &str) -> bool {
    let is_named = !zone.is_empty() && !zone.eq_ignore_ascii_case("localtime");
    is_named && zone.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '+' | '-' | ':'))
}
