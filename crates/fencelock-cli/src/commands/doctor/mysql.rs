//! The questions to a MariaDB or MySQL server.

use super::checks::{Check, Room, Severity, checks};

pub(super) const ROOM: Room = Room {
    // Not every server has every setting.
    questions: &[
        "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin', \
         'wait_timeout', 'max_connections')",
        "SHOW GLOBAL STATUS LIKE 'Threads_connected'",
        "SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_%r_status'",
        "SELECT 'replicas', COUNT(*) FROM information_schema.processlist WHERE COMMAND LIKE 'Binlog Dump%'",
        "SELECT 'time_ms', UNIX_TIMESTAMP(SYSDATE(6)) * 1000e0",
    ],
    read: |_, _| Ok(()),
    checks: CHECKS,
};

checks! {
    Warning, |facts| {
        let when = facts.text("innodb_flush_log_at_trx_commit");
        matches!(when, "0" | "2").then(|| format!("innodb_flush_log_at_trx_commit is {when}"))
    }, "a crash forgets the grants of the last second: two may hold one lock", "innodb_flush_log_at_trx_commit = 1";
    Warning, |facts| {
        let count = facts.above_nothing("replicas")?;
        let is_waited_for = ["Rpl_semi_sync_master_status", "Rpl_semi_sync_source_status"].iter().any(|name| facts.is(name, "ON"));
        (!is_waited_for).then(|| format!("{count} replicas copy this server asynchronously"))
    }, "a replica that is promoted may lack the last grants: no client is granted a lock until the longest ttl has passed", "semi-synchronous replication";
    Note, |facts| (facts.is("log_bin", "ON") && !facts.is("sync_binlog", "1")).then(|| format!("sync_binlog is {}", facts.text("sync_binlog"))),
        "after a crash a replica may know less or more than this server", "sync_binlog = 1";
    Note, |facts| Some(format!("wait_timeout is {} s", facts.number("wait_timeout").filter(|seconds| *seconds < 600.0)?)),
        "fencelock sets its own; a program that checks its lock in its own connection may find that closed", "a longer wait_timeout, as the default of 28800";
    Warning, |facts| Some(format!("{} connections (max_connections) are in use", facts.nearly("Threads_connected", "max_connections")?)),
        "a session that waits has two connections, and one that cannot connect cannot renew: its locks are lost", "a higher max_connections, or fewer clients";
}
