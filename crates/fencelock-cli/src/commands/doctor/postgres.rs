//! The questions to a PostgreSQL server.

use std::io;
use std::time::SystemTime;

use fencelock::capability::StoreUrl;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_postgres::{Config, NoTls, SimpleQueryMessage};

use super::checks::{Check, Facts, Severity, checks};
use super::tls;
use super::way::Way;

/// Each row is the name of a fact and its value. No operator resolves in a schema where another role may have planted one.
const QUESTIONS: &str = "\
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
    UNION ALL SELECT 'time', (extract(epoch FROM clock_timestamp()) * 1000)::text";

pub(super) async fn facts(url: &StoreUrl, server: &str) -> Result<Facts, String> {
    let said = |error: tokio_postgres::Error| {
        std::error::Error::source(&error).map_or(error.to_string(), |why| format!("{error}: {why}"))
    };
    let Way { host, port, user, password, is_encrypted } = Way::of(url, server, "host", 5432)?;
    let tls = is_encrypted.then(|| tls::of(url)).transpose()?;
    let database = Some(url.path().trim_start_matches('/')).filter(|database| !database.is_empty()).unwrap_or(&user);
    let mut config = Config::new();
    config.host(&host).port(port).user(&user).password(password).dbname(database);
    let client = match tls {
        None => {
            let (client, connection) = config.connect(NoTls).await.map_err(said)?;
            tokio::spawn(connection);
            client
        }
        Some(tls) => {
            let stream = asked_for_tls(&host, port).await.map_err(|error| error.to_string())?;
            let stream = tls.wrap(Box::new(stream), &host).await.map_err(|error| error.to_string())?;
            let (client, connection) = config.connect_raw(stream, NoTls).await.map_err(said)?;
            tokio::spawn(connection);
            client
        }
    };
    let mut facts = Facts::default();
    facts.set("dialled", port);
    let asked = SystemTime::now();
    for message in client.simple_query(QUESTIONS).await.map_err(said)? {
        if let SimpleQueryMessage::Row(row) = message {
            facts.set(row.get(0).unwrap_or_default(), row.get(1).unwrap_or_default());
        }
    }
    facts.number("time").into_iter().for_each(|time| facts.set_clock(time, asked));
    Ok(facts)
}

async fn asked_for_tls(host: &str, port: u16) -> io::Result<TcpStream> {
    /// The request that every conversation over TLS begins with: its length and a number.
    const REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
    let mut stream = TcpStream::connect((host, port)).await?;
    stream.write_all(&REQUEST).await?;
    match stream.read_u8().await? {
        b'S' => Ok(stream),
        _ => Err(io::Error::other("it does not encrypt")),
    }
}

checks! {
    Problem, |facts| facts.must_not("fsync", "off"),
        "a crash of the host can destroy the database, and the locks with it", "fsync = on";
    Warning, |facts| facts.must_not("full_page_writes", "off"),
        "a crash of the host can tear pages of the tables that locks are kept in", "full_page_writes = on";
    Note, |facts| facts.must_not("synchronous_commit", "off"),
        "fencelock switches it on for itself; what the locks protect is committed without waiting for the disk", "synchronous_commit = on";
    Problem, |facts| facts.is("recovery", "true").then(|| "this server is in recovery: a standby".to_owned()),
        "a standby takes no writes", "the address of the primary, or all hosts in the URL";
    Problem, |facts| facts.must_not("default_transaction_read_only", "on"),
        "nobody can take a lock in transactions that only read", "default_transaction_read_only = off";
    Warning, |facts| {
        let count = facts.above_nothing("standbys")?;
        facts.text("synchronous_standby_names").is_empty().then(|| format!("{count} standbys copy this server asynchronously"))
    }, "one that is promoted may not know the last grants: nobody is granted a lock until the longest ttl has passed", "synchronous_standby_names, and synchronous_commit = on";
    Warning, |facts| Some(format!("a transaction that may hold a lock does nothing: {}", facts.said("idle")?)),
        "with `hold`, it keeps the lock from every other client, also when its holder is dead", "pg_terminate_backend(process), or a lower limit (the third argument of `hold`)";
    Warning, |facts| Some(format!("the owner of the functions of the locks may not call {}", facts.said("blind")?)),
        "the server is told from a promoted or restored one by its start alone: after each start, no client is granted a lock until the longest ttl has passed",
        "GRANT EXECUTE ON FUNCTION for it, to the owner of the schema of the locks";
    Note, |facts| Some(format!("idle_session_timeout is {} ms", facts.above_nothing("idle_session_timeout")?)),
        "fencelock switches it off for its own connections; a session of psql that holds a lock is ended by it", "idle_session_timeout = 0 for the roles that hold locks";
    Warning, |facts| Some(format!("{} connections (max_connections) are in use", facts.nearly("connections", "max_connections")?)),
        "a client that cannot connect cannot renew: its locks are lost", "a higher max_connections, or fewer clients";
    Note, |facts| {
        let (port, dialled) = (facts.number("port")?, facts.number("dialled")?);
        (port != dialled).then(|| format!("the server listens on port {port} and was reached by {dialled}: a pooler or proxy is between"))
    }, "it may close idle connections, and behind a pooler waiting clients look every 50 ms", "no idle limit there, or the server's own address";
    Note, |facts| (facts.number("server_version_num")? < 140_000.0).then(|| "the server is older than PostgreSQL 14".to_owned()),
        "releases before 14 get no corrections any more", "a release that is maintained";
}
