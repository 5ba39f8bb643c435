//! The options of a `mysql:` URL.

use std::fmt;
use std::path::PathBuf;

use mysql_async::{OptsBuilder, SslOpts};

use super::get_lock::Keys;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::address::HostPort;
use crate::kit::database::url::{is_encrypted, login};
use crate::kit::lock_table::Layout;
use crate::store::StoreUrl;
use crate::store::secret::Secret;
use crate::stores::mysql_tls::encrypted;

pub(super) const OPTIONS: &[&str] = &[
    "layout",
    "table",
    "columns",
    "zone",
    "key",
    "prefix",
    "lock_at_least_for_ms",
    "galera",
    "user",
    "password",
    "password_file",
    "socket",
    "sslmode",
    "tls_ca",
    "tls_cert",
    "tls_key",
];

const PORT: u16 = 3306;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    Tcp(HostPort),
    Unix(PathBuf),
}

pub(super) struct Config {
    pub(super) server: Address,
    user: String,
    password: Option<Secret>,
    pub(super) database: String,
    pub(super) tls: Option<SslOpts>,
    /// The URL says that a single node of a Galera cluster takes the writes of every client.
    pub(super) one_writer: bool,
}

pub(in crate::stores) fn bad(message: &'static str) -> Error {
    Error::new(ErrorKind::Config, "mysql store", message)
}

impl Config {
    pub(super) fn from_url(mut url: StoreUrl) -> Result<Self> {
        let (user, password) = login(&mut url, bad, "a user is named, as in mysql://user:password@host/database")?;
        let socket = url.take("socket");
        let server = server(url.authority(), socket)?;
        let database = url.path().trim_start_matches('/').to_owned();
        if database.is_empty() || database.contains('/') {
            return Err(bad("name a single database, as in mysql://user:password@host/database"));
        }
        let named = if let Address::Tcp(server) = &server { Some(server) } else { None };
        let is_encrypted = is_encrypted(&mut url, bad, &[named], password.as_ref())?;
        let tls = if is_encrypted { Some(encrypted(&mut url)?) } else { None };
        let one_writer = match url.take("galera").as_deref() {
            None => false,
            Some("one_writer") => true,
            Some(_) => {
                return Err(bad(
                    "`galera` is one_writer, where one node of the cluster takes the writes of every client",
                ));
            }
        };
        url.refuse_other_options(OPTIONS)?;
        Ok(Self { server, user, password, database, tls, one_writer })
    }

    pub(super) async fn options(&self) -> Result<OptsBuilder> {
        let password = match &self.password {
            Some(password) => Some(password.read().await?),
            None => None,
        };
        let options = OptsBuilder::default()
            .user(Some(self.user.clone()))
            .pass(password)
            .db_name(Some(self.database.clone()))
            .ssl_opts(self.tls.clone())
            // The client must use the named route, and no other.
            .prefer_socket(false)
            .stmt_cache_size(64);
        Ok(match &self.server {
            Address::Tcp(server) => options.ip_or_hostname(server.host.clone()).tcp_port(server.port),
            Address::Unix(path) => options.socket(Some(path.to_string_lossy().into_owned())),
        })
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.server {
            Address::Tcp(server) => write!(f, "mysql://{server}/{}", self.database),
            Address::Unix(path) => write!(f, "mysql:///{}?socket={}", self.database, path.display()),
        }
    }
}

fn server(authority: &str, socket: Option<String>) -> Result<Address> {
    match socket {
        Some(_) if !authority.is_empty() => Err(bad("`socket` stands for the host of the URL: leave one of them out")),
        Some(path) if path.starts_with('/') => Ok(Address::Unix(path.into())),
        Some(_) => Err(bad("`socket` is the whole path of a socket file, as in socket=/run/mysqld/mysqld.sock")),
        None if authority.is_empty() => Err(bad("name a server, as in mysql://user:password@host:3306/database")),
        None if authority.contains(',') => {
            Err(bad("name a single server: this store does not look for the one of several that takes writes"))
        }
        None => HostPort::parse(authority, PORT, "a server is named as in mysql://user:password@host:3306/database")
            .map(Address::Tcp)
            .map_err(bad),
    }
}

