//! The parts of a `redlock:` or `redlocks:` URL: the servers, the prefix of keys, and the times of the protocol.

use std::collections::HashSet;

use super::super::url::prefix;
use super::super::wire::{Config, bad};
use super::Times;
use crate::error::Result;
use crate::store::StoreUrl;

/// The options of a `redlock:` URL, besides the options of every store.
pub(super) const OPTIONS: &[&str] = &["prefix", "drift_ms", "rejoin_ms", "password_file"];
/// The options of a `redlocks:` URL.
pub(super) const TLS_OPTIONS: &[&str] =
    &["prefix", "drift_ms", "rejoin_ms", "password_file", "tls_ca", "tls_cert", "tls_key"];

/// With fewer servers, no server may fail.
const LEAST: usize = 3;

/// A URL, taken apart.
pub(super) struct RedlockUrl {
    pub(super) servers: Vec<Config>,
    pub(super) prefix: String,
    pub(super) times: Times,
}

pub(super) fn read(mut url: StoreUrl) -> Result<RedlockUrl> {
    let prefix = prefix(url.take("prefix"))?.unwrap_or_default();
    let times = Times { drift: url.take_ms("drift_ms")?, rejoin: url.take_ms("rejoin_ms")? };
    let is_secure = url.scheme() == "redlocks";
    let known = if is_secure { TLS_OPTIONS } else { OPTIONS };
    let servers = Config::each_from_url(url, is_secure, known)?;
    let number = servers.len();
    if number < LEAST {
        let message = "Redlock needs three servers at least, for one to be able to fail: name them as in redlock://a,b,c; for one server use redis://host?layout=plain, which has the same keys";
        return Err(bad(message).with("servers", number));
    }
    let mut seen = HashSet::new();
    if let Some(twice) = servers.iter().map(|config| format!("{config:?}")).find(|name| !seen.insert(name.clone())) {
        return Err(
            bad("a server is named twice, and would have two votes: name each server once").with("server", twice)
        );
    }
    if number.is_multiple_of(2) {
        tracing::warn!(servers = number, "An even number of servers lets no more of them fail than one server less.");
    }
    Ok(RedlockUrl { servers, prefix, times })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::error::ErrorKind;

    fn read_url(url: &str) -> Result<RedlockUrl> {
        read(StoreUrl::parse(url)?)
    }

    #[test]
    fn servers_their_database_and_the_times_are_taken_apart() {
        let said = read_url("redlock://a,b:1,[::1]/2?prefix=mutex:&drift_ms=7&rejoin_ms=0").unwrap();
        let names: Vec<String> = said.servers.iter().map(|config| format!("{config:?}")).collect();
        assert_eq!(names, ["redis://a:6379/2", "redis://b:1/2", "redis://[::1]:6379/2"]);
        assert_eq!((&*said.prefix, said.times.drift), ("mutex:", Some(Duration::from_millis(7))));
        assert_eq!(said.times.rejoin, Some(Duration::ZERO));
        assert_eq!(read_url("redlock://a,b,c,d").unwrap().servers.len(), 4);
        assert_eq!(read_url("redlock://me@a,b,you@c?password_file=/x").unwrap().servers.len(), 3);
    }

    #[test]
    fn too_few_servers_and_one_that_is_named_twice_are_refused() {
        for (url, hint) in [
            ("redlock://a", "layout=plain"),
            ("redlock://a,b", "three servers"),
            ("redlock://a,b,a:6379", "twice"),
            ("redlock://a,,b", "name one server"),
            ("redlock://a,b,c/x", "database"),
            ("redlock://a,b,c?layout=plain", "layout"),
            ("redlock://a,b,c?tls_ca=/x", "tls_ca"),
            ("redlock://a,b,c?drift_ms=x", "drift_ms"),
            ("redlock://s3cret@a,b,c", "user:password"),
            ("redlock://:s3cret@a,b,c?password_file=/x", "leave one out"),
            ("redlock://a,b,me:s3cret@c?password_file=/x", "leave one out"),
        ] {
            let error = read_url(url).map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}: {error}");
            assert!(error.to_string().contains(hint) && !error.to_string().contains("s3cret"), "{url}: {error}");
        }
    }
}
