//! The demands on a server, and the schema: its creation, and the check of an existing one.

use std::time::Duration;

use super::connection::Connection;
use super::url::Schema;
use crate::error::{Error, ErrorKind, Result};

pub(super) const VERSION: i32 = 8;

pub(super) const MAKING: i64 = 7_378_415_037_781_730_660;

/// The oldest server that has all that the functions need.
const OLDEST: u32 = 130_000;

pub(super) const DIRECT: &str = "-c fencelock.direct=on";

/// Has every name and operator of a statement resolve in `pg_catalog`. In another schema of the role's path, other roles could plant an
/// operator, which the server would run with this role's rights. The role's own path stays in the setting `fencelock.path`.
const PATH: &str = "SELECT pg_catalog.set_config('fencelock.path', pg_catalog.current_setting('search_path'), false); SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false); ";

const NOT_ONE: &str =
    "the server is not PostgreSQL, though it speaks like it: locks there would not be kept as they must be";

/// Refuses a server that cannot keep locks. Sets what the functions need, regardless of the settings of the role and the database.
pub(super) async fn meet(
    connection: &Connection,
    only_looks: bool,
    silence: Duration,
    lock_timeout: Duration,
) -> Result<()> {
    let asked = "SELECT pg_catalog.version(), pg_catalog.current_setting('server_version_num'), pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('default_transaction_read_only'), pg_catalog.getdatabaseencoding(), pg_catalog.current_setting('fencelock.direct', true)";
    let facts = connection.simple("connect", asked).await;
    let rows = facts.map_err(|error| match error.kind() {
        ErrorKind::Layout => Error::new(ErrorKind::Unsupported, "connect", NOT_ONE).with("cause", error),
        _ => error,
    })?;
    let fact = |column: usize| rows.first().and_then(|row| row.try_get(column).ok()?).unwrap_or_default();
    let refuse = |message| Err(Error::new(ErrorKind::Unsupported, "connect", message).with("server says", fact(0)));
    if ["CockroachDB", "-YB-", "Yugabyte"].iter().any(|other| fact(0).contains(other)) {
        return refuse(NOT_ONE);
    }
    if fact(1).parse::<u32>().is_ok_and(|version| version < OLDEST) {
        return refuse("the server is older than PostgreSQL 13");
    }
    if fact(4) != "UTF8" {
        return refuse("the database does not keep text as UTF-8: names of locks would not stay distinct");
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
    if fact(5) != "on" {
        let (idle, wait) = (silence.as_millis().saturating_mul(2).max(1000), lock_timeout.as_millis().max(1));
        let settings = format!(
            "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = {wait}; SET LOCAL idle_in_transaction_session_timeout = {idle}; SET LOCAL enable_seqscan = off; SET LOCAL jit = off; SET LOCAL client_min_messages = warning; "
        );
        *connection.pooled() = Some(PATH.replace("false", "true") + &settings);
        // A pooler in statement mode refuses a transaction.
        return connection.query("connect", "SELECT", &[], &|_| None).await.map(drop);
    }
    connection.simple("connect", &format!("{PATH}{}", settings(silence, lock_timeout))).await.map(drop)
}

/// The settings of a connection, without settings that the server's release lacks or a socket file does not need.
fn settings(silence: Duration, lock_timeout: Duration) -> String {
    // A request that the death of its host cut short keeps its bucket locked until the server ends the connection.
    let (idle, between) = (silence.as_secs().max(1), (silence / 3).as_secs().max(1));
    let silent = silence.as_millis().saturating_mul(2).max(1000);
    let lock_timeout = lock_timeout.as_millis().max(1);
    // A crash would forget a grant that is not on the disk yet, and another client could get it: `off` is not enough for grants.
    format!(
        "SELECT pg_catalog.set_config(s.name, w.value, false) FROM pg_catalog.pg_settings AS s JOIN (VALUES \
         ('default_transaction_isolation', 'read committed'), ('statement_timeout', '0'), ('lock_timeout', '{lock_timeout}'), \
         ('idle_in_transaction_session_timeout', '0'), ('idle_session_timeout', '0'), ('transaction_timeout', '0'), \
         ('client_encoding', 'UTF8'), ('client_min_messages', 'warning'), ('plan_cache_mode', 'force_generic_plan'), \
         ('enable_seqscan', 'off'), ('jit', 'off'), \
         ('tcp_keepalives_idle', '{idle}'), ('tcp_keepalives_interval', '{between}'), ('tcp_keepalives_count', '3'), \
         ('tcp_user_timeout', '{silent}'), ('synchronous_commit', 'on')) AS w (name, value) ON w.name = s.name \
         WHERE w.name <> 'synchronous_commit' OR s.setting = 'off'"
    )
}

/// Returns whether the schema exists; creates the schema unless `only_looks`.
pub(super) async fn our_schema(connection: &Connection, schema: &Schema, only_looks: bool) -> Result<bool> {
    match find(connection, schema).await {
        Ok(None) if !only_looks => make(connection, schema, false, &[]).await.map(|_| true),
        // A client that makes the schema keeps other clients from its functions until they can be called.
        Err(error) if only_looks && error.kind() == ErrorKind::Busy => Ok(false),
        found => found.map(|found| found.is_some()),
    }
}

/// Finds our schema, if it exists. Returns whether one of its tables is logged that could be unlogged.
///
/// # Errors
/// [`ErrorKind::Layout`] for another version of the layout than this release's, and for a schema of this name that is not ours.
async fn find(connection: &Connection, schema: &Schema) -> Result<Option<bool>> {
    let literal = literal(schema.name());
    // Objects that another role put there, or could put there, would be called by our functions with their rights.
    let asked = format!(
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_proc WHERE pronamespace = n.oid AND proname = 'version' AND pronargs = 0), \
             n.nspowner <> (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user) \
             OR EXISTS (SELECT FROM pg_catalog.aclexplode(n.nspacl) AS a WHERE a.privilege_type = 'CREATE' AND a.grantee <> n.nspowner) \
             OR EXISTS (SELECT FROM pg_catalog.pg_class WHERE relnamespace = n.oid) OR EXISTS (SELECT FROM pg_catalog.pg_proc WHERE pronamespace = n.oid) \
             OR EXISTS (SELECT FROM pg_catalog.pg_operator WHERE oprnamespace = n.oid) OR EXISTS (SELECT FROM pg_catalog.pg_type WHERE typnamespace = n.oid), \
             EXISTS (SELECT FROM pg_catalog.pg_class WHERE relnamespace = n.oid AND relname IN ('bucket', 'place', 'session') AND relpersistence <> 'u') \
         FROM pg_catalog.pg_namespace AS n WHERE n.nspname = {literal}"
    );
    let rows = connection.simple("connect", &asked).await?;
    let is = |column: usize| rows.first().is_some_and(|row| row.get(column) == Some("t"));
    if !is(0) {
        return if is(1) { Err(foreign(schema)) } else { Ok(None) };
    }
    // A process of the server may see the rows of a new function before it can call the function. The maker keeps the lock until then.
    let asked = format!("SELECT {}.version()", schema.quoted());
    let found = match connection.simple("connect", &asked).await {
        Err(error) if error.kind() == ErrorKind::Layout => {
            // The call is a message of its own: a server process sees new functions only in a transaction that begins after their commit.
            connection.simple("connect", &format!("SELECT pg_advisory_xact_lock_shared({MAKING})")).await?;
            connection.simple("connect", &asked).await?
        }
        found => found?,
    };
    let Some(found) = found.last().and_then(|row| row.get(0)) else {
        let message = "the schema has no rows, as `pg_dump --schema-only` restores it: DROP SCHEMA … CASCADE, and let a client or `fencelock migrate` make it anew";
        return Err(Error::new(ErrorKind::Layout, "connect", message).with("schema", schema.name()));
    };
    let found = found.parse::<i32>().map_err(|_| foreign(schema))?;
    if found != VERSION {
        let message = "the schema has a layout that this release does not know: name another schema, or use the release that made it";
        return Err(Error::new(ErrorKind::Layout, "connect", message)
            .with("schema", schema.name())
            .with("layout", found)
            .with("known", VERSION));
    }
    Ok(Some(is(2)))
}

