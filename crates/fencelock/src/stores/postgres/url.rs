//! The options of a `postgres:` URL.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::advisory::Keys;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::address::HostPort;
use crate::kit::database::url::{is_encrypted, login};
use crate::kit::dial::Addresses;
use crate::kit::lock_table::{Layout, TableKind};
use crate::kit::tls::Tls;
use crate::store::StoreUrl;
use crate::store::secret::Secret;

pub(super) const OPTIONS: &[&str] = &[
    "layout",
    "schema",
    "table",
    "columns",
    "zone",
    "key",
    "lock_at_least_for_ms",
    "user",
    "password",
    "password_file",
    "host",
    "port",
    "bell",
    "sslmode",
    "application_name",
    "tls_ca",
    "tls_cert",
    "tls_key",
];

const PORT: u16 = 5432;
/// The default schema of our own tables and functions.
const SCHEMA: &str = "fencelock";
const NAME_MOST: usize = 63;
/// The default name of our connections in the server's views.
const APPLICATION: &str = "fencelock";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    Tcp(HostPort),
    Unix(PathBuf, u16),
}

#[derive(Clone)]
pub(super) struct Config {
    pub(super) servers: Vec<Address>,
    pub(super) addresses: Arc<Addresses>,
    pub(super) user: String,
    pub(super) password: Option<Secret>,
    pub(super) database: String,
    pub(super) application: String,
    pub(super) tls: Option<Tls>,
    pub(super) schema: Schema,
    pub(super) pooled: Arc<AtomicBool>,
    /// The server's own address, if the URL leads to a pooler.
    pub(super) bell: Option<Arc<Self>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Schema(String);

impl Schema {
    pub(super) fn name(&self) -> &str {
        &self.0
    }

    pub(super) fn quoted(&self) -> String {
        format!("\"{}\"", self.0.replace('"', "\"\""))
    }
}

pub(super) fn bad(message: &'static str) -> Error {
    Error::new(ErrorKind::Config, "postgres store", message)
}

impl Config {
    pub(super) fn from_url(mut url: StoreUrl) -> Result<Self> {
        let (host, port, bell) = (url.take("host"), url.take("port"), url.take("bell"));
        let servers = servers(&url, host, port)?;
        let Some(bell) = bell else { return Self::of(url, servers, false) };
        if bell.contains([',', '/', '@']) {
            return Err(bad("`bell` is one server, as in bell=host:5432: it has the user and the database of the URL"));
        }
        // The bell has all other options of the URL. The bell's address decides whether its connection is encrypted.
        let main = Self::of(url.clone(), servers, true)?;
        let bell = Self::of(url, vec![named(&bell, PORT)?], main.tls.is_some())?;
        Ok(Self { bell: Some(Arc::new(bell)), ..main })
    }

    fn of(mut url: StoreUrl, servers: Vec<Address>, may_leave_tls: bool) -> Result<Self> {
        let (user, password) = login(&mut url, bad, "a user is named, as in postgres://user:password@host/database")?;
        let database = match url.path().trim_start_matches('/') {
            "" => user.clone(),
            name if name.contains('/') => {
                return Err(bad("name a single database, as in postgres://user@host/database"));
            }
            name => name.to_owned(),
        };
        let schema = schema(url.take("schema"))?;
        let application = url.take("application_name").unwrap_or_else(|| APPLICATION.to_owned());
        let tcp = servers.iter().map(|server| if let Address::Tcp(server) = server { Some(server) } else { None });
        let is_encrypted = is_encrypted(&mut url, bad, &tcp.collect::<Vec<_>>(), password.as_ref())?;
        let tls = if is_encrypted { Some(Tls::from_url(&mut url, None)?) } else { None };
        if may_leave_tls {
            for option in ["tls_ca", "tls_cert", "tls_key"] {
                url.take(option);
            }
        }
        url.refuse_other_options(OPTIONS)?;
        let (addresses, pooled, bell) = (Arc::default(), Arc::default(), None);
        Ok(Self { servers, addresses, user, password, database, application, tls, schema, pooled, bell })
    }

