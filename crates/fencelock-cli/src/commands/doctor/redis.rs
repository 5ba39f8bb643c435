//! The questions to a Redis server, or to one of several masters.

use std::time::SystemTime;

use fencelock::capability::StoreUrl;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, IntoConnectionInfo as _, RedisConnectionInfo};

use super::checks::{Check, Facts, Severity, checks};
use super::tls;
use super::way::Way;

const SETTINGS: [&str; 3] = ["timeout", "save", "appendfsync"];

pub(super) async fn facts(url: &StoreUrl, server: &str) -> Result<Facts, String> {
    let said = |error: redis::RedisError| error.to_string();
    if url.credentials().is_some_and(|given| given.contains('@')) {
        return Err("each master has credentials of its own".to_owned());
    }
    let Way { host, port, user, password, .. } = Way::of(url, server, "", 6379)?;
    let mut identity = RedisConnectionInfo::default();
    identity = if user.is_empty() { identity } else { identity.set_username(user) };
    identity = if password.is_empty() { identity } else { identity.set_password(password) };
    let address = match url.scheme() {
        "redis+unix" => ConnectionAddr::Unix(server.into()),
        _ => ConnectionAddr::Tcp(host, port),
    };
    let mut connection = match address {
        ConnectionAddr::Tcp(host, port) if matches!(url.scheme(), "rediss" | "rediss+cluster" | "redlocks") => {
            let stream = tls::dial(Some(&tls::of(url)?), &host, port).await?;
            let (connection, driver) =
                MultiplexedConnection::new_with_config(&identity, stream, AsyncConnectionConfig::default())
                    .await
                    .map_err(said)?;
            // The driver ends with the connection.
            tokio::spawn(driver);
            connection
        }
        address => {
            let info = address.into_connection_info().map_err(said)?.set_redis_settings(identity);
            redis::Client::open(info).map_err(said)?.get_multiplexed_async_connection().await.map_err(said)?
        }
    };
    let mut facts = Facts::default();
    let info: String = redis::cmd("INFO").query_async(&mut connection).await.map_err(said)?;
    facts.read(&info, ':');
    let asked = SystemTime::now();
    if let Ok((seconds, micros)) = redis::cmd("TIME").query_async::<(f64, f64)>(&mut connection).await {
        facts.set_clock(seconds * 1e3 + micros / 1e3, asked);
    }
    for name in SETTINGS {
        match redis::cmd("CONFIG").arg("GET").arg(name).query_async::<Vec<String>>(&mut connection).await {
            Ok(pair) => facts.set(&format!("config_{name}"), pair.get(1).map_or("", String::as_str)),
            Err(error) => facts.set("config_refused", error),
        }
    }
    Ok(facts)
}

/// Whether the URL names nodes of a Cluster, some of which are replicas.
fn is_in_cluster(facts: &Facts) -> bool {
    facts.is("scheme", "redis+cluster") || facts.is("scheme", "rediss+cluster")
}

checks! {
    Problem, |facts| {
        let (policy, has_limit) = (facts.text("maxmemory_policy"), facts.above_nothing("maxmemory").is_some());
        (policy.starts_with("allkeys") || has_limit && policy.starts_with("volatile")).then(|| format!("maxmemory-policy is {policy}"))
    }, "the server deletes keys when it is full, and locks that are held with them", "maxmemory-policy noeviction";
    Warning, |facts| Some(format!("{} bytes (maxmemory) are in use", facts.nearly("used_memory", "maxmemory")?)),
        "a full server refuses writes: nobody gets a lock", "more maxmemory, or another server for locks";
    Warning, |facts| {
        let what = if facts.text("config_save").is_empty() { "keeps nothing on disk" } else { "keeps snapshots only" };
        facts.is("aof_enabled", "0").then(|| format!("the server {what} (appendonly no)"))
    }, "a restart forgets locks that are held: others may be granted before their holders are told", "appendonly yes and appendfsync always, or let what the locks protect refuse old tokens";
    Note, |facts| {
        let often = facts.text("config_appendfsync");
        (facts.is("aof_enabled", "1") && !matches!(often, "always" | "")).then(|| format!("appendfsync is {often}"))
    }, "a crash of the host forgets the grants of the last second", "appendfsync always, if that is worth the slower writes";
    Problem, |facts| facts.must_not("aof_last_write_status", "err").or(facts.must_not("rdb_last_bgsave_status", "err")),
        "the server refuses writes, or forgets locks when it is restarted", "room on its disk, and the right to write there";
    Problem, |facts| (facts.is("role", "slave") && !is_in_cluster(facts)).then(|| "this is a replica".to_owned()),
        "a replica takes no writes, and its copy is late", "the address of the master";
    Warning, |facts| Some(format!("{} replicas copy this server", facts.above_nothing("connected_slaves")?)).filter(|_| facts.is("role", "master") && !is_in_cluster(facts)),
        "a replica that is promoted does not know the last grants, and grants them again", "no automatic failover for locks, or redlock: over independent masters";
    Problem, |facts| (facts.is("cluster_enabled", "1") && !is_in_cluster(facts)).then(|| "this is a node of a Cluster".to_owned()),
        "this URL does not follow slots that move", "redis+cluster://host1:6379,host2,host3";
    Warning, |facts| Some(format!("timeout is {}: so many seconds may a connection be idle", facts.above_nothing("config_timeout")?)),
        "who waits for a lock is idle: it is cut off again and again, and hears later of its grant", "timeout 0, and tcp-keepalive 60";
    Warning, |facts| Some(format!("{} connections (maxclients) are in use", facts.nearly("connected_clients", "maxclients")?)),
        "a client that cannot connect cannot renew: its locks are lost", "a higher maxclients, or fewer clients";
    Note, |facts| {
        let version = facts.text("redis_version");
        let parts: Vec<u32> = version.split('.').filter_map(|part| part.parse().ok()).collect();
        matches!(parts[..], [major, minor, ..] if (major, minor) < (6, 2)).then(|| format!("the server is Redis {version}"))
    }, "releases before 6.2 get no corrections any more", "Redis 7 or newer, or Valkey";
    Note, |facts| Some(format!("CONFIG GET is refused: {}", facts.text("config_refused"))).filter(|_| !facts.text("config_refused").is_empty()),
        "timeout, save and appendfsync were not seen", "the right to run CONFIG GET for who runs this, or look by hand";
    Warning, |facts| {
        let count = facts.number("servers").filter(|_| facts.is("scheme", "redlock") || facts.is("scheme", "redlocks"))?;
        (count < 3.0 || count % 2.0 == 0.0).then(|| format!("there are {count} masters"))
    }, "a quorum survives the loss of one master from three on; an even number survives no more than one less", "3 or 5 masters";
}
