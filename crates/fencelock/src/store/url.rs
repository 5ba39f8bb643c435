//! Store URLs: parsed once, secrets never shown, unknown options refused.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use super::secret::{Secret, TWO_PASSWORDS};
use crate::engine::options::URL_OPTIONS;
use crate::error::{Error, ErrorKind, Result};

/// The URL of a store: `scheme://user:password@authority/path?option=value`.
///
/// `Display` and `Debug` show neither user nor password, nor the values of options.
#[derive(Clone)]
pub struct StoreUrl {
    scheme: String,
    credentials: Option<String>,
    authority: String,
    /// Credentials and hosts as they are written: a comma or an `@` that is part of a password is encoded there.
    written: String,
    path: String,
    options: BTreeMap<String, String>,
    /// The callback that returns the password, if the program has one.
    asked: Option<Secret>,
}

impl StoreUrl {
    /// Parses `url`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] that names what is wrong, and never repeats credentials.
    pub fn parse(url: &str) -> Result<Self> {
        if let Some(fault) = no_scheme(url) {
            return Err(bad(fault));
        }
        let (scheme, rest) = url.split_once(':').ok_or_else(|| bad(SCHEME_IS_MISSING))?;
        let scheme_is_valid = scheme.starts_with(|c: char| c.is_ascii_lowercase())
            && scheme.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '+');
        if !scheme_is_valid {
            return Err(bad("the scheme of a store URL is lower-case letters, digits and `+`, starting with a letter"));
        }
        if rest.contains('#') {
            return Err(bad("a store URL has no fragment; write `#` as %23"));
        }
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
        let (authority, path) = match rest.strip_prefix("//") {
            Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            None => ("", rest),
        };
        let written = authority.to_owned();
        let (credentials, authority) = match authority.rsplit_once('@') {
            Some((credentials, authority)) => (Some(decode(credentials)?), authority),
            None => (None, authority),
        };
        Ok(Self {
            scheme: scheme.to_owned(),
            credentials,
            authority: decode(authority)?,
            written,
            path: decode(path)?,
            options: options(query.unwrap_or_default())?,
            asked: None,
        })
    }

    /// The scheme, without the colon.
    #[must_use]
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// `user:password` as given, if any. Secret.
    #[must_use]
    pub fn credentials(&self) -> Option<&str> {
        self.credentials.as_deref()
    }

    /// The hosts, as given, without credentials.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The hosts, each with the credentials in front of it, if any. Secret.
    #[allow(dead_code, reason = "unused without some stores")]
    pub(crate) fn servers(&self) -> Result<Vec<(Option<String>, String)>> {
        let server = |written: &str| match written.rsplit_once('@') {
            Some((credentials, host)) => Ok((Some(decode(credentials)?), decode(host)?)),
            None => Ok((None, decode(written)?)),
        };
        self.written.split(',').map(server).collect()
    }

    /// The path, with its leading slash if it has one.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Takes the option `name` out; [`StoreUrl::refuse_other_options`] refuses the options that are left.
    pub fn take(&mut self, name: &str) -> Option<String> {
        self.options.remove(name)
    }

    /// Takes the option `name`, a whole number of milliseconds.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the value is no such number.
    pub fn take_ms(&mut self, name: &str) -> Result<Option<Duration>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let wrong = |_| bad("an option that ends in _ms takes a whole number of milliseconds").with("option", name);
        value.parse().map(|ms| Some(Duration::from_millis(ms))).map_err(wrong)
    }

    /// Takes the password from `secret` at each connection.
    pub(crate) fn ask_for_password(&mut self, secret: Option<Secret>) {
        self.asked = secret;
    }

    /// Takes out how each connection gets the password: from the program, or from the file of the option `password_file`.
    #[allow(dead_code, reason = "unused without some stores")]
    pub(crate) fn take_secret(&mut self) -> Result<Option<Secret>> {
        match (self.asked.take(), self.take_secret_file("password_file")?) {
            (Some(_), Some(_)) => Err(bad("the program gives the password, or `password_file` does: leave one out")),
            (asked, file) => Ok(asked.or(file)),
        }
    }

    /// Takes user and password, which go together. Warns if the password is not encrypted on its way.
    #[allow(dead_code, reason = "unused without some stores")]
    pub(crate) fn take_login(&mut self, is_encrypted: bool) -> Result<Option<(String, Secret)>> {
        let asked = self.take_secret()?;
        let (user, given) = self.credentials().map_or(("", ""), |given| given.split_once(':').unwrap_or((given, "")));
        let password = match given {
            "" => asked,
            _ if asked.is_some() => return Err(bad(TWO_PASSWORDS)),
            given => Some(Secret::Given(given.to_owned())),
        };
        match (user, password) {
            ("", None) => Ok(None),
            ("", _) | (_, None) => Err(bad("a password needs a user, and a user a password, as in user:password@host")),
            (user, Some(password)) => {
                if !is_encrypted {
                    let (servers, scheme) = (&self.authority, &self.scheme);
                    tracing::warn!(servers, "the password is sent in the clear: the scheme is not {scheme}s");
                }
                Ok(Some((user.to_owned(), password)))
            }
        }
    }

    /// Takes the option `name`, the path of a file with a password.
    pub(crate) fn take_secret_file(&mut self, name: &str) -> Result<Option<Secret>> {
        match self.take(name).map(PathBuf::from) {
            Some(file) if file.is_relative() => {
                Err(bad("a file of a password is named by its whole path, from its first slash on")
                    .with("option", name))
            }
            file => Ok(file.map(Secret::in_file)),
        }
    }

    /// Refuses the options that are left; `known` are the store's own options.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] that names the option and the known ones.
    pub fn refuse_other_options(&self, known: &[&str]) -> Result<()> {
        if self.asked.is_some() {
            return Err(bad("this store takes no password"));
        }
        let Some(option) = self.options.keys().next() else { return Ok(()) };
        let known: Vec<&str> = known.iter().chain(URL_OPTIONS).copied().collect();
        Err(bad("unknown option").with("option", option).with("known", known.join(" ")))
    }
}

