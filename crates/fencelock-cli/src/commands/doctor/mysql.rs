//! What a MariaDB or MySQL server is asked.

use std::net::IpAddr;
use std::time::SystemTime;

use fencelock::capability::StoreUrl;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, OptsBuilder};

use super::TLS;
use super::checks::{Check, Facts, Severity, checks};

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
    let mut url = url.clone();
    let (host, port) = match server.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>())) {
        Some((host, Ok(port))) => (host.trim_matches(['[', ']']), port),
        _ => (server.trim_matches(['[', ']']), 3306),
    };
    let socket = url.take("socket");
    // As the library has it: nothing is sent in the clear to other hosts unless somebody said so.
    let is_here = socket.is_some() || host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    if !url.take("sslmode").map_or(is_here, |mode| mode == "disable") {
        return Err(TLS.to_owned());
    }
    let credentials = url.credentials().unwrap_or_default().to_owned();
    let (user, password) = credentials.split_once(':').unwrap_or((&credentials, ""));
    let user = Some(user.to_owned()).filter(|user| !user.is_empty()).or_else(|| url.take("user"));
    let password = match url.take("password_file") {
        Some(file) => std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?.trim_end().to_owned(),
        None => url.take("password").unwrap_or(password.to_owned()),
    };
    let options = OptsBuilder::default().user(user).pass(Some(password)).prefer_socket(false);
    let options = match socket {
        Some(path) => options.socket(Some(path)),
        None => options.ip_or_hostname(host).tcp_port(port),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_password_is_not_sent_in_the_clear_to_another_host() {
        for url in ["mysql://u:p@203.0.113.1/x", "mysql://u:p@localhost/x?sslmode=verify-full"] {
            let url = StoreUrl::parse(url).unwrap();
            assert_eq!(facts(&url, url.authority()).await.unwrap_err(), TLS);
        }
    }
}
