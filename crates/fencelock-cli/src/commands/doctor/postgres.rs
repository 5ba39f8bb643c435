//! The questions to a PostgreSQL server.

use super::checks::{Check, Room, Severity, checks};

/// Each row is the name of a fact and its value. No operator resolves in a schema where another role may have planted one.
const QUESTION: &str = "\
    SET LOCAL search_path = pg_catalog, pg_temp; SELECT name, setting FROM pg_settings WHERE name IN ('server_version_num', 'fsync', 'full_page_writes', 'synchronous_commit', \
        'synchronous_standby_names', 'idle_session_timeout', 'max_connections', 'default_transaction_read_only', 'port') \
    UNION ALL SELECT 'recovery', pg_is_in_recovery()::text \
    UNION ALL SELECT 'connections', (SELECT count(*)::text FROM pg_stat_activity WHERE backend_type = 'client backend') \
    UNION ALL SELECT 'standbys', (SELECT count(*)::text FROM pg_stat_replication) \
    UNION ALL SELECT 'blind', (SELECT string_agg(f.call, ' and ') FROM pg_proc AS p, (VALUES ('pg_control_system()'), ('pg_walfile_name(pg_lsn)'), \
        ('pg_current_wal_lsn()')) AS f (call) WHERE p.proname = '_mark' AND p.pronargs = 0 AND NOT has_function_privilege(p.proowner, f.call, 'EXECUTE')) \
    UNION ALL SELECT 'idle', (SELECT string_agg(DISTINCT format('%s (process %s of the server, %s since %s)', a.application_name, a.pid, a.state, a.state_change), ', ') \
        FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation JOIN pg_stat_activity AS a ON a.pid = l.pid WHERE c.relname = 'place' AND a.datname = current_database() \
        AND l.mode = 'RowShareLock' AND a.state LIKE 'idle in transaction%' AND a.state_change < clock_timestamp() - interval '1 second') \
    UNION ALL SELECT 'time_ms', (extract(epoch FROM clock_timestamp()) * 1000)::text";

pub(super) const ROOM: Room = Room { questions: &[QUESTION], read: |_, _| Ok(()), checks: CHECKS };

checks! {
    Problem, |facts| facts.must_not("fsync", "off"),
        "a crash of the host can destroy the database, and the locks with it", "fsync = on";
    Warning, |facts| facts.must_not("full_page_writes", "off"),
        "a crash of the host can tear pages of the tables that locks are kept in", "full_page_writes = on";
    Note, |facts| facts.must_not("synchronous_commit", "off"),
        "fencelock switches it on for itself; the protected data is committed without waiting for the disk", "synchronous_commit = on";
    Problem, |facts| facts.is("recovery", "true").then(|| "this server is in recovery: a standby".to_owned()),
        "a standby takes no writes", "the address of the primary, or all hosts in the URL";
    Problem, |facts| facts.must_not("default_transaction_read_only", "on"),
        "no client can take a lock in transactions that only read", "default_transaction_read_only = off";
    Warning, |facts| {
        let count = facts.above_nothing("standbys")?;
        facts.text("synchronous_standby_names").is_empty().then(|| format!("{count} standbys copy this server asynchronously"))
    }, "a standby that is promoted may lack the last grants: no client is granted a lock until the longest ttl has passed", "synchronous_standby_names, and synchronous_commit = on";
    Warning, |facts| Some(format!("a transaction that may hold a lock does nothing: {}", facts.said("idle")?)),
        "with `hold`, it keeps the lock from every other client, also when its holder is dead", "pg_terminate_backend(process), or a lower limit (the third argument of `hold`)";
    Warning, |facts| Some(format!("the owner of the functions of the locks may not call {}", facts.said("blind")?)),
        "fencelock cannot distinguish a restarted server from a promoted or restored one: after each start, no client is granted a lock until the longest ttl has passed",
        "GRANT EXECUTE ON FUNCTION for it, to the owner of the schema of the locks";
    Note, |facts| Some(format!("idle_session_timeout is {} ms", facts.above_nothing("idle_session_timeout")?)),
        "fencelock switches it off for its own connections; a session of psql that holds a lock is ended by it", "idle_session_timeout = 0 for the roles that hold locks";
    Warning, |facts| Some(format!("{} connections (max_connections) are in use", facts.nearly("connections", "max_connections")?)),
        "a client that cannot connect cannot renew: its locks are lost", "a higher max_connections, or fewer clients";
    Note, |facts| {
        let (port, dialled) = (facts.number("port")?, facts.text("server").rsplit([':', '=']).next()?);
        let dialled: f64 = dialled.split('/').next()?.parse().ok()?;
        (port != dialled).then(|| format!("the server listens on port {port} and was reached by {dialled}: a pooler or proxy is between"))
    }, "it may close idle connections, and behind a pooler waiting clients look every 50 ms", "no idle limit there, or the server's own address";
    Note, |facts| (facts.number("server_version_num")? < 140_000.0).then(|| "the server is older than PostgreSQL 14".to_owned()),
        "releases before 14 get no corrections any more", "a release that is maintained";
}
