//! Reads a server's INFO, and checks whether the server can keep locks.

use std::time::Duration;

use redis::Value;

use super::config::{Config, Naming};
use crate::error::{Error, ErrorKind, Result};

/// The oldest release that speaks RESP3.
const OLDEST: (u32, u32) = (6, 0);

/// The `run_id`, which is new after every start, and the id of the replication stream that the server took over at its promotion: a server
/// that was a replica meanwhile has another one.
pub(crate) type Era = (String, Option<String>);

/// The fields of `INFO`. A missing field is `None`: the user may not run INFO.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    version: Option<(u32, u32)>,
    mode: Option<String>,
    role: Option<String>,
    primary: Option<String>,
    /// New after every start.
    pub(crate) run_id: Option<String>,
    /// The id of the replication stream to its replicas; a replica has the id of its primary.
    pub(crate) replication: Option<String>,
    /// The id of the stream that it received until its last promotion; `None` without one, or forgotten after an hour without replicas.
    pub(crate) promoted_from: Option<String>,
    /// The age of the process, in whole seconds. The server computes the age from its wall clock, which may be set.
    uptime: Option<Duration>,
    loading: bool,
    /// The limit for all keys, in bytes; 0 for no limit.
    memory_limit: u64,
    eviction: Option<String>,
}

impl Server {
    /// Reads an answer to `INFO`.
    pub(crate) fn answered(info: Value) -> Self {
        match info {
            Value::BulkString(info) => Self::read(&String::from_utf8_lossy(&info)),
            Value::VerbatimString { text, .. } => Self::read(&text),
            _ => Self::default(),
        }
    }