const SCHEME_IS_MISSING: &str =
    "a store URL starts with a scheme, as in file:///var/lib/locks, redis://host:6379 or zk://host:2181/locks";

/// The error of a directory, or a host and its port, that stands alone. The given text is not repeated: a password may be in it.
fn no_scheme(url: &str) -> Option<&'static str> {
    if url.starts_with(['/', '.', '~']) {
        return Some("a store URL starts with a scheme: for a directory write file:// and its absolute path");
    }
    let port = url.split_once(':')?.1.split(['/', '?']).next()?;
    port.parse::<u16>().is_ok().then_some(SCHEME_IS_MISSING)
}

fn bad(message: &'static str) -> Error {
    Error::new(ErrorKind::Config, "store URL", message)
}

fn decode(text: &str) -> Result<String> {
    let bytes = text.as_bytes();
    for (index, _) in text.match_indices('%') {
        let digits = bytes.get(index + 1..index + 3);
        if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            return Err(bad("`%` in a store URL is followed by two hexadecimal digits; write `%` itself as %25"));
        }
    }
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| bad("a store URL is UTF-8"))?;
    if decoded.contains('\0') {
        return Err(bad("a store URL holds no NUL"));
    }
    Ok(decoded.into_owned())
}

fn options(query: &str) -> Result<BTreeMap<String, String>> {
    let mut options = BTreeMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or_else(|| bad("an option is written name=value"))?;
        let name = decode(name)?;
        if options.insert(name.clone(), decode(value)?).is_some() {
            return Err(bad("an option is given twice").with("option", name));
        }
    }
    Ok(options)
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.scheme)?;
        if !self.authority.is_empty() || self.path.starts_with('/') {
            f.write_str("//")?;
        }
        if OWN_CREDENTIALS.contains(&&*self.scheme) {
            let servers: Vec<String> = self.written.split(',').map(shown_server).collect();
            f.write_str(&servers.join(","))?;
        } else {
            let hidden = if self.credentials.is_some() { HIDDEN } else { "" };
            write!(f, "{hidden}{}", self.authority)?;
        }
        f.write_str(&self.path)?;
        self.options.get("layout").map_or(Ok(()), |layout| write!(f, "?layout={layout}"))
    }
}

/// The schemes whose servers may each have credentials in front of them. With any other one, a comma before the `@` is part of the password.
const OWN_CREDENTIALS: &[&str] = &["redlock", "redlocks"];

/// The mark that replaces credentials where a URL is shown.
const HIDDEN: &str = "***@";

