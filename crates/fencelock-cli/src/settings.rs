//! The choice of the store: by option, environment, configuration file, or the default on this host.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use fencelock::capability::StoreUrl;
use fencelock::recipes::Router;
use fencelock::{Error, ErrorKind, Name};
use serde::Deserialize;

use crate::libpq;
use crate::output::{Failure, Outcome, code};
use crate::trusted;

pub(crate) const STORE_VARIABLE: &str = "FENCELOCK_STORE";
/// The configuration file's name, wherever it stands.
const FILE: &str = "fencelock.toml";
/// Root's default store; also the last place that is looked at for a configuration file is root's.
const ROOT_STATE: &str = "/var/lib/fencelock";
pub(crate) const SYSTEM_FILE: &str = "/etc/fencelock.toml";

/// The surroundings that decide about the store; taken once, so that tests can own them.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    pub(crate) store: Option<OsString>,
    pub(crate) home: Option<OsString>,
    pub(crate) state_home: Option<OsString>,
    pub(crate) config_home: Option<OsString>,
    pub(crate) user: u32,
    pub(crate) directory: PathBuf,
    pub(crate) system_file: PathBuf,
}

impl Surroundings {
    pub(crate) fn of_this_process() -> Self {
        Self {
            store: env::var_os(STORE_VARIABLE),
            home: env::var_os("HOME"),
            state_home: env::var_os("XDG_STATE_HOME"),
            config_home: env::var_os("XDG_CONFIG_HOME"),
            user: nix::unistd::geteuid().as_raw(),
            directory: PathBuf::from("."),
            system_file: PathBuf::from(SYSTEM_FILE),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Option,
    Environment,
    File(PathBuf),
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option => f.write_str("--store"),
            Self::Environment => f.write_str(STORE_VARIABLE),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Default => f.write_str("the default"),
        }
    }
}

/// A store URL and where it came from. The URL may hold secrets.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) url: String,
    pub(crate) origin: Origin,
    /// The URL of the new store, if the names move from this store to another.
    pub(crate) new_url: Option<String>,
}

impl fmt::Debug for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a store URL from {}", self.origin)
    }
}

impl Chosen {
    fn new(url: impl Into<String>, origin: Origin) -> Self {
        Self { url: url.into(), origin, new_url: None }
    }

    pub(crate) fn new_store(&self) -> Option<Self> {
        Some(Self::new(self.new_url.as_ref()?, self.origin.clone()))
    }

    /// The URL with the session descriptor of a `file:` store inherited by commands, or not. A wrong URL stays
    /// unchanged, for the store to refuse.
    #[must_use]
    pub(crate) fn inherited(&self, inherit: bool) -> String {
        let given = StoreUrl::parse(&self.url).map(|mut url| url.take("inherit"));
        let is_right = matches!(given.as_ref().map(Option::as_deref), Ok(None | Some("true" | "false")));
        if !self.url.starts_with("file:") || !is_right {
            return self.url.clone();
        }
        let mut url = libpq::without_option(&self.url, "inherit");
        if inherit {
            libpq::option(&mut url, "inherit", "true");
        }
        url
    }

    /// Whether the store is a directory that does not exist, so that no process can hold a lock in it.
    pub(crate) fn is_missing(&self) -> bool {
        let is_absent =
            |url: &StoreUrl| url.path().starts_with('/') && matches!(Path::new(url.path()).try_exists(), Ok(false));
        StoreUrl::parse(&self.url).is_ok_and(|url| url.scheme() == "file" && is_absent(&url))
    }

    /// The store for people: without secrets and options, and where the URL came from.
    pub(crate) fn shown(&self) -> String {
        match self.origin {
            Origin::Option | Origin::Environment => self.name(),
            ref origin @ (Origin::File(_) | Origin::Default) => format!("{} ({origin})", self.name()),
        }
    }

    /// The store's URL without secrets, with only the options that distinguish its locks from others.
    pub(crate) fn name(&self) -> String {
        const APART: [&str; 8] = ["prefix", "schema", "fence", "table", "key", "db", "host", "port"];
        // A wrong URL is refused before it is shown.
        let Ok(mut url) = StoreUrl::parse(&self.url) else { return "a store".to_owned() };
        let (mut name, has_layout) = (url.to_string(), url.take("layout").is_some());
        let options = APART.iter().filter_map(|option| Some(format!("{option}={}", url.take(option)?)));
        for (index, option) in options.enumerate() {
            name.push(if index > 0 || has_layout { '&' } else { '?' });
            name.push_str(&option);
        }
        name
    }

