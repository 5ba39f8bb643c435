//! The options of a `zk:` or `zks:` URL.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fencelock_zookeeper as wire;

use super::dialect::{DIALECTS, Dialect};
use super::layout::Layout;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::tls::Tls;
use crate::queue::Claim;
use crate::store::StoreUrl;
use crate::store::secret::Secret;

/// The options of a `zk:` URL, besides the options of every store.
pub(crate) const OPTIONS: &[&str] = &["layout", "tick_ms", "max_frame_bytes", "max_answer_bytes", "password_file"];
/// The options of a `zks:` URL.
pub(crate) const TLS_OPTIONS: &[&str] =
    &["layout", "tick_ms", "max_frame_bytes", "max_answer_bytes", "password_file", "tls_ca", "tls_cert", "tls_key"];

/// ZooKeeper's default for `tickTime`.
pub(super) const TICK: Duration = Duration::from_secs(2);

/// The servers of an ensemble, their options and the credentials.
#[derive(Clone)]
pub(super) struct Config {
    /// The servers: `host1:2181,host2`.
    pub(super) servers: String,
    /// The node above all locks: `""` for the root, else without a slash at its end.
    pub(super) parent: String,
    pub(super) dialect: &'static Dialect,
    /// The servers' `tickTime`.
    pub(super) tick: Duration,
    /// Whether the URL names the tick; otherwise the client presumes it.
    pub(super) tick_is_given: bool,
    /// The longest request, and the longest answer.
    pub(super) max_frame: usize,
    pub(super) max_answer: usize,
    /// The user and its password.
    pub(super) credentials: Option<(String, Secret)>,
    pub(super) tls: Option<Tls>,
}

impl Config {
    pub(super) fn from_url(mut url: StoreUrl) -> Result<Self> {
        let parent = parent(url.path())?;
        let credentials = url.take_login(url.scheme() == "zks")?;
        let tick = url.take_ms("tick_ms")?;
        let config = Self {
            servers: url.authority().to_owned(),
            parent,
            dialect: dialect(url.take("layout"))?,
            tick: tick.unwrap_or(TICK),
            tick_is_given: tick.is_some(),
            max_frame: limit(
                url.take("max_frame_bytes"),
                wire::Config::DEFAULT_MAX_FRAME,
                "max_frame_bytes is 4096 to 1073741824, as the servers' jute.maxbuffer",
            )?,
            max_answer: limit(
                url.take("max_answer_bytes"),
                wire::Config::DEFAULT_MAX_ANSWER,
                "max_answer_bytes is 4096 to 1073741824",
            )?,
            credentials,
            tls: if url.scheme() == "zks" { Some(Tls::from_url(&mut url, None)?) } else { None },
        };
        url.refuse_other_options(if config.tls.is_some() { TLS_OPTIONS } else { OPTIONS })?;
        if config.tick.is_zero() {
            return Err(bad("a tick is at least 1 ms"));
        }
        // Refuses bad servers now, not when the first session is opened.
        config.client()?;
        Ok(config)
    }

    /// The layout for `claim`.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the dialect has none.
    pub(super) fn layout_for(&self, claim: Claim) -> Result<Layout> {
        self.dialect.layout_for(claim).ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "claim", "this layout has no lock of this kind")
                .with("layout", self.dialect.name)
                .with("claim", claim)
        })
    }

    /// The wire client's configuration, without the session's.
    pub(super) fn client(&self) -> Result<wire::Config> {
        let client = wire::Config::new(&self.servers).map_err(|error| bad("bad servers").with("cause", error))?;
        let mut client = client.max_frame(self.max_frame).max_answer(self.max_answer);
        if let Some(credentials) = &self.credentials {
            client = match credentials {
                (user, Secret::Given(password)) => client.auth("digest", format!("{user}:{password}")),
                (user, asked) => client.auth_asked("digest", ask(user.clone(), asked.clone())),
            };
        }
        if let Some(tls) = &self.tls {
            client = client.tls(tls.configure(wire::Tls::new));
        }
        Ok(client)
    }

    /// The ACL of our own nodes.
    pub(super) fn node_acl(&self) -> Vec<wire::Acl> {
        match self.credentials {
            Some(_) => vec![wire::Acl::creator_all(), wire::Acl::world_read()],
            None => vec![wire::Acl::open()],
        }
    }

    /// The ACL of the parents that we make. Deleting a node is governed by its parent.
    pub(super) fn parent_acl(&self) -> Vec<wire::Acl> {
        vec![if self.credentials.is_some() { wire::Acl::creator_all() } else { wire::Acl::open() }]
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parent = if self.parent.is_empty() { "/" } else { &self.parent };
        let scheme = if self.tls.is_some() { "zks" } else { "zk" };
        write!(f, "{scheme}://{}{parent} ({})", self.servers, self.dialect.name)
    }
}

pub(super) fn bad(message: &'static str) -> Error {
    Error::new(ErrorKind::Config, "zookeeper store", message)
}

