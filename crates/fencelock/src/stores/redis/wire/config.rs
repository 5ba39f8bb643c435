//! Reads the server from a `redis:`, `rediss:` or `redis+unix:` URL.

use std::fmt;
use std::sync::{Arc, Weak};

use crate::error::{Error, ErrorKind, Result};
use crate::kit::address::HostPort;
use crate::kit::dial::Addresses;
use crate::kit::tls::Tls;
use crate::store::StoreUrl;
use crate::store::secret::{Secret, TWO_PASSWORDS};
use crate::stores::redis::cluster::{ClusterSlot, Nodes, Routes};
use crate::stores::redis::sentinel::Sentinels;

/// The default port of a server.
const PORT: u16 = 6379;

/// A user and a password.
type Identity = (Option<String>, Option<Secret>);

/// Where the server listens.
#[derive(Debug, Clone)]
pub(crate) enum Address {
    Tcp(HostPort),
    Unix(String),
    /// The primary that Sentinels name.
    Primary(Sentinels),
    /// Where a Cluster keeps a slot.
    Owner(ClusterSlot),
    /// Any node of a Cluster: each request goes to the owner of its key.
    Nodes(Arc<Nodes>),
}

/// The address of a server, its credentials and its options.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) address: Address,
    pub(super) addresses: Arc<Addresses>,
    pub(super) tls: Option<Tls>,
    /// The user of the access control list; `None` for the default one.
    pub(super) user: Option<String>,
    pub(super) password: Option<Secret>,
    /// The number of the database.
    pub(super) db: u32,
    /// How many replicas acknowledge an answer before it counts.
    pub(crate) min_replicas: u32,
    pub(crate) naming: Naming,
    /// The links to all nodes of a Cluster, for requests with a key.
    pub(crate) routes: Weak<Routes>,
    /// The slot for which the server at this address is dialled.
    pub(crate) slot: Option<ClusterSlot>,
}

/// How the server is named: as one of several independent masters, by an address, which may lead to another server soon, by Sentinels,
/// which may be late, or by nodes of its Cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    Master,
    Address,
    Sentinels,
    Cluster,
}

impl Config {
    /// A configuration for each server in `url`, with the same options. A server without credentials of its own has the credentials of the
    /// first server.
    pub(crate) fn each_from_url(mut url: StoreUrl, is_secure: bool, known: &[&str]) -> Result<Vec<Self>> {
        let tls = if is_secure { Some(Tls::from_url(&mut url, None)?) } else { None };
        let secret = url.take_secret()?;
        let db = number(url.path());
        url.refuse_other_options(known)?;
        let db =
            db.map_or(Ok(0), |db| db.parse().map_err(|_| bad("a database is a number, as in redlock://a,b,c/0")))?;
        let servers = url.servers()?;
        let common = servers.first().and_then(|(own, _)| own.clone());
        let each = servers.into_iter().map(|(own, server)| {
            let identity = credentials(own.or_else(|| common.clone()).as_deref(), secret.as_ref())?;
            let config = Self { db, naming: Naming::Master, ..Self::new(host(&server)?, tls.clone(), identity) };
            if config.password.is_some() && config.tls.is_none() {
                tracing::warn!(server = ?config, "the password is sent in the clear: the scheme is not redlocks");
            }
            Ok(config)
        });
        each.collect()
    }

    /// Reads the rest of `url` after a layout took its options; `known` are the options of both.
    pub(crate) fn from_url(mut url: StoreUrl, known: &[&str]) -> Result<Self> {
        let secret = url.take_secret()?;
        let identity = credentials(url.credentials(), secret.as_ref())?;
        let min_replicas = take_min_replicas(&mut url)?.unwrap_or(0);
        let (address, db, tls) = match url.scheme() {
            "redis+unix" => (socket(&url)?, url.take("db"), None),
            "rediss" => {
                let tls = Tls::from_url(&mut url, None)?;
                (host(url.authority())?, number(url.path()), Some(tls))
            }
            _ => (host(url.authority())?, number(url.path()), None),
        };
        url.refuse_other_options(known)?;
        let db = db.map_or(Ok(0), |db| db.parse().map_err(|_| bad("a database is a number, as in redis://host/0")))?;
        let config = Self { db, min_replicas, ..Self::new(address, tls, identity) };
        if config.password.is_some() && config.tls.is_none() && matches!(config.address, Address::Tcp(_)) {
            tracing::warn!(server = ?config, "the password is sent in the clear: the scheme is not rediss");
        }
        Ok(config)
    }

