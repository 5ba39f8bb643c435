//! The options of a `file:` URL.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::store::StoreUrl;

/// The options of a `file:` URL, besides the options of every store.
pub(crate) const OPTIONS: &[&str] = &["create", "inherit"];

/// How a directory is opened and used.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// Absolute.
    pub(super) path: String,
    /// Makes the directory (not its parent) when it is missing.
    pub(super) create: bool,
    /// Child processes inherit the session, and keep its locks alive after this process died.
    pub(super) inherit: bool,
    /// How long the short internal locks of the directory are tried.
    pub(super) request_deadline: Duration,
    /// The boot id to use instead of the machine's; for tests.
    pub(super) boot: Option<String>,
    /// Shares nothing in memory with other stores of this process; for tests.
    pub(super) apart: bool,
}

impl Config {
    /// The default of `request_deadline`.
    const REQUEST_DEADLINE: Duration = Duration::from_secs(3);

    pub(super) fn new(path: &std::path::Path) -> Result<Self> {
        let Some(text) = path.to_str() else {
            return Err(bad("the path of a lock directory is UTF-8").with("path", path.display()));
        };
        if !text.starts_with('/') {
            return Err(bad("the path of a lock directory is absolute, as in file:///var/lib/locks").with("path", text));
        }
        let trimmed = text.trim_end_matches('/');
        Ok(Self {
            path: if trimmed.is_empty() { "/" } else { trimmed }.to_owned(),
            create: true,
            inherit: false,
            request_deadline: Self::REQUEST_DEADLINE,
            boot: None,
            apart: false,
        })
    }

    pub(crate) fn from_url(mut url: StoreUrl) -> Result<Self> {
        if url.credentials().is_some() {
            return Err(bad("a file: URL takes no user and no password"));
        }
        if !matches!(url.authority(), "" | "localhost") {
            return Err(bad("a file: URL names no host: three slashes, as in file:///var/lib/locks")
                .with("host", url.authority()));
        }
        let mut config = Self::new(url.path().as_ref())?;
        config.create = flag(&mut url, "create")?.unwrap_or(config.create);
        config.inherit = flag(&mut url, "inherit")?.unwrap_or(config.inherit);
        url.refuse_other_options(OPTIONS)?;
        Ok(config)
    }
}

fn flag(url: &mut StoreUrl, name: &'static str) -> Result<Option<bool>> {
    match url.take(name).as_deref() {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(_) => Err(bad("this option is true or false").with("option", name)),
    }
}

fn bad(message: &'static str) -> Error {
    Error::new(ErrorKind::Config, "file store", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Result<Config> {
        Config::from_url(StoreUrl::parse(url)?)
    }

    #[test]
    fn a_directory_is_named_by_its_absolute_path() {
        for url in ["file:///var/lib/locks", "file://localhost/var/lib/locks", "file:/var/lib/locks/"] {
            assert_eq!(config(url).unwrap().path, "/var/lib/locks", "{url}");
        }
        let options = config("file:///x?inherit=true&create=false").unwrap();
        assert!(options.inherit && !options.create);
    }

    #[test]
    fn an_unusable_path_of_a_directory_is_refused() {
        let paths = ["file:locks", "file:", "file://host/x", "file://me:pw@/x"];
        let options = ["file:///x?inherit=yes", "file:///x?trust=anyone", "file:///x?y=1"];
        for url in paths.into_iter().chain(options) {
            let error = config(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}: {error}");
            assert!(!error.to_string().contains("pw"));
        }
    }
}
