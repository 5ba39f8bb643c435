//! Connect strings: `host1:2181,host2,[::1]:2182/chroot`.

use std::fmt;

use crate::error::{Error, ErrorKind, Result};
use crate::path;

/// ZooKeeper's port where none is given.
const DEFAULT_PORT: u16 = 2181;

/// A server as the connect string names it: a name or an address (without brackets), and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Server {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// The servers, and the chroot without a last `/`: empty when there is none.
pub(crate) fn parse(text: &str) -> Result<(Vec<Server>, String)> {
    let (servers, chroot) = text.find('/').map_or((text, ""), |slash| text.split_at(slash));
    if let Some(fault) = (!chroot.is_empty()).then(|| path::fault(chroot, false)).flatten() {
        return Err(refused(text, format!("the chroot {chroot:?}: {fault}")));
    }
    let servers = servers.split(',').map(|server| one(server).map_err(|fault| refused(text, fault)));
    Ok((servers.collect::<Result<_>>()?, chroot.trim_end_matches('/').to_owned()))
}

fn refused(text: &str, fault: impl fmt::Display) -> Error {
    let allowed = "allowed is host[:port][,host[:port]]…[/chroot], an IPv6 address in brackets";
    Error::new(ErrorKind::Config, "connect", format!("the connect string {text:?}: {fault}; {allowed}"))
}

fn one(text: &str) -> Result<Server, String> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(|| format!("{text:?} has no closing bracket"))?;
            host.parse::<std::net::Ipv6Addr>().map_err(|_| format!("{host:?} is no IPv6 address"))?;
            (host, port.strip_prefix(':').map_or_else(|| port.is_empty().then_some(None), |port| Some(Some(port))))
        }
        None => match text.split_once(':') {
            Some((_, port)) if port.contains(':') => return Err(format!("{text:?} has several colons")),
            Some((host, port)) => (host, Some(Some(port))),
            None => (text, Some(None)),
        },
    };
    let Some(port) = port else { return Err(format!("{text:?} continues after its bracket")) };
    if host.is_empty() {
        return Err("a host is empty".to_owned());
    }
    if let Some(c) =
        host.chars().find(|c| c.is_whitespace() || c.is_control() || matches!(c, '@' | '?' | '#' | '[' | ']'))
    {
        return Err(format!("the host {host:?} has the character {c:?}"));
    }
    Ok(Server { host: host.to_owned(), port: port.map_or(Ok(DEFAULT_PORT), parse_port)? })
}

fn parse_port(text: &str) -> Result<u16, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(port) if digits && port > 0 => Ok(port),
        _ => Err(format!("{text:?} is no port (1 to 65535)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> (String, String) {
        let (servers, chroot) = parse(text).unwrap();
        (servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "), chroot)
    }

    #[test]
    fn servers_ports_and_chroots_are_read() {
        let pair = |servers: &str, chroot: &str| (servers.to_owned(), chroot.to_owned());
        assert_eq!(shown("a"), pair("a:2181", ""));
        assert_eq!(shown("a:1,b,[::1]:3,[::2]/x/y"), pair("a:1 b:2181 [::1]:3 [::2]:2181", "/x/y"));
        assert_eq!(shown("10.0.0.1:65535/"), pair("10.0.0.1:65535", ""));
    }

    #[test]
    fn an_unusable_connect_string_is_refused_with_the_allowed_form() {
        for text in [
            "", ",", "a,", "a:", "a:0", "a:65536", "a:x", "a:+1", "::1", "[::1", "[::1]x", "[a]:1", "a b", ":1", "/x",
            "a//x", "a/x/", "a/../b", "u@a", "a:1:2",
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{text}");
            assert!(error.to_string().contains("allowed is"), "{error}");
        }
    }
}