    fn read(info: &str) -> Self {
        let field = |name: &str| {
            let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            Some(value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        let primary = field("master_host").zip(field("master_port")).map(|(host, port)| format!("{host}:{port}"));
        Self {
            version: field("redis_version").and_then(|version| parse_version(&version)),
            // Valkey has another name for it.
            mode: field("redis_mode").or_else(|| field("server_mode")),
            role: field("role"),
            primary,
            run_id: field("run_id"),
            replication: field("master_replid"),
            promoted_from: field("master_replid2").filter(|from| from.bytes().any(|byte| byte != b'0')),
            uptime: field("uptime_in_seconds").and_then(|uptime| uptime.parse().ok()).map(Duration::from_secs),
            loading: field("loading").is_some_and(|loading| loading == "1"),
            memory_limit: field("maxmemory").and_then(|bytes| bytes.parse().ok()).unwrap_or(0),
            eviction: field("maxmemory_policy"),
        }
    }

    /// Whether another server grants locks.
    pub(crate) fn is_replica(&self) -> bool {
        self.role.as_deref() == Some("slave")
    }

    pub(crate) fn is_same_process(&self, other: &Self) -> bool {
        self.run_id.is_some() && self.run_id == other.run_id
    }

    /// The server between two of its promotions; `None` if INFO does not say.
    pub(crate) fn era(&self) -> Option<Era> {
        Some((self.run_id.clone()?, self.promoted_from.clone()))
    }

    /// Whether the server already ran `ago`. The server's age and start are whole seconds, so the answer needs two seconds more.
    pub(crate) fn ran_before(&self, ago: Duration) -> bool {
        self.uptime.is_some_and(|uptime| uptime > ago.saturating_add(Duration::from_secs(2)))
    }

    /// The rest of `time` since the server's start. The server's age and start are whole seconds, so the rest is two seconds longer.
    /// Without an age, the rest is all of the time.
    pub(crate) fn rest_of(&self, time: Duration) -> Duration {
        let uptime = self.uptime.unwrap_or_default();
        time.saturating_add(Duration::from_secs(2)).saturating_sub(uptime).min(time)
    }

    /// Refuses a server that cannot keep locks, or, with `only_looks`, cannot show any. The error names the alternative.
    pub(super) fn check(&self, config: &Config, only_looks: bool) -> Result<()> {
        let refuse =
            |kind, message: &'static str| Error::new(kind, "connect", message).with("server", format!("{config:?}"));
        match self.mode.as_deref() {
            Some("sentinel") => {
                let message = "this is a Sentinel, which keeps no locks: write redis+sentinel://host1:26379,host2,host3/NAME with the name that the Sentinels call the primary by";
                return Err(refuse(ErrorKind::Unsupported, message));
            }
            Some("cluster") if config.naming != Naming::Cluster => {
                let message = "this is a node of a Redis Cluster: write redis+cluster://host1:6379,host2,host3 with some of its nodes";
                return Err(refuse(ErrorKind::Unsupported, message));
            }
            Some(mode) if config.naming == Naming::Cluster && mode != "cluster" => {
                return Err(refuse(ErrorKind::Unreachable, "this server is no node of a Redis Cluster").retryable());
            }
            _ => {}
        }
        if let Some(version) = self.version.filter(|version| *version < OLDEST) {
            let message = "the server is too old: use Redis 6.0 or newer, or Valkey";
            let version = format!("{}.{}", version.0, version.1);
            return Err(refuse(ErrorKind::Unsupported, message).with("version", version));
        }
        if self.loading {
            return Err(refuse(ErrorKind::Unreachable, "the server is still loading its data").retryable());
        }
        if only_looks {
            return Ok(());
        }
        if self.is_replica() {
            let message = "this is a replica, which takes no locks: name its primary, or an address that follows it";
            // An address may lead to the primary soon: name servers and proxies follow a failover late.
            let leads_there = config.naming != Naming::Master;
            let error = refuse(if leads_there { ErrorKind::Unreachable } else { ErrorKind::Denied }, message);
            let error = error.with("primary", self.primary.as_deref().unwrap_or("unknown"));
            return Err(if leads_there { error.retryable() } else { error });
        }
        if matches!(config.naming, Naming::Sentinels | Naming::Cluster) && self.role.is_none() {
            let message = "the user may not run INFO, so that nothing shows whether the server is the primary: `+info` in its rules";
            return Err(refuse(ErrorKind::Denied, message));
        }
        self.check_eviction().map_err(|error| error.with("server", format!("{config:?}")))
    }

    /// Refuses a server that evicts keys, and so locks, when its memory is full.
    fn check_eviction(&self) -> Result<()> {
        let Some(policy) = self.eviction.as_deref().filter(|policy| *policy != "noeviction") else { return Ok(()) };
        // A memory limit that is set later takes effect at once; clients with locks check only when they connect.
        if self.memory_limit == 0 && !policy.starts_with("allkeys") {
            tracing::warn!(
                policy,
                "With a memory limit, this server would evict locks. Set maxmemory-policy noeviction."
            );
            return Ok(());
        }
        let message = "the server throws keys away when it is full, or would with a memory limit, and locks with them: set `maxmemory-policy noeviction`, or use another server for locks";
        Err(Error::new(ErrorKind::Config, "connect", message)
            .with("maxmemory", self.memory_limit)
            .with("maxmemory_policy", policy))
    }
}

fn parse_version(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreUrl;

    const INFO: &str = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nrun_id:abc\r\n\r\n# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:volatile-lru\r\n# Persistence\r\nloading:0\r\n# Replication\r\nrole:master\r\n";

    fn check(changes: &[(&str, &str)]) -> Result<()> {
        let info = changes.iter().fold(INFO.to_owned(), |info, (from, to)| info.replace(from, to));
        Server::read(&info).check(&Config::from_url(StoreUrl::parse("redis://h1").unwrap(), &[]).unwrap(), false)
    }

    #[test]
    fn an_ordinary_primary_is_taken() {
        check(&[]).unwrap();
        check(&[("7.0.15", "unstable")]).unwrap();
        check(&[("maxmemory:0", "maxmemory:9"), ("volatile-lru", "noeviction")]).unwrap();
        assert_eq!(Server::read(INFO).run_id.as_deref(), Some("abc"));
        Server::read("").check(&Config::from_url(StoreUrl::parse("redis://h1").unwrap(), &[]).unwrap(), false).unwrap();
    }

    #[test]
    fn a_server_alone_at_the_address_of_a_node_of_a_cluster_is_refused_for_now() {
        let mut config = Config::from_url(StoreUrl::parse("redis://h1").unwrap(), &[]).unwrap();
        config.naming = Naming::Cluster;
        let error = Server::read(INFO).check(&config, false).unwrap_err();
        assert!(error.kind() == ErrorKind::Unreachable && error.is_retryable(), "{error}");
        Server::read(&INFO.replace("standalone", "cluster")).check(&config, false).unwrap();
    }

    #[test]
    fn a_server_that_ran_before_is_distinguished_from_one_that_was_started_since() {
        let ran =
            |uptime: &str| Server::read(&format!("uptime_in_seconds:{uptime}\r\n")).ran_before(Duration::from_secs(5));
        assert!(ran("8") && !ran("7") && !ran("0") && !ran("x"));
        assert!(!Server::read("").ran_before(Duration::ZERO));
    }

    #[test]
    fn the_rest_of_a_time_since_the_start_is_all_of_it_where_the_start_is_unknown() {
        let time = Duration::from_secs(10);
        let rest = |info: &str| Server::read(info).rest_of(time).as_secs();
        assert_eq!(
            (rest("uptime_in_seconds:0"), rest("uptime_in_seconds:5"), rest("uptime_in_seconds:12")),
            (10, 7, 0)
        );
        assert_eq!((rest(""), rest("uptime_in_seconds:-60")), (10, 10));
        assert!(Server::read("").rest_of(Duration::ZERO).is_zero());
    }

    #[test]
    fn a_server_that_cannot_keep_locks_is_refused_with_an_alternative() {
        for (changes, kind, hint) in [
            (&[("standalone", "sentinel")][..], ErrorKind::Unsupported, "primary"),
            (&[("standalone", "cluster")], ErrorKind::Unsupported, "redis+cluster://"),
            (&[("redis_mode:standalone", "server_mode:cluster")], ErrorKind::Unsupported, "redis+cluster://"),
            (&[("7.0.15", "5.0.14")], ErrorKind::Unsupported, "6.0"),
            (&[("loading:0", "loading:1")], ErrorKind::Unreachable, "loading"),
            (&[("role:master", "role:slave\r\nmaster_host:p\r\nmaster_port:6380")], ErrorKind::Unreachable, "p:6380"),
            (&[("maxmemory:0", "maxmemory:9")], ErrorKind::Config, "noeviction"),
            (&[("maxmemory:0", "maxmemory:9"), ("volatile-lru", "volatile-ttl")], ErrorKind::Config, "volatile-ttl"),
            (&[("volatile-lru", "allkeys-lfu")], ErrorKind::Config, "allkeys-lfu"),
        ] {
            let error = check(changes).unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(hint), "{error}");
        }
    }
}