pub(super) fn layout(url: &mut StoreUrl) -> Result<Layout<Keys>> {
    let (key, prefix) = (url.take("key"), url.take("prefix"));
    let stray = key.as_ref().or(prefix.as_ref());
    let stray = stray.map(|_| "`key` and `prefix` are options of named locks: say `layout=get_lock`");
    Layout::take(url, bad, "get_lock", stray, || Keys::read(key.as_deref(), prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Result<Config> {
        Config::from_url(StoreUrl::parse(url)?)
    }

    #[test]
    fn server_user_and_database_are_taken_apart() {
        let plain = config("mysql://me:p%40s@localhost/app").unwrap();
        assert_eq!(plain.server, Address::Tcp(HostPort { host: "localhost".to_owned(), port: 3306 }));
        assert_eq!((&*plain.user, &*plain.database), ("me", "app"));
        assert!(matches!(plain.password, Some(Secret::Given(password)) if password == "p@s"));
        let socket = config("mariadb://me@/app?socket=/run/mysqld/mysqld.sock").unwrap();
        assert_eq!(socket.server, Address::Unix("/run/mysqld/mysqld.sock".into()));
        assert_eq!(format!("{socket:?}"), "mysql:///app?socket=/run/mysqld/mysqld.sock");
        assert_eq!(format!("{:?}", config("mysql://[::1]:7/app?user=me&password=s").unwrap()), "mysql://[::1]:7/app");
    }

    #[test]
    fn a_url_without_server_user_or_database_is_refused() {
        for url in [
            "mysql://",
            "mysql://localhost/app",
            "mysql://me@localhost",
            "mysql://me@localhost/",
            "mysql://me@localhost/a/b",
            "mysql://me@h1,h2/app?sslmode=disable",
            "mysql://me@localhost:0/app",
            "mysql://me@localhost/app?user=you",
            "mysql://me:secret@localhost/app?password_file=/x",
            "mysql://me@localhost/app?socket=/run/s",
            "mysql://me@/app?socket=s",
            "mysql://me@/app?socket=/run/s&sslmode=verify-full",
            "mysql://me@localhost/app?sslmode=require",
            "mysql://me@localhost/app?sslmod=disable",
            "mysql://me@localhost/app?layout=other",
            "mysql://me@localhost/app?schema=other",
            "mysql://me@localhost/app?galera=on",
        ] {
            let error = config(url).err().unwrap_or_else(|| panic!("{url}"));
            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_connection_that_leaves_the_host_is_encrypted_unless_the_url_says_otherwise() {
        for (url, is_encrypted) in [
            ("mysql://me@localhost/app", false),
            ("mysql://me@10.0.0.1/app?sslmode=disable", false),
            ("mysql://me@db.example/app?tls_ca=/none", true),
            ("mysql://me@localhost/app?sslmode=verify-full&tls_ca=/none", true),
        ] {
            // Only encrypted URLs need the file of authorities.
            assert_eq!(config(url).is_err(), is_encrypted, "{url}");
        }
    }

    fn layout_of(options: &str) -> Result<Layout<Keys>> {
        layout(&mut StoreUrl::parse(&format!("mysql://me@localhost/app?{options}"))?)
    }

    #[test]
    fn a_layout_has_the_options_that_are_its_own() {
        for options in ["", "layout=fair"] {
            assert!(matches!(layout_of(options), Ok(Layout::Fair)), "{options}");
        }
        for options in
            ["layout=distributed_lock&table=app.Locks&columns=k,v,e&zone=+02:00", "layout=shedlock&zone=SYSTEM"]
        {
            assert!(matches!(layout_of(options), Ok(Layout::Table(_))), "{options}");
        }
        assert!(matches!(layout_of("layout=get_lock&key=exact&prefix=app_"), Ok(Layout::Session(_))));
        for options in [
            "layout=other",
            "layout=advisory&key=.net",
            "layout=get_lock",
            "layout=get_lock&key=exact&table=a",
            "layout=distributed_lock&key=exact",
            "layout=shedlock&prefix=a",
            "key=exact",
            "table=a",
            "zone=UTC",
            "lock_at_least_for_ms=1",
            "layout=distributed_lock&zone=U'TC",
        ] {
            let error = layout_of(options).err().unwrap_or_else(|| panic!("{options}"));
            assert_eq!(error.kind(), ErrorKind::Config, "{options}");
        }
    }
}