    /// The first database at `address`.
    pub(crate) fn new(address: Address, tls: Option<Tls>, (user, password): Identity) -> Self {
        let (addresses, naming, routes) = (Arc::default(), Naming::Address, Weak::new());
        Self { address, addresses, tls, user, password, db: 0, min_replicas: 0, naming, routes, slot: None }
    }

    /// The primary that `sentinels` name.
    pub(crate) fn of_primary(
        sentinels: Sentinels,
        tls: Option<Tls>,
        identity: Identity,
        (db, min_replicas): (u32, u32),
    ) -> Self {
        let naming = Naming::Sentinels;
        Self { db, min_replicas, naming, ..Self::new(Address::Primary(sentinels), tls, identity) }
    }

    /// The server at this address, with the same options.
    pub(crate) fn at(&self, server: HostPort) -> Self {
        let slot = if let Address::Owner(slot) = &self.address { Some(slot.clone()) } else { None };
        Self { address: Address::Tcp(server), slot, ..self.clone() }
    }

    /// Forgets the address that worked last, so that it is not dialled first.
    pub(super) fn forget_address(&self) {
        if let Address::Tcp(server) = &self.address {
            self.addresses.forget(server);
        }
    }
}

/// The option `min_replicas`.
pub(crate) fn take_min_replicas(url: &mut StoreUrl) -> Result<Option<u32>> {
    let number = |text: String| text.parse().map_err(|_| bad("`min_replicas` is a whole number of replicas"));
    url.take("min_replicas").map(number).transpose()
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Address::Tcp(server) => {
                let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
                write!(f, "{scheme}://{server}/{}", self.db)
            }
            Address::Unix(path) => write!(f, "redis+unix://{path}?db={}", self.db),
            Address::Primary(sentinels) => write!(f, "{}/{}", sentinels.shown, self.db),
            Address::Owner(ClusterSlot { nodes, .. }) | Address::Nodes(nodes) => write!(f, "{nodes}"),
        }
    }
}

pub(crate) fn bad(message: &'static str) -> Error {
    Error::new(ErrorKind::Config, "redis store", message)
}

/// User and password. A password alone is written with a colon in front, for the user `default`.
pub(crate) fn credentials(given: Option<&str>, secret: Option<&Secret>) -> Result<Identity> {
    let named = |user: &str| (!user.is_empty()).then(|| user.to_owned());
    let Some(given) = given else { return Ok((None, secret.cloned())) };
    match (given.split_once(':').unwrap_or((given, "")), secret) {
        ((user, ""), Some(secret)) => Ok((named(user), Some(secret.clone()))),
        (_, Some(_)) => Err(bad(TWO_PASSWORDS)),
        ((user, password), None) if !password.is_empty() => Ok((named(user), Some(Secret::Given(password.to_owned())))),
        _ => Err(bad("credentials are given as user:password, or as :password for the default user")),
    }
}

fn host(authority: &str) -> Result<Address> {
    if authority.contains(',') {
        return Err(bad(
            "name a single server; for a primary that Sentinels watch write redis+sentinel://a,b,c/NAME, for a Cluster redis+cluster://a,b,c, for a quorum of several masters redlock://a,b,c",
        ));
    }
    HostPort::parse(authority, PORT, "name one server, as in redis://host:6379/0").map(Address::Tcp).map_err(bad)
}

/// The database in the path of a URL, if there is one.
fn number(path: &str) -> Option<String> {
    let number = path.strip_prefix('/').unwrap_or(path);
    (!number.is_empty()).then(|| number.to_owned())
}

