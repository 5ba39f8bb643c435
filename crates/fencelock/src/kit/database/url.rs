//! Options that the URLs of all databases have: the user, and whether connections are encrypted.

use crate::error::{Error, Result};
use crate::kit::address::HostPort;
use crate::store::StoreUrl;
use crate::store::secret::{Secret, TWO_PASSWORDS};

pub(crate) type Bad = fn(&'static str) -> Error;

/// Takes user and password, before the host or as options, and `password_file`. A URL without a user is the error `unnamed`.
pub(crate) fn login(url: &mut StoreUrl, bad: Bad, unnamed: &'static str) -> Result<(String, Option<Secret>)> {
    let given = [url.take("user"), url.take("password")];
    let before = url.credentials().map(|before| before.split_once(':').unwrap_or((before, "")));
    let [user, password] = match before {
        None => given,
        Some((user, password)) => {
            let [other_user, other_password] = given;
            [one_of(user, other_user, bad)?, one_of(password, other_password, bad)?]
        }
    }
    .map(|given| given.filter(|given| !given.is_empty()));
    let user = user.ok_or_else(|| bad(unnamed))?;
    match (password, url.take_secret()?) {
        (Some(_), Some(_)) => Err(bad(TWO_PASSWORDS)),
        (given, asked) => Ok((user, asked.or(given.map(Secret::Given)))),
    }
}

fn one_of(before: &str, option: Option<String>, bad: Bad) -> Result<Option<String>> {
    match option.filter(|option| !option.is_empty()) {
        Some(_) if !before.is_empty() => {
            Err(bad("user and password are given before the host or as options, not both"))
        }
        Some(option) => Ok(Some(option)),
        None => Ok(Some(before.to_owned())),
    }
}

/// Whether connections are encrypted and the server's name verified: by default, unless all servers are on this host. A socket file, which
/// is `None` here, never is.
pub(crate) fn is_encrypted(
    url: &mut StoreUrl,
    bad: Bad,
    servers: &[Option<&HostPort>],
    password: Option<&Secret>,
) -> Result<bool> {
    let (is_socket, is_here) = (servers.contains(&None), servers.iter().flatten().all(|server| server.is_here()));
    let is_wanted = match url.take("sslmode").as_deref() {
        None => !is_here,
        Some("disable") => false,
        Some("verify-full") => true,
        Some("allow" | "prefer" | "require" | "verify-ca") => {
            return Err(bad(
                "this sslmode does not verify who the server is: sslmode is verify-full, or disable where the network is trusted",
            ));
        }
        Some(_) => return Err(bad("unknown sslmode").with("known", "disable verify-full")),
    };
    if is_wanted && is_socket {
        return Err(bad("a socket file is not encrypted: leave sslmode out"));
    }
    if password.is_some() && !is_wanted && !is_here {
        tracing::warn!(store = %url, "the connection is not encrypted: sslmode=disable");
    }
    Ok(is_wanted)
}

impl HostPort {
    fn is_here(&self) -> bool {
        self.host == "localhost" || self.host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}