    pub(super) fn shown(&self, server: &Address) -> String {
        match server {
            Address::Tcp(server) => format!("postgres://{server}/{}", self.database),
            Address::Unix(directory, port) => {
                format!("postgres:///{}?host={}&port={port}", self.database, directory.display())
            }
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<String> = self.servers.iter().map(|server| self.shown(server)).collect();
        f.write_str(&shown.join(" or "))?;
        // Locks in another schema are other locks.
        if self.schema.name() != SCHEMA {
            write!(f, " (schema {})", self.schema.name())?;
        }
        Ok(())
    }
}

fn servers(url: &StoreUrl, host: Option<String>, port: Option<String>) -> Result<Vec<Address>> {
    let port = match port {
        None => PORT,
        Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or_else(|| bad("a port is 1 to 65535"))?,
    };
    if let Some(host) = host {
        if !url.authority().is_empty() {
            return Err(bad("`host` stands for the host of the URL: leave one of them out"));
        }
        if !host.starts_with('/') {
            return Err(bad("`host` is the directory of the server's socket file, as in host=/run/postgresql"));
        }
        return Ok(vec![Address::Unix(host.into(), port)]);
    }
    if url.authority().is_empty() {
        return Err(bad("name a server, as in postgres://user:password@host:5432/database"));
    }
    // The credentials stand before the first server, and hold for all servers.
    url.servers()?.into_iter().map(|(_, server)| named(&server, port)).collect()
}

fn named(server: &str, port: u16) -> Result<Address> {
    let form = "servers are named as in postgres://user:password@host1:5432,host2/database";
    HostPort::parse(server, port, form).map(Address::Tcp).map_err(bad)
}

fn schema(given: Option<String>) -> Result<Schema> {
    let given = given.unwrap_or_else(|| SCHEMA.to_owned());
    let is_plain =
        !given.is_empty() && given.len() <= NAME_MOST && !given.contains(|c: char| c.is_control() || c == '$');
    if !is_plain || given.starts_with("pg_") {
        return Err(bad(
            "a schema is named in 1 to 63 bytes without control characters and `$`, and not pg_ at its beginning",
        ));
    }
    Ok(Schema(given))
}

pub(super) fn layout(url: &mut StoreUrl) -> Result<Layout<Keys>> {
    let key = url.take("key");
    let stray = key.as_ref().map(|_| "`key` is an option of advisory locks: say `layout=advisory`");
    let layout = Layout::take(url, bad, "advisory", stray, || Keys::read(key.as_deref()))?;
    match &layout {
        Layout::Table(table) if table.zone.is_some() && table.kind != TableKind::Tutorial => {
            Err(bad("the times in ShedLock's table are UTC: leave `zone` out"))
        }
        Layout::Table(_) | Layout::Session(_) if url.take("schema").is_some() => {
            Err(bad("`schema` is of our own tables: a lock table is named as in table=app.distributed_lock"))
        }
        Layout::Table(_) | Layout::Session(_) if url.take("bell").is_some() => Err(bad("`bell` is for `layout=fair`")),
        _ => Ok(layout),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::postgres::tables::Table;

    fn config(url: &str) -> Result<Config> {
        Config::from_url(StoreUrl::parse(url)?)
    }

    fn given(password: &Option<Secret>) -> Option<&str> {
        match password {
            Some(Secret::Given(password)) => Some(password),
            _ => None,
        }
    }

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp(HostPort { host: host.to_owned(), port })
    }

    #[test]
    fn servers_users_database_and_schema_are_taken_apart() {
        let plain = config("postgres://me@localhost").unwrap();
        assert_eq!((plain.servers, &*plain.user, &*plain.database), (vec![tcp("localhost", 5432)], "me", "me"));
        assert_eq!((plain.schema.quoted(), given(&plain.password)), ("\"fencelock\"".to_owned(), None));
        let full = config("postgres://me:p%40s:s@127.0.0.1:1,[::1]:2/app?schema=a%22b&application_name=job").unwrap();
        assert_eq!(full.servers, [tcp("127.0.0.1", 1), tcp("::1", 2)]);
        assert_eq!((given(&full.password), &*full.database, &*full.application), (Some("p@s:s"), "app", "job"));
        assert_eq!(full.schema.quoted(), "\"a\"\"b\"");
        assert_eq!(format!("{full:?}"), "postgres://127.0.0.1:1/app or postgres://[::1]:2/app (schema a\"b)");
        let options = config("postgres://localhost/app?user=me&password=s").unwrap();
        assert_eq!((&*options.user, given(&options.password)), ("me", Some("s")));
        let asked = config("postgres://me@localhost?password_file=/x").unwrap();
        assert!(matches!(asked.password, Some(Secret::Asked(_))));
        let socket = config("postgres://me@/app?host=/run/postgresql&port=6000").unwrap();
        assert_eq!(socket.servers, [Address::Unix("/run/postgresql".into(), 6000)]);
        let pooled = config("postgres://me:s@localhost:6432/app?bell=[::1]:2&schema=a").unwrap();
        let bell = pooled.bell.unwrap();
        assert_eq!(bell.servers, [tcp("::1", 2)]);
        assert_eq!((given(&bell.password), &*bell.database, bell.schema.name()), (Some("s"), "app", "a"));
    }

    #[test]
    fn a_url_without_server_user_or_schema_is_refused() {
        for url in [
            "postgres://",
            "postgres://me@",
            "postgres://localhost/app",
            "postgres://:secret@localhost/app",
            "postgres://me@localhost/app?user=you",
            "postgres://localhost/app?password=secret",
            "postgres://me:secret@localhost/app?password_file=/x",
            "postgres://me@localhost/app?password=secret&password_file=/x",
            "postgres://me@localhost:0/app",
            "postgres://me@localhost:70000/app",
            "postgres://me@localhost/a/b",
            "postgres://me@localhost/app?schema=",
            "postgres://me@localhost/app?schema=pg_mine",
            "postgres://me@localhost/app?host=/run/postgresql",
            "postgres://me@/app?host=run",
            "postgres://me@/app?host=/run/postgresql&port=x",
            "postgres://me@/app?host=/run/postgresql&sslmode=verify-full",
            "postgres://me@localhost/app?bell=",
            "postgres://me@localhost/app?bell=host:0",
            "postgres://me@localhost/app?bell=one,two",
            "postgres://me@localhost/app?bell=you:secret@host",
            "postgres://me@localhost/app?bell=/run/postgresql",
            "postgres://me@localhost/app?bell=localhost&tls_ca=/none",
            "postgres://me@localhost/app?sslmode=require",
            "postgres://me@localhost/app?sslmode=prefer",
            "postgres://me@localhost/app?sslmode=other",
            "postgres://me@localhost/app?sslmod=disable",
            "postgres://me@localhost/app?layout=other",
        ] {
            let error = config(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_connection_that_leaves_the_host_is_encrypted_unless_the_url_says_otherwise() {
        for (url, is_encrypted) in [
            ("postgres://me@localhost/app", false),
            ("postgres://me@127.0.0.1/app", false),
            ("postgres://me@10.0.0.1/app?sslmode=disable", false),
            ("postgres://me@localhost,10.0.0.1/app?tls_ca=/none", true),
            ("postgres://me@localhost/app?bell=10.0.0.1&tls_ca=/none", true),
            ("postgres://me@localhost/app?bell=localhost:1", false),
            ("postgres://me@db.example/app?tls_ca=/none", true),
            ("postgres://me@localhost/app?sslmode=verify-full&tls_ca=/none", true),
        ] {
            // Only encrypted URLs need the file of authorities.
            assert_eq!(config(url).is_err(), is_encrypted, "{url}");
        }
    }

    #[test]
    fn the_authorities_are_for_the_one_of_bell_and_pooler_that_is_encrypted() {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(["a".to_owned()]).unwrap().self_signed(&key).unwrap();
        let ca = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&ca, certificate.pem()).unwrap();
        let ca = ca.path().display();
        for (main, bell) in [("localhost", "10.0.0.1"), ("10.0.0.1", "localhost"), ("10.0.0.1", "10.0.0.2")] {
            let config = config(&format!("postgres://me@{main}/app?bell={bell}&tls_ca={ca}")).unwrap();
            let is_encrypted = (config.tls.is_some(), config.bell.unwrap().tls.is_some());
            assert_eq!(is_encrypted, (main != "localhost", bell != "localhost"));
        }
    }

    fn table(options: &str) -> Result<Option<Table>> {
        let mut url = StoreUrl::parse(&format!("postgres://me@localhost/app?{options}"))?;
        Ok(match layout(&mut url)? {
            Layout::Table(table) => Some(Table::from(table)),
            Layout::Fair | Layout::Session(_) => None,
        })
    }

    #[test]
    fn tables_and_columns_have_the_names_that_are_given_or_those_of_the_layout() {
        let plain = table("layout=distributed_lock").unwrap().unwrap();
        assert_eq!(
            (plain.of.name.clone(), plain.of.columns.join(" ")),
            (vec!["distributed_lock".into()], "lock_key lock_value expire_time".into())
        );
        let named =
            table("layout=distributed_lock&table=App.Locks&columns=k,v%22,e&zone=Europe/Berlin").unwrap().unwrap();
        assert!(
            named
                .ddl()
                .starts_with("CREATE TABLE IF NOT EXISTS \"App\".\"Locks\" (\"k\" varchar(512) PRIMARY KEY, \"v\"\"\""),
            "{}",
            named.ddl()
        );
        assert_eq!(named.of.zone.as_deref(), Some("Europe/Berlin"));
        let shed = table("layout=shedlock&columns=NAME,LOCK_UNTIL,LOCKED_AT,LOCKED_BY").unwrap().unwrap();
        assert_eq!(shed.of.columns.join(" "), "NAME LOCKED_BY LOCK_UNTIL LOCKED_AT");
        assert!(table("layout=fair").unwrap().is_none() && table("").unwrap().is_none());
    }

    #[test]
    fn a_url_without_a_table_is_refused() {
        for options in [
            "layout=other",
            "layout=advisory",
            "layout=advisory&key=.net&schema=a",
            "layout=advisory&key=.net&table=a",
            "layout=distributed_lock&key=.net",
            "key=.net",
            "table=a",
            "layout=fair&columns=a,b,c",
            "zone=UTC",
            "layout=distributed_lock&lock_at_least_for_ms=1",
            "layout=shedlock&zone=UTC",
            "layout=shedlock&columns=a,b,c",
            "layout=shedlock&lock_at_least_for_ms=x",
            "layout=distributed_lock&schema=a",
            "layout=distributed_lock&bell=localhost",
            "layout=advisory&key=.net&bell=localhost",
            "layout=distributed_lock&table=",
            "layout=distributed_lock&table=a.b.c",
            "layout=distributed_lock&columns=a,b",
            "layout=distributed_lock&columns=a,b,b",
            "layout=distributed_lock&columns=a,b,",
            "layout=distributed_lock&zone=",
            "layout=distributed_lock&zone=U'TC",
        ] {
            assert_eq!(table(options).unwrap_err().kind(), ErrorKind::Config, "{options}");
        }
    }
}