fn socket(url: &StoreUrl) -> Result<Address> {
    if !url.authority().is_empty() || url.path().len() < 2 || !url.path().starts_with('/') {
        return Err(bad("a socket is named by its whole path, as in redis+unix:///run/redis/redis.sock?db=0"));
    }
    Ok(Address::Unix(url.path().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Result<Config> {
        Config::from_url(StoreUrl::parse(url)?, &[])
    }

    fn given(config: &Config) -> Option<&str> {
        match &config.password {
            Some(Secret::Given(password)) => Some(password),
            _ => None,
        }
    }

    fn shown(config: &Config) -> String {
        format!("{config:?}")
    }

    #[test]
    fn server_database_and_options_are_taken_apart() {
        let plain = config("redis://h1").unwrap();
        assert_eq!(shown(&plain), "redis://h1:6379/0");
        assert!(plain.user.is_none() && plain.password.is_none() && plain.tls.is_none() && plain.min_replicas == 0);
        assert_eq!(config("redis://h1?min_replicas=2").unwrap().min_replicas, 2);
        let full = config("redis://me:p%40s:s@h1:1/5").unwrap();
        assert_eq!(shown(&full), "redis://h1:1/5");
        assert_eq!((full.user.as_deref(), given(&full)), (Some("me"), Some("p@s:s")));
        assert_eq!(shown(&config("redis://[::1]:7/").unwrap()), "redis://[::1]:7/0");
        assert_eq!(format!("{:?}", config("redis://[::1]").unwrap()), "redis://[::1]:6379/0");
        let unix = config("redis+unix://:secret@/run/redis%20a.sock?db=2").unwrap();
        assert_eq!(shown(&unix), "redis+unix:///run/redis a.sock?db=2");
        assert_eq!((unix.user.as_deref(), given(&unix)), (None, Some("secret")));
    }

    #[test]
    fn a_url_without_a_server_is_refused() {
        for url in [
            "redis://",
            "redis:h1",
            "redis://h1:0",
            "redis://h1:x",
            "redis://h1:70000",
            "redis://[::1",
            "redis://[::1]x",
            "redis://a,b",
            "redis://h1/a",
            "redis://h1/0/1",
            "redis://h1/-1",
            "redis://user@h1",
            "redis://user:@h1",
            "redis://h1?db=1",
            "redis://h1?min_replicas=",
            "redis://h1?tls_ca=/x",
            "redis+unix://",
            "redis+unix:///",
            "redis+unix://host/path",
            "redis+unix:///path?db=x",
            "rediss://h1?tls_ca=/no/such/file",
            "rediss://h1?tls_cert=/x",
        ] {
            assert_eq!(config(url).unwrap_err().kind(), ErrorKind::Config, "{url}");
        }
    }

    #[test]
    fn a_file_of_the_password_replaces_a_password_after_a_user() {
        for (url, user) in [
            ("redis://h1?password_file=/x", None),
            ("redis://me@h1?password_file=/x", Some("me")),
            ("redis://me:@h1?password_file=/x", Some("me")),
            ("redis+unix://me@/run/redis.sock?password_file=/x", Some("me")),
        ] {
            let config = config(url).unwrap();
            assert_eq!(config.user.as_deref(), user, "{url}");
            assert!(matches!(config.password, Some(Secret::Asked(_))), "{url}");
        }
        for url in ["redis://me:s3cret@h1?password_file=/x", "redis://h1?password_file=x", "redis://h1?password_file="]
        {
            let error = config(url).unwrap_err();
            assert!(error.kind() == ErrorKind::Config && !error.to_string().contains("s3cret"), "{url}: {error}");
        }
    }

    #[test]
    fn credentials_are_never_shown() {
        assert_eq!(format!("{:?}", config("redis://me:s3cret@h1/1").unwrap()), "redis://h1:6379/1");
        let error = config("redis://s3cret@h1").unwrap_err();
        assert!(!format!("{error:?}").contains("s3cret"));
    }
}
