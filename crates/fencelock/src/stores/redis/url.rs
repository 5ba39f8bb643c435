//! Reads the layout from a `redis:`, `rediss:` or `redis+unix:` URL. The wire reads the server.

use super::plain::{Extra, SIGNALLED};
use super::wire::{Config, bad};
use super::{cluster, sentinel};
use crate::error::Result;
use crate::store::StoreUrl;

/// The options of a `redis:` URL, besides the options of every store.
pub(crate) const OPTIONS: &[&str] = &["layout", "prefix", "signal", "fence", "min_replicas", "password_file"];
/// The options of a `rediss:` URL.
pub(crate) const TLS_OPTIONS: &[&str] =
    &["layout", "prefix", "signal", "fence", "min_replicas", "password_file", "tls_ca", "tls_cert", "tls_key"];
/// The options of a `redis+unix:` URL.
pub(crate) const UNIX_OPTIONS: &[&str] =
    &["layout", "prefix", "signal", "fence", "min_replicas", "password_file", "db"];

/// The layouts of this store.
const KNOWN: &str = "fair, plain, redisson, redisson-fenced";

const IN_TWO_SLOTS: &str = "`signal` and `fence` are not for a Cluster, where a lock and such a further key can have two owners: use a server, redis: or redis+sentinel:, or `layout=redisson-fenced`";

/// The default prefix of our own layout's keys.
const PREFIX: &str = "fencelock";

/// The longest prefix, in bytes.
const PREFIX_MOST: usize = 64;

/// A layout of locks on the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Layout {
    Fair,
    Plain(Extra),
    Redisson,
    /// With the counter of Redisson's fenced lock.
    RedissonFenced,
}

impl Layout {
    /// The default prefix of keys. Most other clients use the bare name as the key.
    fn prefix(&self) -> &'static str {
        match self {
            Self::Fair => PREFIX,
            Self::Plain(Extra::Signal) => SIGNALLED,
            Self::Plain(_) | Self::Redisson | Self::RedissonFenced => "",
        }
    }
}

/// The server that `url` names, the layout, and the prefix of keys.
pub(super) fn read(mut url: StoreUrl) -> Result<(Config, Layout, String)> {
    let extra = extra(url.take("signal"), url.take("fence"))?;
    let layout = layout(url.take("layout"), extra.clone())?;
    let is_cluster = url.scheme().ends_with("+cluster");
    let prefix = prefix(url.take("prefix"))?.unwrap_or_else(|| layout.prefix().to_owned());
    if layout == Layout::Plain(Extra::Signal) && !prefix.starts_with(SIGNALLED) {
        return Err(bad("the keys of python-redis-lock begin with `lock:`: leave `prefix` out, or begin it so"));
    }
    let config = match url.scheme() {
        "redis+sentinel" | "rediss+sentinel" => sentinel::config(url),
        _ if is_cluster && extra != Extra::Nothing => Err(bad(IN_TWO_SLOTS)),
        _ if is_cluster => cluster::config(url),
        "redis+unix" => Config::from_url(url, UNIX_OPTIONS),
        "rediss" => Config::from_url(url, TLS_OPTIONS),
        _ => Config::from_url(url, OPTIONS),
    };
    Ok((config?, layout, prefix))
}

fn layout(given: Option<String>, extra: Extra) -> Result<Layout> {
    match given.as_deref() {
        Some("plain") => Ok(Layout::Plain(extra)),
        _ if extra != Extra::Nothing => Err(bad("`signal` and `fence` are options of `layout=plain` alone")),
        None | Some("fair") => Ok(Layout::Fair),
        Some("redisson") => Ok(Layout::Redisson),
        Some("redisson-fenced") => Ok(Layout::RedissonFenced),
        Some(_) => Err(bad("unknown layout").with("known", KNOWN)),
    }
}

pub(super) fn prefix(given: Option<String>) -> Result<Option<String>> {
    let Some(given) = given else { return Ok(None) };
    if !is_part_of_keys(&given) {
        return Err(bad("a prefix is 1 to 64 letters, digits and `-_.:/`"));
    }
    Ok(Some(given))
}

/// The further key of a lock in the layout `plain`.
fn extra(signal: Option<String>, fence: Option<String>) -> Result<Extra> {
    match (signal.as_deref(), fence) {
        (None, None) => Ok(Extra::Nothing),
        (Some("python-redis-lock"), None) => Ok(Extra::Signal),
        (Some("python-redis-lock"), Some(_)) => {
            Err(bad("`signal` and `fence` are of clients that share no lock: give one of them"))
        }
        (Some(_), _) => Err(bad("unknown signal").with("known", "python-redis-lock")),
        (None, Some(ending)) if is_part_of_keys(&ending) => Ok(Extra::Counter(ending)),
        (None, Some(_)) => Err(bad(
            "`fence` is what follows the key of a lock in the key of its counter, as `:fence`: 1 to 64 letters, digits and `-_.:/`",
        )),
    }
}

/// Braces would move the hash tag, and glob patterns and people stumble over the rest.
fn is_part_of_keys(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '/');
    !text.is_empty() && text.len() <= PREFIX_MOST && text.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn read_url(url: &str) -> Result<(Config, Layout, String)> {
        read(StoreUrl::parse(url)?)
    }

    #[test]
    fn a_prefix_is_taken_along_with_the_options_of_the_server() {
        assert_eq!(read_url("redis://h1").unwrap().2, PREFIX);
        assert_eq!(read_url("redis://h1?layout=plain").unwrap().2, "");
        assert_eq!(read_url("redis://h1?layout=redisson").unwrap().2, "");
        assert_eq!(read_url("redis://h1?layout=plain&prefix=mutex:").unwrap().2, "mutex:");
        let (config, _, prefix) = read_url("redis://h1:1/5?prefix=app:locks&layout=fair").unwrap();
        assert_eq!((format!("{config:?}").as_str(), &*prefix), ("redis://h1:1/5", "app:locks"));
        assert_eq!(read_url("redis+unix:///run/redis.sock?db=2&prefix=a").unwrap().2, "a");
    }

    #[test]
    fn unknown_layouts_and_unusable_prefixes_are_refused() {
        for option in [
            "signal=python-redis-lock",
            "fence=:fence",
            "layout=plain&signal=other",
            "layout=plain&signal=python-redis-lock&prefix=mutex:",
            "layout=plain&signal=python-redis-lock&fence=:fence",
            "layout=plain&fence=",
            "layout=plain&fence=a%7Bb",
            "layout=redisson&fence=:fence",
            "layout=other",
            "layout=redisson-fair",
            "prefix=",
            "prefix=a%7Bb",
            "prefix=a%20b",
            "db=1",
        ] {
            let error = read_url(&format!("redis://h1?{option}")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{option}");
        }
        for option in ["layout=plain&signal=python-redis-lock", "layout=plain&fence=:fence"] {
            let error = read_url(&format!("redis+cluster://h1?{option}")).unwrap_err();
            assert!(error.kind() == ErrorKind::Config && error.to_string().contains("two owners"), "{error}");
        }
    }
}