fn foreign(schema: &Schema) -> Error {
    let message = "there is a schema of this name that is not ours, or that others may create things in: name another one with the option `schema`";
    Error::new(ErrorKind::Layout, "connect", message).with("schema", schema.name())
}

/// Makes the schema unless it exists, and lets `roles` use it. All of it, or nothing. Returns whether the schema was made.
pub(super) async fn make(connection: &Connection, schema: &Schema, unlogged: bool, roles: &[&str]) -> Result<bool> {
    let granted: String = roles.iter().map(|role| grants(schema, role)).collect();
    match find(connection, schema).await? {
        None => {}
        Some(true) if unlogged => {
            let message = "the tables are there, and are logged: while no client uses them, ALTER TABLE … SET UNLOGGED on `bucket`, `place` and `session` changes that";
            return Err(Error::new(ErrorKind::Config, "migrate", message).with("schema", schema.name()));
        }
        Some(_) => {
            let asked = format!(
                "SELECT pg_catalog.has_schema_privilege({{role}}, n.oid, 'USAGE') AND NOT EXISTS (SELECT FROM pg_catalog.pg_proc AS p WHERE p.pronamespace = n.oid \
                 AND p.proname NOT LIKE E'\\\\_%' AND NOT pg_catalog.has_function_privilege({{role}}, p.oid, 'EXECUTE')) \
                 FROM pg_catalog.pg_namespace AS n WHERE n.nspname = {}",
                literal(schema.name())
            );
            connection.simple("migrate", &granted).await?;
            return check_grants(connection, roles, &asked).await.map(|()| false);
        }
    }
    // A message is a transaction: a client that stops in the middle blocks no other client. A second client waits, and finds the schema.
    let all = format!("SELECT pg_advisory_xact_lock({MAKING}); {}{granted}", ddl(schema, unlogged));
    let Err(error) = connection.simple("migrate", &all).await else { return Ok(true) };
    // If the connection has ended, reports that, and not that another client was faster.
    if find(connection, schema).await?.is_some() {
        return Box::pin(make(connection, schema, unlogged, roles)).await;
    }
    let message = match error.kind() {
        _ if error.is_retryable() => {
            "another client makes the schema of the locks just now, or keeps it from being made"
        }
        ErrorKind::Denied => {
            "the role may not create the schema of the locks: an administrator runs `fencelock migrate URL --grant ROLE`, or what `--print` shows"
        }
        _ => return Err(error),
    };
    let cause = Error::new(error.kind(), "migrate", message).with("schema", schema.name());
    Err(if error.is_retryable() { cause.retryable() } else { cause }.with("cause", error))
}