/// A server of several, without secrets. Text that does not look like a server may be the beginning of a password with a comma.
fn shown_server(written: &str) -> String {
    let (hidden, server) = written.rsplit_once('@').map_or(("", written), |(_, server)| (HIDDEN, server));
    let (host, port) = match server.find(']') {
        Some(end) => server.split_at(end + 1),
        None => server.split_at(server.find(':').unwrap_or(server.len())),
    };
    let is_host = !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "-._:[]%".contains(c));
    let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    format!("{hidden}{}", if is_host && is_port { server } else { "***" })
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let mut url =
            StoreUrl::parse("zk://me:p%40ss@h1:2181,[::1]:2182/locks/a%20b?ttl_ms=5000&layout=curator").unwrap();
        assert_eq!(url.scheme(), "zk");
        assert_eq!(url.credentials(), Some("me:p@ss"));
        assert_eq!(url.authority(), "h1:2181,[::1]:2182");
        assert_eq!(url.path(), "/locks/a b");
        assert_eq!(url.take_ms("ttl_ms").unwrap(), Some(Duration::from_secs(5)));
        assert!(url.refuse_other_options(&["ttl_ms"]).unwrap_err().to_string().contains("layout"));
        assert_eq!(url.take("layout").as_deref(), Some("curator"));
        url.refuse_other_options(&[]).unwrap();
    }

    #[test]
    fn credentials_are_never_shown() {
        let url = StoreUrl::parse("redis://user:s3cret@host/0?password=s3cret").unwrap();
        for shown in [url.to_string(), format!("{url:?}"), url.refuse_other_options(&[]).unwrap_err().to_string()] {
            assert!(!shown.contains("s3cret"), "{shown}");
        }
        assert_eq!(url.to_string(), "redis://***@host/0");
    }

    #[test]
    fn several_servers_have_credentials_of_their_own_which_are_not_shown() {
        let url = StoreUrl::parse("redlock://:s3%2Ccret@a:1,b,me:s3%40cret@[::1]:2/0").unwrap();
        let server = |credentials: Option<&str>, host: &str| (credentials.map(str::to_owned), host.to_owned());
        let servers = [server(Some(":s3,cret"), "a:1"), server(None, "b"), server(Some("me:s3@cret"), "[::1]:2")];
        assert_eq!(url.servers().unwrap(), servers);
        assert!(!format!("{url} {url:?}").contains("s3"), "{url}");
    }

    #[test]
    fn every_server_is_shown_whichever_of_them_have_credentials_and_none_of_these() {
        for (url, shown) in [
            ("redlocks://:s3cret@a,:s3cret@b,c", "redlocks://***@a,***@b,c"),
            ("redlock://a:1,me:s3cret@[::1]:2,10.0.0.1/3?prefix=x", "redlock://a:1,***@[::1]:2,10.0.0.1/3"),
            ("redlock://a,b,c", "redlock://a,b,c"),
            // The comma or the `@` of a password that was not encoded.
            ("redlock://:s3,cret@a,b,c", "redlock://***,***@a,b,c"),
            ("redlock://me:s3@cret@a,b,c", "redlock://***@a,b,c"),
            ("redis://:s3,cret@a", "redis://***@a"),
            ("zk://me:s3,cret@a:1,b:2/locks", "zk://***@a:1,b:2/locks"),
        ] {
            let url = StoreUrl::parse(url).unwrap();
            assert_eq!(url.to_string(), shown);
        }
    }

    #[test]
    fn the_error_for_a_missing_scheme_names_it() {
        for (url, said) in [
            ("localhost:6379", "redis://"),
            ("127.0.0.1:6379/0", "redis://"),
            ("zoo-1.internal:2181/locks", "zk://"),
            ("localhost:7", "zk://host:2181/locks"),
            ("/var/lib/locks", "file://"),
            ("./locks", "file://"),
            ("locks", "file:///var/lib/locks"),
        ] {
            let error = StoreUrl::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(said), "{url}: {error}");
        }
        assert_eq!(StoreUrl::parse("memory:test").unwrap().scheme(), "memory");
    }

    #[test]
    fn the_error_for_an_unknown_option_lists_all_options() {
        let url = StoreUrl::parse("zk://h/x?ttl=5000").unwrap();
        let error = url.refuse_other_options(&["tick_ms"]).unwrap_err().to_string();
        assert!(error.contains("tick_ms ttl_ms renew_interval_ms"), "{error}");
    }

    #[test]
    fn malformed_urls_are_refused() {
        for url in [
            "",
            "nothing",
            "FILE:///x",
            ":///x",
            "1x:///x",
            "file:///x?a",
            "file:///x?a=1&a=2",
            "file:///%zz",
            "file:///%ff",
            "file:///a%00b",
            "file:///a#b",
            "file:///%é",
        ] {
            assert_eq!(StoreUrl::parse(url).unwrap_err().kind(), ErrorKind::Config, "{url}");
        }
    }
}
