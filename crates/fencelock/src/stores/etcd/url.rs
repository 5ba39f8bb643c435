//! The parts and options of an `etcd:` or `etcds:` URL.

use std::fmt;
use std::sync::Arc;

use super::keys::Keys;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::address::HostPort;
use crate::kit::dial::Addresses;
use crate::kit::tls::Tls;
use crate::store::StoreUrl;
use crate::store::secret::Secret;

pub(super) const OPTIONS: &[&str] = &["password_file"];
pub(super) const TLS_OPTIONS: &[&str] = &["password_file", "tls_ca", "tls_cert", "tls_key"];

const PORT: u16 = 2379;

/// The settings of connections to the members, and the prefix of the locks' keys.
pub(super) struct Config {
    scheme: String,
    pub(super) servers: Vec<HostPort>,
    pub(super) addresses: Addresses,
    pub(super) tls: Option<Tls>,
    /// User and password.
    pub(super) login: Option<(String, Secret)>,
    pub(super) keys: Arc<Keys>,
}

impl Config {
    pub(super) fn from_url(mut url: StoreUrl) -> Result<Arc<Self>> {
        let is_secure = url.scheme() == "etcds";
        let tls = if is_secure { Some(Tls::from_url(&mut url, Some("h2"))?) } else { None };
        let login = url.take_login(is_secure)?;
        url.refuse_other_options(if is_secure { TLS_OPTIONS } else { OPTIONS })?;
        let path = url.path().strip_prefix('/').unwrap_or_default();
        let prefix = if path.is_empty() || path.ends_with('/') { path.to_owned() } else { format!("{path}/") };
        let server = |(_, server): (Option<String>, String)| {
            HostPort::parse(&server, PORT, "members are named as in etcd://host1:2379,host2,host3/locks")
                .map_err(|message| Error::new(ErrorKind::Config, "etcd store", message))
        };
        let servers = url.servers()?.into_iter().map(server).collect::<Result<_>>()?;
        let (scheme, addresses, keys) = (url.scheme().to_owned(), Addresses::default(), Arc::new(Keys { prefix }));
        Ok(Arc::new(Self { scheme, servers, addresses, tls, login, keys }))
    }

    pub(super) fn shown(&self, server: &HostPort) -> String {
        format!("{}://{server}", self.scheme)
    }
}

/// Shows no credentials.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<_> = self.servers.iter().map(HostPort::to_string).collect();
        write!(f, "{}://{}/{}", self.scheme, servers.join(","), self.keys.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Result<Arc<Config>> {
        Config::from_url(StoreUrl::parse(url)?)
    }

    #[test]
    fn members_and_the_prefix_of_the_keys_are_read() {
        for (url, shown) in [
            ("etcd://a:1,b,[::1]:3/locks", "etcd://a:1,b:2379,[::1]:3/locks/"),
            ("etcd://a/locks/", "etcd://a:2379/locks/"),
            ("etcd://a//locks", "etcd://a:2379//locks/"),
            ("etcd://a", "etcd://a:2379/"),
            ("etcd://me:s3cret@a/x", "etcd://a:2379/x/"),
        ] {
            assert_eq!(format!("{:?}", config(url).unwrap()), shown);
        }
        assert_eq!(config("etcd://a").unwrap().keys.prefix, "");
    }

    #[test]
    fn credentials_that_are_half_given_and_unknown_options_are_refused() {
        for url in [
            "etcd://",
            "etcd://a:x/",
            "etcd://me@a",
            "etcd://:s3cret@a",
            "etcd://a?password_file=/x",
            "etcd://me:s3cret@a?password_file=/x",
            "etcd://a?tls_ca=/x",
        ] {
            let error = config(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
    }
}
