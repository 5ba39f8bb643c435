//! What a server must be, and the schema: how it is made, and whether the one that is there is ours.

use std::time::Duration;

use super::connection::Connection;
use super::url::Schema;
use crate::error::{Error, ErrorKind, Result};

/// The version of the layout that this release makes and works with.
pub(super) const VERSION: i32 = 3;

/// What becomes of places and sessions when the server crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tables {
    /// They are there again.
    Logged,
    /// They are gone, and hardly anything waited for the disk.
    Unlogged,
}

/// The number of the advisory lock of whoever makes a schema: the beginning of the word.
const MAKING: i64 = 7_378_415_037_781_730_660;

/// The oldest server that has all that the functions need.
const OLDEST: u32 = 130_000;

/// Refuses a server that cannot keep locks, and has the rest of the session be as the functions need it, whatever the role's or the
/// database's settings are. Which of the server's processes answered.
pub(super) async fn meet(connection: &Connection, only_looks: bool, lock_timeout: Duration) -> Result<i32> {
    let asked = "SELECT version(), current_setting('server_version_num'), pg_is_in_recovery(), current_setting('default_transaction_read_only'), getdatabaseencoding(), current_setting('synchronous_commit'), pg_backend_pid()";
    let facts = connection.simple("connect", asked).await;
    let rows = facts.map_err(|error| match error.kind() {
        ErrorKind::Layout => Error::new(ErrorKind::Unsupported, "connect", NOT_ONE).with("cause", error),
        _ => error,
    })?;
    let fact = |column: usize| rows.first().and_then(|row| row.get(column)?.clone()).unwrap_or_default();
    let refuse = |kind, message: &'static str| Error::new(kind, "connect", message).with("server says", fact(0));
    if ["CockroachDB", "-YB-", "Yugabyte"].iter().any(|other| fact(0).contains(other)) {
        return Err(refuse(ErrorKind::Unsupported, NOT_ONE));
    }
    if fact(1).parse::<u32>().is_ok_and(|version| version < OLDEST) {
        return Err(refuse(ErrorKind::Unsupported, "the server is older than PostgreSQL 13"));
    }
    if fact(4) != "UTF8" {
        let message = "the database does not keep text as UTF-8: names of locks would not be told apart";
        return Err(refuse(ErrorKind::Unsupported, message).with("encoding", fact(4)));
    }
    if !only_looks && (fact(2) == "t" || fact(3) == "on") {
        let message = match fact(2) == "t" {
            true => {
                "the server is a standby, which takes no locks: name the primary, or all of them with commas between"
            }
            false => "the server, the database or the role is read-only (default_transaction_read_only)",
        };
        return Err(Error::new(ErrorKind::Unreachable, "connect", message).retryable());
    }
    // A grant that the disk does not have yet would be forgotten by a crash, and given to somebody else.
    let commit = if fact(5) == "off" { "SET synchronous_commit = on;" } else { "" };
    let settings = format!(
        "SET default_transaction_isolation = 'read committed'; SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; \
         SET client_encoding = 'UTF8'; SET client_min_messages = warning; SET plan_cache_mode = force_generic_plan; SET lock_timeout = {}; {commit}",
        lock_timeout.as_millis().max(1)
    );
    connection.simple("connect", &format!("{settings} {}", quiet(lock_timeout * 2))).await?;
    fact(6).parse().map_err(|_| refuse(ErrorKind::Unsupported, NOT_ONE))
}

/// Settings that not every release has, or that a socket file does without. The server ends no connection of ours that is idle, and ends
/// one whose host is silent for about twice `silence`: a request that was cut short by a host's death keeps its bucket locked until then.
fn quiet(silence: Duration) -> String {
    let (idle, between) = (silence.as_secs().max(1), (silence / 3).as_secs().max(1));
    let silent = silence.as_millis().saturating_mul(2).max(1000);
    format!(
        "SELECT pg_catalog.set_config(s.name, w.value, false) FROM pg_catalog.pg_settings AS s JOIN (VALUES ('idle_session_timeout', '0'), \
         ('transaction_timeout', '0'), ('tcp_keepalives_idle', '{idle}'), ('tcp_keepalives_interval', '{between}'), \
         ('tcp_keepalives_count', '3'), ('tcp_user_timeout', '{silent}')) AS w (name, value) ON w.name = s.name"
    )
}

const NOT_ONE: &str =
    "the server is not PostgreSQL, though it speaks like it: locks there would not be kept as they must be";

/// The quoted name of our schema, which is made where it is not there and the role may; `None` for somebody who only looks at a
/// database without it.
pub(super) async fn our_schema(connection: &Connection, schema: &Schema, only_looks: bool) -> Result<Option<String>> {
    match version(connection, schema).await? {
        Some(_) => {}
        None if only_looks => return Ok(None),
        None => {
            make(connection, schema, Tables::Logged, &[]).await?;
        }
    }
    Ok(Some(schema.quoted()))
}

