//! A `redis+cluster:` or `rediss+cluster:` URL: some nodes of a Cluster, and the way to all of them.

use std::sync::Arc;

use super::nodes::Nodes;
use crate::error::Result;
use crate::kit::address::HostPort;
use crate::kit::tls::Tls;
use crate::store::StoreUrl;
use crate::stores::redis::sentinel::mapped;
use crate::stores::redis::wire::{Address, Config, Naming, bad, credentials, take_min_replicas};

/// The options, besides the options of every store.
pub(super) const OPTIONS: &[&str] =
    &["layout", "prefix", "min_replicas", "map", "password_file", "tls_ca", "tls_cert", "tls_key"];

const NODES: &str = "name some nodes of the Cluster, as in redis+cluster://host1:6379,host2,host3";

/// The way to all nodes, once a layout has taken its own options out.
pub(crate) fn config(mut url: StoreUrl) -> Result<Config> {
    let secret = url.take_secret()?;
    let identity = credentials(url.credentials(), secret.as_ref())?;
    let min_replicas = take_min_replicas(&mut url)?.unwrap_or(1);
    let is_secure = url.scheme() == "rediss+cluster";
    let tls = if is_secure { Some(Tls::from_url(&mut url, None)?) } else { None };
    let map = url.take("map").map_or(Ok(Vec::new()), |map| map.split(',').map(mapped).collect())?;
    url.refuse_other_options(OPTIONS)?;
    if !matches!(url.path(), "" | "/" | "/0") {
        return Err(bad("a Cluster has one database: leave the path of the URL out"));
    }
    let node = |text| HostPort::parse(text, 6379, NODES).map_err(|_| bad(NODES));
    let seeds: Vec<_> = url.authority().split(',').map(node).collect::<Result<_>>()?;
    let shown = format!("{}://{}", url.scheme(), url.authority());
    if identity.1.is_some() && !is_secure {
        tracing::warn!(server = shown, "the password is sent in the clear: the scheme is not rediss+cluster");
    }
    let mut config = Config::new(Address::Tcp(seeds[0].clone()), tls, identity);
    config.naming = Naming::Cluster;
    Ok(Arc::new(Nodes::new(shown, config, seeds, map)).way_to(Address::Nodes, min_replicas))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_url_that_lacks_something_is_refused_and_no_secret_is_shown() {
        let config = config(StoreUrl::parse("redis+cluster://me:s3cret@a,b:1,[::1]:2/").unwrap()).unwrap();
        assert_eq!((format!("{config:?}").as_str(), config.min_replicas), ("redis+cluster://a,b:1,[::1]:2", 1));
        for (url, said) in [
            ("redis+cluster://", "host1:6379"),
            ("redis+cluster://a,,b", "host1:6379"),
            ("redis+cluster://a/1", "one database"),
            ("redis+cluster://a?min_replicas=x", "min_replicas"),
            ("redis+cluster://a?map=a:1", "map"),
            ("redis+cluster://a?tls_ca=/x", "tls_ca"),
        ] {
            let error = super::config(StoreUrl::parse(url).unwrap()).map(drop).unwrap_err();
            assert!(error.kind() == ErrorKind::Config && error.to_string().contains(said), "{url}: {error}");
        }
    }
}
