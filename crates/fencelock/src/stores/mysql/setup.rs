//! The demands on a server, and our tables: how they are made, and whether existing ones are ours.

use std::sync::atomic::Ordering;
use std::time::Duration;

use mysql_async::Row;
use mysql_async::prelude::FromValue;

use super::connection::{Connection, column};
use super::fault::cut_short;
use super::url::Config;
use crate::error::{Error, ErrorKind, Result};

const VERSION: i64 = 6;

const NOT_ONE: &str =
    "the server is neither MariaDB 10.6 or newer nor MySQL 8 or newer: locks there would not be kept as they must be";

/// Refuses a server that cannot keep locks, and gives the connection the settings that the procedures need. `waits` limits how long a
/// request waits for another client's row.
pub(super) async fn meet(connection: &Connection, only_looks: bool, waits: Duration) -> Result<()> {
    // SYSDATE is the present time, NOW that of the statement's beginning, unless an administrator made them the same.
    let facts =
        "SELECT VERSION(), CAST(@@global.read_only AS CHAR), SLEEP(0.001), SYSDATE(6) = NOW(6), @@max_allowed_packet";
    let rows = connection.simple("connect", facts).await?;
    let row = rows.first().ok_or_else(|| Error::new(ErrorKind::Unsupported, "connect", NOT_ONE))?;
    let (version, read_only) = (value::<String>(row, 0)?, value::<String>(row, 1)?);
    let refuse =
        |kind, message: &'static str| Error::new(kind, "connect", message).with("server says", version.as_str());
    let is_mariadb = version.contains("MariaDB");
    if ["TiDB", "Vitess", "OceanBase"].iter().any(|other| version.contains(other)) || !is_known(&version) {
        return Err(refuse(ErrorKind::Unsupported, NOT_ONE));
    }
    if column::<Option<i64>>("connect", row, 3)? == Some(1) {
        let message =
            "the server was started with --sysdate-is-now: a request that waited would go by a time that has passed";
        return Err(refuse(ErrorKind::Unsupported, message));
    }
    if !only_looks && !matches!(&*read_only, "0" | "OFF") {
        let message = "the server takes no writes: it is a replica, or read-only (read_only)";
        return Err(refuse(ErrorKind::Unreachable, message).retryable());
    }
    connection.largest.store(value(row, 4)?, Ordering::Relaxed);
    // A GRANT without a user would make an account without a password.
    let (limit, mode) =
        if is_mariadb { ("max_statement_time", ",NO_AUTO_CREATE_USER") } else { ("max_execution_time", "") };
    let seconds = waits.as_secs().max(1);
    let settings = format!(
        "SET @fencelock_zone = @@session.time_zone, SESSION time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION{mode}', autocommit = 1, completion_type = 0, \
         wait_timeout = 2147483, {limit} = 0, sql_safe_updates = 0, sql_big_selects = 1, sql_select_limit = 18446744073709551615, \
         innodb_lock_wait_timeout = {seconds}, lock_wait_timeout = {seconds}, group_concat_max_len = 16777216 /*M!110602 , innodb_snapshot_isolation = 0 */"
    );
    connection.simple("connect", &settings).await?;
    connection.simple("connect", "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await.map(drop)
}

/// Reads a column that is NULL only if another client ended the request: MariaDB still answers then.
fn value<T>(row: &Row, at: usize) -> Result<T>
where
    Option<T>: FromValue,
{
    column::<Option<T>>("connect", row, at)?.ok_or_else(|| cut_short("connect"))
}

/// Whether a server of this version supports the procedures. Some servers put `5.5.5-` before their version.
fn is_known(version: &str) -> bool {
    let mut numbers = version.trim_start_matches("5.5.5-").split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version.contains("MariaDB") { found >= (10, 6) } else { found >= (8, 0) }
}

/// Whether the server is a node of a Galera cluster.
pub(super) async fn is_cluster(connection: &Connection) -> Result<bool> {
    let cluster = connection.simple("connect", "SHOW GLOBAL VARIABLES LIKE 'wsrep_on'").await?;
    let value = |row| column::<String>("connect", row, 1);
    Ok(cluster.first().map(value).transpose()?.is_some_and(|on| on == "ON"))
}

/// Returns whether our tables exist; creates missing ones if the user may, unless the client only looks.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for a node of a cluster, unless the URL says that one node alone takes writes: other nodes do not see the
/// locks of one.
pub(super) async fn our_schema(connection: &Connection, config: &Config, only_looks: bool) -> Result<bool> {
    if !only_looks && !config.one_writer && is_cluster(connection).await? {
        let message = "the server is a node of a Galera cluster, where two nodes that take writes may grant one lock twice: \
                       say `galera=one_writer` if one node takes the writes of every client";
        return Err(Error::new(ErrorKind::Unsupported, "connect", message));
    }
    match version(connection, config).await? {
        true => Ok(true),
        false if only_looks => Ok(false),
        false => make(connection, config).await.map(|_| true),
    }
}

/// Whether our tables exist, and have this release's layout.
///
/// # Errors
/// [`ErrorKind::Layout`] for another one.
async fn version(connection: &Connection, config: &Config) -> Result<bool> {
    let Some(rows) = connection.version().await? else { return Ok(false) };
    let Some(row) = rows.first() else { return Ok(false) };
    let (found, strange) = (value::<i64>(row, 0)?, value::<i64>(row, 1)?);
    if found != VERSION {
        let message = "the tables have a layout that this release does not know: name another database, or use the release that made them";
        return Err(Error::new(ErrorKind::Layout, "connect", message)
            .with("database", &config.database)
            .with("layout", found)
            .with("known", VERSION));
    }
    if strange > 0 {
        let message = "tables of fencelock are not of the engine InnoDB, and have no transactions";
        return Err(Error::new(ErrorKind::Layout, "connect", message).with("database", &config.database));
    }
    Ok(true)
}

/// Makes our tables and procedures unless they are there: whether they were not. Each statement commits by itself; the procedure that says
/// the version comes last, so that a client that finds it finds everything, and half-made tables are made again.
pub(super) async fn make(connection: &Connection, config: &Config) -> Result<bool> {
    // A second client waits, and finds them there.
    let lock = "CONCAT('fencelock make ', LEFT(SHA2(DATABASE(), 256), 32))";
    let locked = connection.simple("migrate", &format!("SELECT GET_LOCK({lock}, 60)")).await?;
    if locked.first().map(|row| column::<Option<i64>>("migrate", row, 0)).transpose()?.flatten() != Some(1) {
        let message =
            "another client has been making the tables for a minute (it has the named lock `fencelock make …`)";
        return Err(Error::new(ErrorKind::Unreachable, "migrate", message).retryable());
    }
    let made = async {
        if version(connection, config).await? {
            return Ok(false);
        }
        for statement in statements() {
            connection.simple("migrate", &statement).await.map_err(|error| denied(config, error))?;
        }
        Ok(true)
    };
    let made = made.await;
    connection.simple("migrate", &format!("SELECT RELEASE_LOCK({lock})")).await?;
    made
}

fn denied(config: &Config, error: Error) -> Error {
    if error.kind() != ErrorKind::Denied {
        return error;
    }
    let message = "the user may not create the tables and procedures of the locks: an administrator runs `fencelock migrate URL --grant USER`, or what `--print` shows";
    Error::new(ErrorKind::Denied, "migrate", message).with("database", &config.database).with("cause", error)
}

pub(super) fn statements() -> Vec<String> {
    const US: &str = "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)";
    // The first statement fails inside of a transaction. On a read-only server, a definer with the right to write would otherwise grant.
    const CHECK: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    IF @@session.time_zone <> '+00:00' OR CAST(@@global.read_only AS CHAR) NOT IN ('0', 'OFF') THEN
        IF @@session.time_zone <> '+00:00' THEN
            SIGNAL SQLSTATE 'FL003' SET MESSAGE_TEXT = 'the procedures of fencelock are called in sessions of the time zone +00:00';
        END IF;
        SIGNAL SQLSTATE 'FL005' SET MESSAGE_TEXT = 'the server is read-only';
    END IF;";
    const BEGIN: &str = "{check}
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
        START TRANSACTION READ WRITE;";
    const INTERRUPTED: &str = "THEN
        SIGNAL SQLSTATE '70100' SET MYSQL_ERRNO = 1317, MESSAGE_TEXT = 'the request was interrupted';
    END IF;";
    const REFUSED: &str = "THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'a parameter is missing or out of range';
    END IF;";
    const COMMIT: &str = "    IF v_rung <> '' OR v_epoch > 0 THEN
            CALL fencelock__count(COALESCE(v_rung, ''), v_epoch);
        END IF;
        COMMIT;
    END;
    IF v_rung <> '' THEN
        CALL fencelock__ring(v_rung);
    END IF;";
    const REQUESTS: &str = "JSON_TABLE(p_requests, '$[*]' COLUMNS (n FOR ORDINALITY, kind INT PATH '$[0]', hex VARBINARY(1026) PATH '$[1]',
            client BIGINT UNSIGNED PATH '$[2]', number BIGINT UNSIGNED PATH '$[3]', seq BIGINT PATH '$[4]', weight BIGINT PATH '$[5]',
            capacity BIGINT PATH '$[6]', wait BOOLEAN PATH '$[7]', again BOOLEAN PATH '$[8]', purpose VARBINARY(1026) PATH '$[9]')) AS r";
    const NAME: &str = "LEFT(UNHEX(r.hex), 512)";
    const BUCKET: &str = "CAST(CONV(LEFT(SHA2(UNHEX(r.hex), 256), 3), 16, 10) AS SIGNED)";
    let all = include_str!("schema.sql")
        .replace("{commit}", COMMIT)
        .replace("{requests}", REQUESTS)
        .replace("{name}", NAME)
        .replace("{b}", BUCKET)
        .replace("{begin}", BEGIN)
        .replace("{check}", CHECK)
        .replace(
            "{lock}",
            "SELECT last INTO v_answer FROM fencelock_bucket WHERE b = v_b FOR UPDATE;\n        IF v_answer IS NULL {interrupted}\n        SET v_answer = NULL;",
        )
        .replace("{one}", "IF ROW_COUNT() <> 1 {interrupted}")
        .replace("{bell}", "LENGTH(p_bell) = 26 AND LEFT(p_bell, 10) = 'fencelock_' AND NOT LOCATE(',', p_bell)")
        .replace("{us}", US)
        .replace("{interrupted}", INTERRUPTED)
        .replace("{refused}", REFUSED);
    let statements = all.split("\n//\n").map(str::trim).filter(|statement| !statement.is_empty());
    let dropped = |statement| procedures_of(statement).next().map(|name| format!("DROP PROCEDURE IF EXISTS {name}"));
    statements.flat_map(|statement| dropped(statement).into_iter().chain([statement.to_owned()])).collect()
}