/// Which version of the layout is there; `None` for no schema of this name.
///
/// # Errors
/// [`ErrorKind::Layout`] for another one than this release's, and for a schema that is not ours.
async fn version(connection: &Connection, schema: &Schema) -> Result<Option<i32>> {
    let literal = literal(schema.name());
    let there = format!(
        "SELECT n.oid IS NOT NULL, p.oid IS NOT NULL, has_schema_privilege(n.oid, 'USAGE') \
         FROM (SELECT {literal}::text AS name) AS s LEFT JOIN pg_catalog.pg_namespace AS n ON n.nspname = s.name \
         LEFT JOIN pg_catalog.pg_proc AS p ON p.pronamespace = n.oid AND p.proname = 'version' AND p.pronargs = 0"
    );
    let rows = connection.simple("connect", &there).await?;
    let is = |column: usize| {
        rows.first().is_some_and(|row| row.get(column).is_some_and(|value| value.as_deref() == Some("t")))
    };
    if !is(0) {
        return Ok(None);
    }
    if !is(1) {
        // What somebody else put there could be called by our functions, with their rights.
        let empty = format!(
            "SELECT 1 FROM pg_catalog.pg_namespace AS n WHERE n.nspname = {literal} AND (n.nspowner <> (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user) \
             OR EXISTS (SELECT FROM pg_catalog.aclexplode(n.nspacl) AS a WHERE a.privilege_type = 'CREATE' AND a.grantee <> n.nspowner) \
             OR EXISTS (SELECT FROM pg_catalog.pg_class WHERE relnamespace = n.oid) OR EXISTS (SELECT FROM pg_catalog.pg_proc WHERE pronamespace = n.oid) \
             OR EXISTS (SELECT FROM pg_catalog.pg_operator WHERE oprnamespace = n.oid) OR EXISTS (SELECT FROM pg_catalog.pg_type WHERE typnamespace = n.oid))"
        );
        if connection.simple("connect", &empty).await?.is_empty() {
            return Ok(None);
        }
        return Err(foreign(schema));
    }
    let asked = format!("SELECT {}.version()", schema.quoted());
    let found = match connection.simple("connect", &asked).await {
        // A process of the server sees the rows of a function before it knows of it, if that was made a moment ago. Its maker keeps the lock
        // until all of them can.
        Err(error) if error.kind() == ErrorKind::Layout => {
            connection.simple("connect", &format!("SELECT pg_advisory_xact_lock_shared({MAKING})")).await?;
            connection.simple("connect", &asked).await?
        }
        found => found?,
    };
    let found =
        found.first().and_then(|row| row.first()?.as_deref()?.parse::<i32>().ok()).ok_or_else(|| foreign(schema))?;
    if found != VERSION {
        let message = "the schema has a layout that this release does not know: name another schema, or use the release that made it";
        return Err(Error::new(ErrorKind::Layout, "connect", message)
            .with("schema", schema.name())
            .with("layout", found)
            .with("known", VERSION));
    }
    Ok(Some(found))
}

fn foreign(schema: &Schema) -> Error {
    let message = "there is a schema of this name that is not ours, or that others may create things in: name another one with the option `schema`";
    Error::new(ErrorKind::Layout, "connect", message).with("schema", schema.name())
}

/// Makes the schema, unless it is there, and lets `roles` use it: whether it was not there. All of it, or nothing.
pub(super) async fn make(connection: &Connection, schema: &Schema, tables: Tables, roles: &[&str]) -> Result<bool> {
    let granted: String = roles.iter().map(|role| grants(schema, role)).collect();
    let is_new = match version(connection, schema).await? {
        Some(_) => false,
        None => make_anew(connection, schema, tables, &granted).await?,
    };
    if !is_new && tables == Tables::Unlogged {
        refuse_logged(connection, schema).await?;
    }
    if !is_new && !granted.is_empty() {
        let granted = connection.simple("migrate", &granted).await;
        granted.map_err(|error| denied(NOT_TO_PASS_ON, error).with("schema", schema.name()))?;
    }
    for role in roles {
        refuse_less(connection, schema, role).await?;
    }
    Ok(is_new)
}

/// Makes the schema in one message, which is one transaction: a client that stands still in the middle keeps nobody else waiting. Whether
/// nobody else was faster.
async fn make_anew(connection: &Connection, schema: &Schema, tables: Tables, granted: &str) -> Result<bool> {
    // Whoever comes second waits, and finds it there.
    let all = format!("SELECT pg_advisory_xact_lock({MAKING}); {}{granted}", ddl(schema, tables));
    let Err(error) = connection.simple("migrate", &all).await else { return Ok(true) };
    // A connection that ended says so here, and not that others were faster.
    if version(connection, schema).await?.is_some() {
        return Ok(false);
    }
    if error.is_retryable() {
        let message = "somebody else makes the schema of the locks just now, or keeps it from being made";
        return Err(Error::new(error.kind(), "migrate", message).retryable().with("cause", error));
    }
    let message = "the role may not create the schema of the locks: have somebody who may run `fencelock migrate URL --grant ROLE`, or what `--print` shows";
    Err(denied(message, error).with("schema", schema.name()))
}