/// Checks that each role has the granted rights, by the query `asked` about `{role}`: the server only warns if the caller may not grant a right.
pub(super) async fn check_grants(connection: &Connection, roles: &[&str], asked: &str) -> Result<()> {
    for role in roles {
        let rows = connection.simple("migrate", &asked.replace("{role}", &literal(role))).await?;
        if rows.last().and_then(|row| row.get(0)) != Some("t") {
            let message =
                "the user of the URL may not grant these rights: run `fencelock migrate URL --grant ROLE` as the owner";
            return Err(Error::new(ErrorKind::Denied, "migrate", message).with("role", *role));
        }
    }
    Ok(())
}

pub(super) fn ddl(schema: &Schema, unlogged: bool) -> String {
    const CHECK: &str = "IF current_setting('transaction_isolation') <> 'read committed' THEN RAISE EXCEPTION USING ERRCODE = 'FL003', \
         MESSAGE = 'the functions of fencelock work in READ COMMITTED transactions alone'; END IF;";
    // In another path, operators may be planted. Functions are named in full, since this runs under any path.
    const CLIENT: &str = "IF NOT (pg_catalog.texteq(pg_catalog.current_setting('search_path'), 'pg_catalog, pg_temp') \
         AND pg_catalog.texteq(pg_catalog.current_setting('client_min_messages'), 'warning') \
         AND pg_catalog.texteq(pg_catalog.current_setting('transaction_isolation'), 'read committed')) THEN RAISE EXCEPTION USING ERRCODE = 'FL003', \
         MESSAGE = 'the functions of fencelock work in READ COMMITTED transactions alone, with the settings of its clients'; END IF;";
    // With other settings a caller could receive plans of the functions' statements, which have the numbers of other sessions.
    const SECURE: &str =
        "SECURITY DEFINER SET client_min_messages = warning SET search_path = pg_catalog, {schema}, pg_temp";
    let kept = if unlogged { "UNLOGGED" } else { "" };
    let all =
        include_str!("schema.sql").replace("{check}", CHECK).replace("{client}", CLIENT).replace("{secure}", SECURE);
    all.replace("{kept}", kept).replace("{schema}", &schema.quoted())
}