pub(super) fn grants(config: &Config, account: &str) -> Vec<String> {
    let (account, database) = (self::account(account), format!("`{}`", config.database.replace('`', "``")));
    procedures()
        .filter(|name| !name.starts_with("fencelock__"))
        .map(|name| format!("GRANT EXECUTE ON PROCEDURE {database}.{name} TO {account}"))
        .collect()
}

pub(super) fn account(text: &str) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"));
    let (user, host) = text.rsplit_once('@').unwrap_or((text, "%"));
    format!("{}@{}", quoted(user), quoted(host))
}

fn procedures() -> impl Iterator<Item = &'static str> {
    procedures_of(include_str!("schema.sql"))
}

fn procedures_of(text: &str) -> impl Iterator<Item = &str> {
    let made = text.split("CREATE PROCEDURE ").skip(1);
    made.filter_map(|text| text.split_once('(').map(|(name, _)| name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_have_what_is_needed_are_known_by_their_version() {
        for version in
            ["10.6.0-MariaDB", "5.5.5-10.11.19-MariaDB-0+deb12u1", "11.4.5-MariaDB", "8.0.36", "8.4.0", "9.1.0-log"]
        {
            assert!(is_known(version), "{version}");
        }
        for version in ["10.5.23-MariaDB", "5.5.5-10.3.1-MariaDB", "5.7.44-log", "", "x"] {
            assert!(!is_known(version), "{version}");
        }
    }

    #[test]
    fn nothing_is_left_to_be_filled_in_and_the_version_is_made_last() {
        let statements = statements();
        assert!(statements.iter().all(|statement| !statement.replace("'{}'", "").contains('{')));
        assert!(statements[statements.len() - 2].contains("CREATE PROCEDURE fencelock_version()"));
        let made = statements.iter().filter(|statement| statement.contains("CREATE PROCEDURE")).count();
        let dropped = statements.iter().filter(|statement| statement.contains("DROP PROCEDURE IF EXISTS")).count();
        assert_eq!((made, dropped), (procedures().count(), procedures().count()));
    }
    /// A read in a condition or an assignment locks its rows, at every isolation level; `SELECT … INTO` locks none.
    #[test]
    fn no_condition_and_no_assignment_reads_a_table() {
        for line in include_str!("schema.sql").lines().map(str::trim).filter(|line| !line.starts_with("--")) {
            let reads = line.contains("(SELECT")
                && ["IF ", "ELSEIF ", "SET ", "WHILE "].iter().any(|word| line.starts_with(word));
            assert!(!reads, "{line}");
        }
    }
}