    /// Which locks are meant: the name, without a trace of credentials.
    pub(crate) fn locks(&self) -> String {
        let Ok(mut url) = StoreUrl::parse(&self.url) else { return String::new() };
        let mut locks = self.name().replace("***@", "");
        // A PostgreSQL URL without a database means the database with the user's name.
        if url.scheme().starts_with("postgres") && url.path().trim_start_matches('/').is_empty() {
            let user = url.credentials().map(|given| given.split(':').next().unwrap_or_default().to_owned());
            let user = user.filter(|user| !user.is_empty()).or_else(|| url.take("user"));
            locks.extend([" database=".to_owned(), user.unwrap_or_default()]);
        }
        locks
    }

    /// Refuses the store that lives in one process, for verbs whose locks another process must see.
    pub(crate) fn refuse_memory(&self) -> Outcome<()> {
        if !self.url.starts_with("memory:") {
            return Ok(());
        }
        let message = format!(
            "memory: (from {}) is the memory of one process, so that it locks no other process out: name another store, as `fencelock stores` lists them",
            self.origin
        );
        Err(Failure::new(code::USAGE, message))
    }

    /// Whether the URL holds a password; a user alone is no secret.
    pub(crate) fn has_password(&self) -> bool {
        has_password(&self.url)
    }
}

