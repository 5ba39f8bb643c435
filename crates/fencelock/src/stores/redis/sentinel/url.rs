//! A `redis+sentinel:` or `rediss+sentinel:` URL: the Sentinels, their primary and the way to both.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::Sentinels;
use crate::error::Result;
use crate::kit::address::HostPort;
use crate::kit::tls::Tls;
use crate::store::StoreUrl;
use crate::stores::redis::wire::{Address, Config, bad, credentials, take_min_replicas};

/// The options, besides the options of every store.
pub(crate) const OPTIONS: &[&str] = &[
    "layout",
    "prefix",
    "signal",
    "fence",
    "min_replicas",
    "map",
    "sentinel_user",
    "sentinel_password_file",
    "sentinel_tls",
    "password_file",
    "tls_ca",
    "tls_cert",
    "tls_key",
];

const SENTINELS: &str = "name the Sentinels, as in redis+sentinel://host1:26379,host2,host3/NAME";
const NAME: &str =
    "name the primary as its Sentinels call it, and perhaps a database: redis+sentinel://host1,host2,host3/NAME/0";
const MAP: &str = "`map` is the address that Sentinels name, `=` and the one to dial, for each server and with commas between: `map=10.0.0.5:6379=db1.example:6379,10.0.0.6:6379=db2.example:6379`";

/// The primary of the moment, once a layout has taken its own options out.
pub(crate) fn config(mut url: StoreUrl) -> Result<Config> {
    let secret = url.take_secret()?;
    let identity = credentials(url.credentials(), secret.as_ref())?;
    let min_replicas = take_min_replicas(&mut url)?.unwrap_or(1);
    let (name, db) = name_and_database(url.path())?;
    let is_secure = url.scheme() == "rediss+sentinel";
    let sentinel_tls = match url.take("sentinel_tls").as_deref() {
        None => is_secure,
        Some("on") => true,
        Some("off") => false,
        Some(_) => return Err(bad("`sentinel_tls` is on or off")),
    };
    let tls = if is_secure || sentinel_tls { Some(Tls::from_url(&mut url, None)?) } else { None };
    let own = match (url.take("sentinel_user"), url.take_secret_file("sentinel_password_file")?) {
        (Some(_), None) => return Err(bad("a `sentinel_user` needs its `sentinel_password_file`")),
        own => own,
    };
    let map = url.take("map").map_or(Ok(Vec::new()), |map| map.split(',').map(mapped).collect())?;
    url.refuse_other_options(OPTIONS)?;
    let each = url.authority().split(',').map(|server| {
        let server = HostPort::parse(server, 26379, SENTINELS).map_err(|_| bad(SENTINELS))?;
        let tls = tls.clone().filter(|_| sentinel_tls);
        Ok((server.clone(), Config::new(Address::Tcp(server), tls, own.clone())))
    });
    let each: Vec<_> = each.collect::<Result<_>>()?;
    let shown = format!("{}://{}/{name}", url.scheme(), url.authority());
    if identity.1.is_some() && !is_secure || own.1.is_some() && !sentinel_tls {
        tracing::warn!(
            server = shown,
            "a password is sent in the clear: the scheme is not rediss+sentinel, or `sentinel_tls` is off"
        );
    }
    let turn = Arc::new(AtomicUsize::new(usize::from(std::process::id() as u16)));
    let sentinels = Sentinels { shown: shown.into(), name: name.into(), each: each.into(), map: map.into(), turn };
    Ok(Config::of_primary(sentinels, tls.filter(|_| is_secure), identity, (db, min_replicas)))
}

/// The name of the primary, and the number of the database.
fn name_and_database(path: &str) -> Result<(String, u32)> {
    let (name, db) =
        path.strip_prefix('/').unwrap_or_default().split_once('/').unwrap_or((path.trim_start_matches('/'), ""));
    match db {
        _ if name.is_empty() => Err(bad(NAME)),
        "" => Ok((name.to_owned(), 0)),
        db => Ok((name.to_owned(), db.parse().map_err(|_| bad(NAME))?)),
    }
}

pub(crate) fn mapped(pair: &str) -> Result<(HostPort, HostPort)> {
    let (inside, outside) = pair.split_once('=').ok_or_else(|| bad(MAP))?;
    let server = |text| HostPort::parse(text, 6379, MAP).map_err(|_| bad(MAP));
    Ok((server(inside)?, server(outside)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn read(url: &str) -> Result<Config> {
        config(StoreUrl::parse(url)?)
    }

    #[test]
    fn sentinels_name_and_database_are_taken_apart_and_no_secret_is_shown() {
        for (url, shown) in [
            ("redis+sentinel://s1/locks", "redis+sentinel://s1/locks/0"),
            ("redis+sentinel://me:s3cret@s1:1,s2,[::1]:3/locks/7", "redis+sentinel://s1:1,s2,[::1]:3/locks/7"),
            ("redis+sentinel://s1/a?map=10.0.0.5=h1,[fe80::1]:7=h2:8&min_replicas=0", "redis+sentinel://s1/a/0"),
        ] {
            assert_eq!(format!("{:?}", read(url).unwrap()), shown);
        }
    }

    #[test]
    fn a_url_that_lacks_something_is_refused() {
        for (url, said) in [
            ("redis+sentinel://s1", "NAME"),
            ("redis+sentinel:///locks", "26379"),
            ("redis+sentinel://s1,,s2/locks", "26379"),
            ("redis+sentinel://s1/locks/x", "NAME/0"),
            ("redis+sentinel://s1/locks/0/1", "NAME/0"),
            ("redis+sentinel://s1/locks?map=a:1", "map"),
            ("redis+sentinel://s1/locks?map=a:1=b:x", "map"),
            ("redis+sentinel://s1/locks?min_replicas=-1", "min_replicas"),
            ("redis+sentinel://s1/locks?sentinel_tls=yes", "on or off"),
            ("redis+sentinel://s1/locks?sentinel_user=me", "sentinel_password_file"),
            ("redis+sentinel://s1/locks?sentinel_password_file=x", "whole path"),
            ("redis+sentinel://s1/locks?tls_ca=/x", "tls_ca"),
        ] {
            let error = read(url).unwrap_err();
            assert!(error.kind() == ErrorKind::Config && error.to_string().contains(said), "{url}: {error}");
        }
    }
}
