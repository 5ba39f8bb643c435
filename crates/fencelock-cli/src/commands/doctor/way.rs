//! How a database server is reached that a store URL names.

use std::net::IpAddr;

use fencelock::capability::StoreUrl;

pub(super) struct Way {
    /// Its name or address, or the path of its socket.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) user: String,
    pub(super) password: String,
    pub(super) is_encrypted: bool,
}

impl Way {
    /// To `server`, or to this socket where the URL names no server.
    pub(super) fn of(url: &StoreUrl, server: &str, socket: &str, port: u16) -> Result<Self, String> {
        let mut url = url.clone();
        let (socket, port) = (url.take(socket), url.take("port").and_then(|port| port.parse().ok()).unwrap_or(port));
        let host = Some(server).filter(|server| !server.is_empty()).map(str::to_owned).or(socket).unwrap_or_default();
        let (host, port) = match host.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>())) {
            Some((host, Ok(port))) => (host, port),
            _ => (&*host, port),
        };
        let host = host.trim_matches(['[', ']']).to_owned();
        // As the library has it: nothing is sent in the clear, to any of several hosts, unless the URL allows it or all are here.
        let is_here = |host: &str| {
            let host =
                host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(host, |(host, _)| host);
            let host = host.trim_matches(['[', ']']);
            host.starts_with('/') || host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
        };
        let is_here = is_here(&host) && url.authority().split(',').all(|host| host.is_empty() || is_here(host));
        let is_encrypted = !url.take("sslmode").map_or(is_here, |mode| mode == "disable");
        let credentials = url.credentials().unwrap_or_default().to_owned();
        let (user, password) = credentials.split_once(':').unwrap_or((&credentials, ""));
        let (user, password) =
            (url.take("user").unwrap_or(user.to_owned()), url.take("password").unwrap_or(password.to_owned()));
        let password = match url.take("password_file") {
            Some(file) => std::fs::read_to_string(&file)
                .map_err(|error| format!("{file}: {error}"))?
                .trim_end_matches(['\r', '\n'])
                .to_owned(),
            None => password,
        };
        Ok(Self { host, port, user, password, is_encrypted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_sent_in_the_clear_to_another_host() {
        for url in [
            "mysql://u:p@203.0.113.1/x",
            "postgres://u:p@localhost/x?sslmode=verify-full",
            "postgres://u:p@localhost,203.0.113.1/x",
        ] {
            let url = StoreUrl::parse(url).unwrap();
            assert!(Way::of(&url, url.authority().split(',').next().unwrap(), "socket", 1).unwrap().is_encrypted);
        }
        for (url, host, port) in [
            ("mysql://u:p@localhost/x", "localhost", 7),
            ("mysql://u:p@[::1]:8/x", "::1", 8),
            ("mysql://u:p@/x?socket=/run/s&port=9", "/run/s", 9),
        ] {
            let url = StoreUrl::parse(url).unwrap();
            let way = Way::of(&url, url.authority(), "socket", 7).unwrap();
            assert_eq!((&*way.host, way.port, &*way.user, &*way.password), (host, port, "u", "p"));
        }
    }
}