fn has_password(url: &str) -> bool {
    let Ok(mut url) = StoreUrl::parse(url) else { return false };
    let given = url.credentials().and_then(|given| given.split_once(':')).map(|(_, password)| password.to_owned());
    given.or_else(|| url.take("password")).is_some_and(|password| !password.is_empty())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    store: Option<String>,
    /// A table of patterns and URLs; an error must not repeat any other value, as it may hold a password.
    routes: Option<toml::Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Move {
    from: String,
    to: String,
}

enum Stores {
    One(String),
    ByName(Router<String>, Vec<String>),
}

impl Stores {
    fn urls(&self) -> &[String] {
        match self {
            Self::One(url) => std::slice::from_ref(url),
            Self::ByName(_, urls) => urls,
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Options<'a> {
    pub(crate) store: Option<&'a str>,
    pub(crate) config: Option<&'a Path>,
}

/// Chooses the store of `names`: the options, else the environment, else the first configuration file that names one, else the
/// directory of this user on this host.
pub(crate) fn choose(options: Options<'_>, around: &Surroundings, names: &[Name]) -> Outcome<Chosen> {
    let (stores, origin) = named(options, around)?;
    of_names(stores, origin, names)
}

/// All stores of the first place that names a store: the stores of all routes, or a single one.
pub(crate) fn choose_every(options: Options<'_>, around: &Surroundings) -> Outcome<Vec<Chosen>> {
    let (stores, origin) = named(options, around)?;
    let mut every: Vec<Chosen> = Vec::new();
    for url in stores.urls() {
        let chosen = Chosen::new(url, origin.clone());
        if !every.iter().any(|other| other.url == chosen.url || other.locks() == chosen.locks()) {
            every.push(chosen);
        }
    }
    Ok(every)
}

fn named(options: Options<'_>, around: &Surroundings) -> Outcome<(Stores, Origin)> {
    if let Some(url) = options.store {
        return Ok((Stores::One(url.to_owned()), Origin::Option));
    }
    if let Some(path) = options.config {
        let missing = || wrong(format!("{} (named by --config) is not there, or names no store", path.display()));
        return Ok((read(path, around.user)?.ok_or_else(missing)?, Origin::File(path.to_owned())));
    }
    if let Some(value) = &around.store {
        let wrong = |what| wrong(format!("{STORE_VARIABLE} {what}: set it to a store URL, or unset it"));
        let url = value.to_str().ok_or_else(|| wrong("is not UTF-8"))?;
        if url.is_empty() {
            return Err(wrong("is empty"));
        }
        return Ok((Stores::One(url.to_owned()), Origin::Environment));
    }
    for path in files(around) {
        if let Some(stores) = read(&path, around.user)? {
            return Ok((stores, Origin::File(path)));
        }
    }
    Ok((Stores::One(default(around)?), Origin::Default))
}

/// The store of all `names`, as `origin` configures it; an error if they have several.
fn of_names(stores: Stores, origin: Origin, names: &[Name]) -> Outcome<Chosen> {
    let router = match stores {
        Stores::One(url) => return Ok(Chosen::new(url, origin)),
        Stores::ByName(router, _) => router,
    };
    let Some((first, others)) = names.split_first() else {
        let message = format!("{origin} has a store for each name, and none is named here: give --store URL");
        return Err(Failure::new(code::USAGE, message));
    };
    let routed = |name: &Name| router.stores(name).map_err(|error| wrong(format!("{origin}: {error}")));
    let urls = routed(first)?;
    for other in others {
        if routed(other)? != urls {
            let message =
                format!("{origin} gives {first} and {other} different stores; a command takes locks of a single store");
            return Err(Failure::new(code::USAGE, message));
        }
    }
    let chosen = Chosen::new(&urls[0], origin.clone());
    let chosen = Chosen { new_url: urls.get(1).cloned(), ..chosen };
    if chosen.new_store().is_some_and(|new| new.locks() == chosen.locks()) {
        return Err(wrong(format!("{origin} moves {first} from {} to the same store", chosen.name())));
    }
    Ok(chosen)
}

fn files(around: &Surroundings) -> Vec<PathBuf> {
    let mut files = vec![around.directory.join(FILE)];
    files.extend(
        base(around.config_home.as_ref(), around.home.as_ref(), ".config").map(|dir| dir.join("fencelock").join(FILE)),
    );
    files.push(around.system_file.clone());
    files
}

/// A directory of the XDG base directory specification, which ignores relative paths.
fn base(xdg: Option<&OsString>, home: Option<&OsString>, under_home: &str) -> Option<PathBuf> {
    let absolute = |path: &OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    xdg.and_then(absolute).or_else(|| home.and_then(absolute).map(|home| home.join(under_home)))
}

/// The stores in the file at `path`; `None` when there is no such file, or nothing in it.
fn read(path: &Path, user: u32) -> Outcome<Option<Stores>> {
    let wrong = |what: &dyn fmt::Display| wrong(format!("{}: {what}", path.display()));
    let Some(text) = trusted::read(path, user)? else { return Ok(None) };
    // The parser's own display repeats the line, which may hold a password.
    let file: File = toml::from_str(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        wrong(&format!("line {line}: {}; the keys are store = \"URL\" or the table [routes]", error.message()))
    })?;
    let stores = match (file.store, file.routes) {
        (Some(_), Some(_)) => return Err(wrong(&"it has store and [routes]: write the store as the route \"**\"")),
        (Some(url), None) if url.is_empty() => return Err(wrong(&"store is empty")),
        (Some(url), None) => Stores::One(url),
        (None, Some(routes)) => routes_of(routes).map_err(|fault| wrong(&fault))?,
        (None, None) => return Ok(None),
    };
    if stores.urls().iter().any(|url| has_password(url)) {
        trusted::refuse_shared(path)?;
    }
    Ok(Some(stores))
}

/// The stores in a table of patterns and URLs.
fn routes_of(routes: toml::Value) -> Result<Stores, String> {
    let toml::Value::Table(table) = routes else {
        return Err("routes is a table: [routes], and then lines as \"pay/**\" = \"URL\"".to_owned());
    };
    let (mut routes, mut moves) = (Vec::new(), Vec::new());
    for (pattern, value) in table {
        let is_no_url = format!(
            "the route {pattern:?} is no URL; a line is \"pay/**\" = \"URL\", with both in quotes, or during a move \"pay/**\" = {{ from = \"URL\", to = \"URL\" }}"
        );
        match value {
            toml::Value::String(url) if !url.is_empty() => routes.push((pattern, url)),
            toml::Value::Table(table) => {
                // The error of the parser repeats nothing of the values.
                let Move { from, to } = table.try_into().map_err(|_| is_no_url.clone())?;
                if from.is_empty() || to.is_empty() {
                    return Err(is_no_url);
                }
                moves.push((pattern.clone(), to));
                routes.push((pattern, from));
            }
            _ => return Err(is_no_url),
        }
    }
    let urls = routes.iter().chain(&moves).map(|(_, url)| url.clone()).collect();
    let router = Router::new(routes).map_err(|error| error.to_string())?;
    let moved = moves.into_iter().try_fold(router, |router, (pattern, to)| router.migrate(pattern, to));
    moved.map(|router| Stores::ByName(router, urls)).map_err(|error| error.to_string())
}

/// No option or file names a store, and the default was refused.
pub(crate) fn none_is_named() -> Failure {
    wrong(format!(
        "no store is named, and jobs, elections, --hold-at-least and --require-store refuse the default, which other hosts do not \
         share: give --store URL (file:///DIR locks on this host alone) or --config FILE, set {STORE_VARIABLE}, or write \
         store = \"URL\" into {FILE} here, into fencelock/{FILE} in $XDG_CONFIG_HOME or ~/.config, or into {SYSTEM_FILE}"
    ))
}

fn wrong(message: String) -> Failure {
    Failure::new(code::CONFIG, message)
}

/// The default store cannot be used. If the place is at fault, the user has to name another: no user chose the default.
pub(crate) fn default_failed(error: Error) -> Failure {
    let is_place = matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Config);
    let failure = Failure::from(error.with("store from", Origin::Default));
    if !is_place {
        return failure;
    }
    let why = failure.message.unwrap_or_default();
    let wanted =
        "no store is named, and the default cannot be used: give --store file:///path/on/a/local/disk or another store";
    wrong(format!("{wanted}, or set {STORE_VARIABLE}: {why}"))
}

/// Makes the directories above the default store's; the store makes its own.
pub(crate) fn make_parents(url: &str) -> Outcome<()> {
    let url = StoreUrl::parse(url)?;
    match Path::new(url.path()).parent() {
        Some(parent) => fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)
            .map_err(|error| Failure::os(format_args!("cannot make {}", parent.display()), &error)),
        None => Ok(()),
    }
}

