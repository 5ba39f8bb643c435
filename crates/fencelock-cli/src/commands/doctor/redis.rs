//! The questions to a Redis server, or to one of several masters.

use super::checks::{Check, Facts, Room, Severity, checks};

pub(super) const ROOM: Room = Room {
    questions: &["INFO", "TIME", "CONFIG GET timeout", "CONFIG GET save", "CONFIG GET appendfsync"],
    read,
    checks: CHECKS,
};

fn read(facts: &mut Facts, answers: &[fencelock::Result<String>]) -> Result<(), String> {
    let time = answers[1].as_ref().ok().and_then(|time| time.split_once('\n'));
    if let Some((Ok(seconds), Ok(micros))) =
        time.map(|(seconds, micros)| (seconds.parse::<f64>(), micros.parse::<f64>()))
    {
        facts.set("time_ms", seconds * 1e3 + micros / 1e3);
    }
    answers[2..].iter().filter_map(|answer| answer.as_ref().err()).for_each(|error| facts.set("refused", error));
    Ok(())
}

/// Whether the store follows a failover: the URL names nodes of a Cluster, some of which are replicas, or Sentinels.
fn follows(facts: &Facts) -> bool {
    ["+cluster", "+sentinel"].iter().any(|kind| facts.text("scheme").ends_with(kind))
}

checks! {
    Problem, |facts| {
        let (policy, has_limit) = (facts.text("maxmemory_policy"), facts.above_nothing("maxmemory").is_some());
        (policy.starts_with("allkeys") || has_limit && policy.starts_with("volatile")).then(|| format!("maxmemory-policy is {policy}"))
    }, "the server deletes keys when it is full, and locks that are held with them", "maxmemory-policy noeviction";
    Warning, |facts| Some(format!("{} bytes (maxmemory) are in use", facts.nearly("used_memory", "maxmemory")?)),
        "a full server refuses writes: no client gets a lock", "more maxmemory, or another server for locks";
    Warning, |facts| {
        let what = if facts.text("save").is_empty() { "keeps nothing on disk" } else { "keeps snapshots only" };
        facts.is("aof_enabled", "0").then(|| format!("the server {what} (appendonly no)"))
    }, "a restart forgets locks that are held: others may be granted before their holders are notified", "appendonly yes and appendfsync always, or let what the locks protect refuse old tokens";
    Note, |facts| {
        let often = facts.text("appendfsync");
        (facts.is("aof_enabled", "1") && !matches!(often, "always" | "")).then(|| format!("appendfsync is {often}"))
    }, "a crash of the host forgets the grants of the last second", "appendfsync always, if that is worth the slower writes";
    Problem, |facts| facts.must_not("aof_last_write_status", "err").or(facts.must_not("rdb_last_bgsave_status", "err")),
        "the server refuses writes, or forgets locks when it is restarted", "room on its disk, and the right to write there";
    Problem, |facts| (facts.is("role", "slave") && !follows(facts)).then(|| "this is a replica".to_owned()),
        "a replica takes no writes, and its copy is late", "the address of the master";
    Warning, |facts| Some(format!("{} replicas copy this server", facts.above_nothing("connected_slaves")?)).filter(|_| facts.is("role", "master") && !follows(facts)),
        "a replica that is promoted does not know the last grants, and grants them again", "no automatic failover for locks, or redlock: over independent masters";
    Problem, |facts| (facts.is("cluster_enabled", "1") && !follows(facts)).then(|| "this is a node of a Cluster".to_owned()),
        "this URL does not follow slots that move", "redis+cluster://host1:6379,host2,host3";
    Warning, |facts| Some(format!("timeout is {}: so many seconds may a connection be idle", facts.above_nothing("timeout")?)),
        "a waiting client is idle: the server cuts it off again and again, and it receives its grant later", "timeout 0, and tcp-keepalive 60";
    Warning, |facts| Some(format!("{} connections (maxclients) are in use", facts.nearly("connected_clients", "maxclients")?)),
        "a client that cannot connect cannot renew: its locks are lost", "a higher maxclients, or fewer clients";
    Note, |facts| Some(format!("the server is Redis {}", facts.older("redis_version", (6, 2))?)),
        "releases before 6.2 get no corrections any more", "Redis 7 or newer, or Valkey";
    Note, |facts| Some(format!("CONFIG GET is refused: {}", facts.said("refused")?)),
        "timeout, save and appendfsync were not seen", "the right to run CONFIG GET for who runs this, or look by hand";
    Warning, |facts| {
        let count = facts.number("servers").filter(|_| facts.is("scheme", "redlock") || facts.is("scheme", "redlocks"))?;
        (count < 3.0 || count % 2.0 == 0.0).then(|| format!("there are {count} masters"))
    }, "a quorum survives the loss of one master from three on; an even number survives no more than one less", "3 or 5 masters";
}
