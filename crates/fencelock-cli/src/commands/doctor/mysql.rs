//! The questions to a MariaDB or MySQL server.

use std::path::PathBuf;
use std::time::SystemTime;

use fencelock::capability::StoreUrl;
use mysql_async::prelude::Queryable as _;
use mysql_async::{ClientIdentity, Conn, OptsBuilder, SslOpts};

use super::checks::{Check, Facts, Severity, checks};
use super::way::Way;

/// Each has the name of a fact and its value. Not every server has every setting.
const QUESTIONS: [&str; 4] = [
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin', \
     'wait_timeout', 'max_connections')",
    "SHOW GLOBAL STATUS LIKE 'Threads_connected'",
    "SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_%r_status'",
    "SELECT 'replicas', COUNT(*) FROM information_schema.processlist WHERE COMMAND LIKE 'Binlog Dump%'",
];

pub(super) async fn facts(url: &StoreUrl, server: &str) -> Result<Facts, String> {
    let said = |error: mysql_async::Error| error.to_string();
    let Way { host, port, user, password, is_encrypted } = Way::of(url, server, "socket", 3306)?;
    let tls = is_encrypted.then(|| encrypted(url)).transpose()?;
    let user = Some(user).filter(|user| !user.is_empty());
    let options = OptsBuilder::default().user(user).pass(Some(password)).prefer_socket(false).ssl_opts(tls);
    let options = match host.starts_with('/') {
        true => options.socket(Some(host)),
        false => options.ip_or_hostname(host).tcp_port(port),
    };
    let mut connection = Conn::new(options).await.map_err(said)?;
    let mut facts = Facts::default();
    for question in QUESTIONS {
        for (name, value) in connection.query::<(String, String), _>(question).await.map_err(said)? {
            facts.set(&name.to_ascii_lowercase(), value);
        }
    }
    let asked = SystemTime::now();
    let time: Option<f64> = connection.query_first("SELECT UNIX_TIMESTAMP(SYSDATE(6)) * 1000e0").await.map_err(said)?;
    time.into_iter().for_each(|time| facts.set_clock(time, asked));
    let _ = connection.disconnect().await;
    Ok(facts)
}

/// TLS as the library asks for it, which has chosen the process's provider by now: the driver reads the files when it connects.
fn encrypted(url: &StoreUrl) -> Result<SslOpts, String> {
    let mut url = url.clone();
    let mut file = |option| url.take(option).map(PathBuf::from);
    let roots = match file("tls_ca") {
        Some(path) => {
            std::fs::metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            vec![path.into()]
        }
        None => {
            let found = rustls_native_certs::load_native_certs().certs;
            found.into_iter().map(|certificate| certificate.to_vec().into()).collect()
        }
    };
    let identity =
        file("tls_cert").zip(file("tls_key")).map(|(chain, key)| ClientIdentity::new(chain.into(), key.into()));
    Ok(SslOpts::default().with_root_certs(roots).with_disable_built_in_roots(true).with_client_identity(identity))
}

checks! {
    Warning, |facts| {
        let when = facts.text("innodb_flush_log_at_trx_commit");
        matches!(when, "0" | "2").then(|| format!("innodb_flush_log_at_trx_commit is {when}"))
    }, "a crash forgets the grants of the last second: two may hold one lock", "innodb_flush_log_at_trx_commit = 1";
    Warning, |facts| {
        let count = facts.above_nothing("replicas")?;
        let is_waited_for = ["rpl_semi_sync_master_status", "rpl_semi_sync_source_status"].iter().any(|name| facts.is(name, "ON"));
        (!is_waited_for).then(|| format!("{count} replicas copy this server asynchronously"))
    }, "one that is promoted may not know the last grants: nobody is granted a lock until the longest ttl has passed", "semi-synchronous replication";
    Note, |facts| (facts.is("log_bin", "ON") && !facts.is("sync_binlog", "1")).then(|| format!("sync_binlog is {}", facts.text("sync_binlog"))),
        "after a crash a replica may know less or more than this server", "sync_binlog = 1";
    Note, |facts| Some(format!("wait_timeout is {} s", facts.number("wait_timeout").filter(|seconds| *seconds < 600.0)?)),
        "fencelock sets its own; a program that checks its lock in its own connection may find that closed", "a longer wait_timeout, as the default of 28800";
    Warning, |facts| Some(format!("{} connections (max_connections) are in use", facts.nearly("threads_connected", "max_connections")?)),
        "a session that waits has two connections, and one that cannot connect cannot renew: its locks are lost", "a higher max_connections, or fewer clients";
}