fn default(around: &Surroundings) -> Outcome<String> {
    let directory = if around.user == 0 {
        PathBuf::from(ROOT_STATE)
    } else {
        let state = base(around.state_home.as_ref(), around.home.as_ref(), ".local/state").ok_or_else(|| {
            wrong(format!(
                "no store is configured, and there is no home directory for a local one: give --store URL, or set {STORE_VARIABLE}, HOME or XDG_STATE_HOME (absolute paths)"
            ))
        })?;
        state.join("fencelock")
    };
    file_url(&directory)
}

fn file_url(directory: &Path) -> Outcome<String> {
    let not_utf8 = || wrong(format!("the directory {directory:?} is not UTF-8: give --store, or set {STORE_VARIABLE}"));
    let path = directory.to_str().ok_or_else(not_utf8)?;
    Ok(format!("file://{}", libpq::encoded(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(directory: &Path) -> Surroundings {
        Surroundings {
            store: None,
            home: None,
            state_home: None,
            config_home: None,
            user: nix::unistd::geteuid().as_raw().max(1),
            directory: directory.join("cwd"),
            system_file: directory.join("etc.toml"),
        }
    }

    fn url(option: Option<&str>, around: &Surroundings) -> String {
        let options = Options { store: option, config: None };
        choose(options, around, &[]).unwrap().url
    }

    #[test]
    fn the_nearest_place_that_names_a_store_wins() {
        let root = tempfile::tempdir().unwrap();
        let mut around = nothing(root.path());
        around.home = Some(root.path().join("home").into());
        assert_eq!(url(None, &around), format!("file://{}/home/.local/state/fencelock", root.path().display()));
        fs::write(&around.system_file, "store = 'file:///system'").unwrap();
        assert_eq!(url(None, &around), "file:///system");
        let user = root.path().join("home/.config/fencelock");
        fs::create_dir_all(&user).unwrap();
        fs::write(user.join(FILE), "store = 'file:///user'").unwrap();
        assert_eq!(url(None, &around), "file:///user");
        fs::create_dir(&around.directory).unwrap();
        fs::write(around.directory.join(FILE), "# names none\n").unwrap();
        assert_eq!(url(None, &around), "file:///user");
        fs::write(around.directory.join(FILE), "store = 'file:///here'").unwrap();
        assert_eq!(url(None, &around), "file:///here");
        around.store = Some("file:///variable".into());
        assert_eq!(url(None, &around), "file:///variable");
        assert_eq!(url(Some("file:///option"), &around), "file:///option");
    }

    #[test]
    fn without_a_home_the_error_says_what_to_set() {
        let root = tempfile::tempdir().unwrap();
        let mut around = nothing(root.path());
        around.home = Some("relative".into());
        let failure = choose(Options::default(), &around, &[]).unwrap_err();
        assert_eq!(failure.code, code::CONFIG);
        let message = failure.message.unwrap();
        assert!(message.contains("HOME") && message.contains(STORE_VARIABLE), "{message}");
        around.user = 0;
        assert_eq!(url(None, &around), "file:///var/lib/fencelock");
    }

    #[test]
    fn wrong_configuration_is_named_and_never_repeated() {
        let root = tempfile::tempdir().unwrap();
        let around = nothing(root.path());
        for text in ["store = 'redis://me:s3cret@h", "\nstores = 'redis://me:s3cret@h'", "store = ''", "store = 7"] {
            fs::write(&around.system_file, text).unwrap();
            let failure = choose(Options::default(), &around, &[]).unwrap_err();
            let message = failure.message.unwrap();
            assert_eq!(failure.code, code::CONFIG);
            assert!(message.contains("etc.toml") && !message.contains("s3cret"), "{message}");
        }
        let empty = Surroundings { store: Some(OsString::new()), ..around };
        assert!(choose(Options::default(), &empty, &[]).unwrap_err().message.unwrap().contains("is empty"));
    }

    #[test]
    fn directories_become_urls_that_name_them_exactly() {
        let mut url = StoreUrl::parse(&file_url(Path::new("/a b/50%/x?y#z@ü")).unwrap()).unwrap();
        assert_eq!(url.path(), "/a b/50%/x?y#z@ü");
        assert_eq!(url.take("y"), None);
    }

    #[test]
    fn which_locks_are_meant_depends_on_no_secret_and_on_no_time() {
        let locks = |url: &str| Chosen::new(url, Origin::Environment).locks();
        assert_eq!(locks("redis://me:s3cret@h/0?ttl_ms=9000"), locks("redis://:0ther@h/0"));
        assert_ne!(locks("redis://h/0?layout=plain"), locks("redis://h/0"));
        let url = "postgres://u:s3cret@h/d?password=s3cret&schema=mine";
        assert_eq!(locks(url), "postgres://h/d?schema=mine");
        assert_eq!(locks("postgres://u:s3cret@h"), "postgres://h database=u");
        assert_ne!(locks("postgres://h?user=u"), locks("postgres://h?user=v"), "these name two databases");
        assert!(!locks("redlock://:s3cret@a,:0ther@b").contains("s3cret"));
    }

    #[test]
    fn a_store_is_called_by_the_options_that_set_its_locks_apart() {
        for (url, name) in [
            ("redis://:s3cret@h/0?ttl_ms=9000&prefix=one", "redis://***@h/0?prefix=one"),
            ("redis://h/0?prefix=one&layout=plain", "redis://h/0?layout=plain&prefix=one"),
            ("redis+unix:///r.sock?db=3", "redis+unix:///r.sock?db=3"),
            ("postgres://u@/d?host=/run&schema=mine&password=s3cret", "postgres://***@/d?schema=mine&host=/run"),
        ] {
            assert_eq!(Chosen::new(url, Origin::Environment).name(), name);
        }
    }

    #[test]
    fn only_a_file_store_gets_the_option_to_inherit() {
        let chosen = |url: &str| Chosen::new(url, Origin::Option);
        assert_eq!(chosen("file:///x").inherited(true), "file:///x?inherit=true");
        assert_eq!(chosen("file:///x?ttl_ms=9000").inherited(true), "file:///x?ttl_ms=9000&inherit=true");
        assert_eq!(chosen("file:///x?inherit=true").inherited(false), "file:///x");
        assert_eq!(chosen("zk://h/x").inherited(true), "zk://h/x");
    }
}