pub(super) fn grants(schema: &Schema, role: &str) -> String {
    let (schema, role) = (schema.quoted(), format!("\"{}\"", role.replace('"', "\"\"")));
    let all: Vec<String> = functions(include_str!("schema.sql")).map(|(name, ..)| format!("{schema}.{name}")).collect();
    format!("GRANT USAGE ON SCHEMA {schema} TO {role};\nGRANT EXECUTE ON ROUTINE {} TO {role};\n", all.join(", "))
}

pub(super) fn called() -> impl Iterator<Item = (&'static str, Vec<&'static str>, &'static str)> {
    let all = include_str!("schema.sql");
    functions(all.split_once("-- For users' own transactions").map_or(all, |(ours, _)| ours))
}

fn functions(all: &'static str) -> impl Iterator<Item = (&'static str, Vec<&'static str>, &'static str)> {
    all.split("CREATE ").filter_map(|text| {
        let (kind, rest) = text.split_once(" {schema}.")?;
        let call = [("FUNCTION", "SELECT * FROM"), ("PROCEDURE", "CALL")].into_iter().find(|(of, _)| *of == kind)?.1;
        let (name, rest) = rest.split_once('(')?;
        let (listed, rest) = [") RETURNS", ")\nRETURNS", ") LANGUAGE"].iter().find_map(|end| rest.split_once(end))?;
        // In FROM, the server would first put the answer into a tuple store.
        let call = if rest.starts_with(" bigint[]") { "SELECT" } else { call };
        // The answer of a procedure is a parameter, too.
        let arguments = listed.split(',').filter(|argument| !argument.contains("INOUT "));
        let types = arguments.filter_map(|argument| argument.split_whitespace().nth(1)).collect();
        (!name.starts_with('_')).then_some((name, types, call))
    })
}

pub(super) fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_roles_may_call_every_function_but_the_inner_ones() {
        let found: Vec<_> = functions(include_str!("schema.sql")).collect();
        assert!(found.contains(&("hold", vec!["text", "bigint", "interval"], "SELECT * FROM")), "{found:?}");
        assert!(found.contains(&("ring", vec!["text[]", "bigint[]"], "CALL")), "{found:?}");
        assert!(found.iter().all(|(name, ..)| !name.starts_with('_')));
        let called: Vec<_> = called().collect();
        assert!(called.contains(&("leave", vec!["bigint", "text", "bigint", "bigint", "bigint", "boolean"], "CALL")));
        assert!(called.iter().any(|(name, _, call)| (*name, *call) == ("enter", "SELECT")), "{called:?}");
        assert!(called.contains(&("names", vec!["integer", "text", "integer"], "SELECT * FROM")), "{called:?}");
        let ours = |name| !["hold", "fence", "fenced", "in_transaction"].contains(name);
        assert!(called.iter().all(|(name, ..)| ours(name) && found.iter().any(|(other, ..)| other == name)));
    }

    #[test]
    fn text_in_a_statement_ends_where_it_is_meant_to() {
        assert_eq!(literal("a'b\\c"), "E'a\\'b\\\\c'");
    }
}