fn parent(path: &str) -> Result<String> {
    if path.is_empty() {
        return Err(bad("name the node under which the locks are, as in zk://host:2181/locks"));
    }
    let trimmed = path.strip_suffix('/').unwrap_or(path);
    if let Some(fault) = trimmed.split('/').skip(1).find_map(segment_fault) {
        return Err(bad(fault).with("path", path));
    }
    Ok(trimmed.to_owned())
}

/// The characters that the server refuses in one part of a path.
pub(super) fn segment_fault(segment: &str) -> Option<&'static str> {
    if matches!(segment, "" | "." | "..") {
        return Some("no part of a path between slashes is empty, `.` or `..`");
    }
    // The server sees Java's characters: characters that need two of them are refused as well.
    let refused = |c: char| c.is_control() || matches!(c, '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..);
    segment.contains(refused).then_some(
        "ZooKeeper takes no control characters, none of private use (U+E000 to U+F8FF), and none from U+FFF0 on",
    )
}

/// How the client gets the credentials of each connection.
fn ask(user: String, secret: Secret) -> wire::AskCredentials {
    Arc::new(move || {
        let (user, secret) = (user.clone(), secret.clone());
        Box::pin(async move {
            let password = secret.read().await.map_err(|error| error.to_string())?;
            Ok(format!("{user}:{password}").into_bytes())
        })
    })
}

fn dialect(given: Option<String>) -> Result<&'static Dialect> {
    let Some(given) = given else { return Ok(&DIALECTS[0]) };
    DIALECTS.iter().find(|dialect| dialect.name == given).ok_or_else(|| {
        let known: Vec<_> = DIALECTS.iter().map(|dialect| dialect.name).collect();
        bad("unknown layout").with("known", known.join(" "))
    })
}

fn limit(given: Option<String>, otherwise: usize, allowed: &'static str) -> Result<usize> {
    /// The largest limit: servers accept no longer frame.
    const MOST: usize = 1 << 30;
    match given.map_or(Ok(otherwise), |given| given.parse()) {
        Ok(bytes @ 4096..=MOST) => Ok(bytes),
        _ => Err(bad(allowed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Result<Config> {
        Config::from_url(StoreUrl::parse(url)?)
    }

    #[test]
    fn servers_parent_and_options_are_taken_apart() {
        let plain = config("zk://h1/locks").unwrap();
        assert_eq!((&*plain.servers, &*plain.parent, plain.dialect.name), ("h1", "/locks", "curator"));
        assert_eq!(plain.tick, TICK);
        let full = "zk://me:p%40ss@h1:1,h2,[::1]:2183/a/b/?layout=kazoo&tick_ms=500";
        let full = config(full).unwrap();
        assert_eq!((&*full.servers, &*full.parent, full.dialect.name), ("h1:1,h2,[::1]:2183", "/a/b", "kazoo"));
        assert_eq!(full.tick, Duration::from_millis(500));
        assert!(
            matches!(full.credentials, Some((user, Secret::Given(password))) if user == "me" && password == "p@ss")
        );
        let asked = config("zk://me@h/locks?password_file=/x").unwrap();
        assert!(matches!(asked.credentials, Some((user, Secret::Asked(_))) if user == "me"));
        assert_eq!(config("zk://h/").unwrap().parent, "");
    }

    #[test]
    fn the_error_for_a_url_names_the_fault_and_never_credentials() {
        for (url, said) in [
            ("zk://h", "name the node"),
            ("zk:///locks", "servers"),
            ("zk://h:0/locks", "port"),
            ("zk://::1/locks", "servers"),
            ("zk://h//locks", "empty"),
            ("zk://h/a/../b", "`..`"),
            ("zk://h/%EE%80%80", "private use"),
            ("zk://h/%F0%9F%98%80", "private use"),
            ("zk://secret@h/locks", "user:password"),
            ("zk://u:secret@h/locks?x=1", "unknown option"),
            ("zk://u:secret@h/locks?password_file=/x", "leave one out"),
            ("zk://h/locks?password_file=/x", "needs a user"),
            ("zk://h/locks?layout=etcd", "curator kazoo shared"),
            ("zk://h/locks?tick_ms=0", "1 ms"),
            ("zk://h/locks?handover=list", "unknown option"),
            ("zk://h/locks?max_frame_bytes=1", "max_frame_bytes is 4096"),
            ("zk://h/locks?max_answer_bytes=1", "max_answer_bytes is 4096"),
            ("zk://h/locks?tls_ca=/ca", "unknown option"),
            ("zks://h/locks?tls_cert=/dev/null", "together"),
            ("zks://h/locks?tls_ca=/no/such/file", "/no/such/file"),
        ] {
            let error = config(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}: {error}");
            assert!(error.to_string().contains(said) && !error.to_string().contains("secret"), "{url}: {error}");
        }
        assert!(!format!("{:?}", config("zk://u:secret@h/locks").unwrap()).contains("secret"));
    }
}
