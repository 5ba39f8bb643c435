//! What a `redis:`, `rediss:` or `redis+unix:` URL may say of the layout. What it says of the server, the wire reads.

use super::wire::{Config, bad};
use crate::error::{Error, ErrorKind, Result};
use crate::store::StoreUrl;

/// The options of a `redis:` URL, besides those that every store takes.
pub(crate) const OPTIONS: &[&str] = &["layout", "prefix"];
/// The options of a `rediss:` URL.
pub(crate) const TLS_OPTIONS: &[&str] = &["layout", "prefix", "tls_ca", "tls_cert", "tls_key"];
/// The options of a `redis+unix:` URL.
pub(crate) const UNIX_OPTIONS: &[&str] = &["layout", "prefix", "db"];

/// What every key starts with unless told otherwise.
const PREFIX: &str = "fencelock";

/// The longest prefix, in bytes.
const PREFIX_MOST: usize = 64;

/// Layouts of others that have a name already, so that asking for one says that it is not there yet.
const LATER: &[&str] = &["redisson", "plain"];

/// The server that `url` names, and what every key starts with.
pub(super) fn read(mut url: StoreUrl) -> Result<(Config, String)> {
    layout(url.take("layout"))?;
    let prefix = prefix(url.take("prefix"))?;
    let known = match url.scheme() {
        "redis+unix" => UNIX_OPTIONS,
        "rediss" => TLS_OPTIONS,
        _ => OPTIONS,
    };
    Ok((Config::from_url(url, known)?, prefix))
}

fn layout(given: Option<String>) -> Result<()> {
    match given.as_deref() {
        None | Some("fair") => Ok(()),
        Some(later) if LATER.contains(&later) => {
            let message = "this release has no layout of other clients yet, only its own";
            Err(Error::new(ErrorKind::Unsupported, "redis store", message).with("layout", later).with("known", "fair"))
        }
        Some(_) => Err(bad("unknown layout").with("known", "fair")),
    }
}

fn prefix(given: Option<String>) -> Result<String> {
    let Some(given) = given else { return Ok(PREFIX.to_owned()) };
    // Braces would move the hash tag; the rest is what glob patterns and people stumble over.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '/');
    if given.is_empty() || given.len() > PREFIX_MOST || !given.chars().all(is_plain) {
        return Err(bad("a prefix is 1 to 64 letters, digits and `-_.:/`"));
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_url(url: &str) -> Result<(Config, String)> {
        read(StoreUrl::parse(url)?)
    }

    #[test]
    fn a_prefix_is_taken_beside_what_is_said_of_the_server() {
        assert_eq!(read_url("redis://h1").unwrap().1, PREFIX);
        let (config, prefix) = read_url("redis://h1:1/5?prefix=app:locks&layout=fair").unwrap();
        assert_eq!((format!("{config:?}").as_str(), &*prefix), ("redis://h1:1/5", "app:locks"));
        assert_eq!(read_url("redis+unix:///run/redis.sock?db=2&prefix=a").unwrap().1, "a");
    }

    #[test]
    fn what_is_no_layout_and_no_prefix_is_refused() {
        for option in ["layout=other", "prefix=", "prefix=a%7Bb", "prefix=a%20b", "db=1"] {
            let error = read_url(&format!("redis://h1?{option}")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{option}");
        }
    }

    #[test]
    fn a_layout_of_others_is_said_to_come_later() {
        for layout in LATER {
            let error = read_url(&format!("redis://h1?layout={layout}")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.to_string().contains("yet"), "{error}");
        }
    }
}