const NOT_TO_PASS_ON: &str = "this role may not let others use the locks: have the owner of the schema do it";

/// Says `message` of what the server denied, and leaves every other error as it is.
fn denied(message: &'static str, error: Error) -> Error {
    match error.kind() {
        ErrorKind::Denied => Error::new(ErrorKind::Denied, "migrate", message).with("cause", error),
        _ => error,
    }
}

/// Refuses tables that were made as logged ones: changing them keeps everybody waiting, and is for somebody to decide.
async fn refuse_logged(connection: &Connection, schema: &Schema) -> Result<()> {
    let name = literal(schema.name());
    let logged = format!(
        "SELECT FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = {name} \
         AND c.relname IN ('bucket', 'place', 'session') AND c.relpersistence <> 'u'"
    );
    if connection.simple("migrate", &logged).await?.is_empty() {
        return Ok(());
    }
    let message = "the tables are there, and are logged: while nobody uses them, ALTER TABLE … SET UNLOGGED on `bucket`, `place` and `session` changes that";
    Err(Error::new(ErrorKind::Config, "migrate", message).with("schema", schema.name()))
}

/// Refuses a role that may not call all functions: what a role may not pass on, the server leaves out, and only warns of it.
async fn refuse_less(connection: &Connection, schema: &Schema, role: &str) -> Result<()> {
    let (name, to) = (literal(schema.name()), literal(role));
    let lacks = format!(
        "SELECT FROM pg_catalog.pg_namespace AS n WHERE n.nspname = {name} AND (NOT pg_catalog.has_schema_privilege({to}, n.oid, 'USAGE') \
         OR EXISTS (SELECT FROM pg_catalog.pg_proc AS p WHERE p.pronamespace = n.oid AND pg_catalog.left(p.proname::text, 1) <> '_' \
         AND NOT pg_catalog.has_function_privilege({to}, p.oid, 'EXECUTE')))"
    );
    if connection.simple("migrate", &lacks).await?.is_empty() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Denied, "migrate", NOT_TO_PASS_ON).with("role", role).with("schema", schema.name()))
}

/// The statements that make the schema.
pub(super) fn ddl(schema: &Schema, tables: Tables) -> String {
    const CHECK: &str = "IF current_setting('transaction_isolation') <> 'read committed' THEN RAISE EXCEPTION USING ERRCODE = 'FL003', \
         MESSAGE = 'the functions of fencelock work in READ COMMITTED transactions alone'; END IF;";
    let kept = match tables {
        Tables::Logged => "",
        Tables::Unlogged => "UNLOGGED",
    };
    include_str!("schema.sql").replace("{check}", CHECK).replace("{kept}", kept).replace("{schema}", &schema.quoted())
}

/// The statements that let a role call the functions.
pub(super) fn grants(schema: &Schema, role: &str) -> String {
    let (schema, role) = (schema.quoted(), format!("\"{}\"", role.replace('"', "\"\"")));
    let functions: Vec<String> = functions().map(|(name, arguments)| format!("{schema}.{name}({arguments})")).collect();
    format!(
        "GRANT USAGE ON SCHEMA {schema} TO {role};\nGRANT EXECUTE ON FUNCTION {} TO {role};\n",
        functions.join(", ")
    )
}

/// The functions that others than our own may call, and the types of their arguments.
fn functions() -> impl Iterator<Item = (&'static str, String)> {
    include_str!("schema.sql").split("CREATE FUNCTION {schema}.").skip(1).filter_map(|text| {
        let (name, rest) = text.split_once('(')?;
        let arguments = rest.split_once(") RETURNS").or_else(|| rest.split_once(")\nRETURNS"))?.0;
        let types = arguments.split(',').filter_map(|argument| argument.split_whitespace().nth(1)).collect::<Vec<_>>();
        (!name.starts_with('_')).then(|| (name, types.join(", ")))
    })
}

/// Text as it stands in a statement.
fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_may_call_is_every_function_but_the_inner_ones() {
        let found: Vec<_> = functions().collect();
        assert!(found.contains(&("hold", "text, bigint, interval".to_owned())), "{found:?}");
        assert!(found.contains(&("ring", String::new())));
        assert!(found.iter().all(|(name, _)| !name.starts_with('_')));
        for (_, name, count) in super::super::connection::Call::ALL {
            let (_, arguments) = found.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(arguments.split(',').filter(|argument| !argument.is_empty()).count(), count, "{name}");
        }
    }

    #[test]
    fn text_in_a_statement_ends_where_it_is_meant_to() {
        assert_eq!(literal("a'b\\c"), "E'a\\'b\\\\c'");
    }
}
