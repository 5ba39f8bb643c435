//! A server's host and port, from a store URL.

use std::fmt;

/// A host, by its name or address, and a port. A URL has brackets around an IPv6 address; `host` is without them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct HostPort {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl HostPort {
    /// Reads `host`, `host:port`, `[v6]` or `[v6]:port`. Another text is the error `form`.
    pub(crate) fn parse(text: &str, default_port: u16, form: &'static str) -> Result<Self, &'static str> {
        let (host, port) = match text.strip_prefix('[') {
            Some(v6) => v6.split_once(']').ok_or(form)?,
            None => text.split_at(text.find(':').unwrap_or(text.len())),
        };
        if host.is_empty() || host.contains(char::is_whitespace) {
            return Err(form);
        }
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or("a port is 1 to 65535")?,
            None if port.is_empty() => default_port,
            None => return Err(form),
        };
        Ok(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_v6 = self.host.contains(':');
        let (open, close) = if is_v6 { ("[", "]") } else { ("", "") };
        write!(f, "{open}{}{close}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_ports_and_addresses_in_brackets_are_read_and_shown() {
        for (text, host, port, shown) in [
            ("h1", "h1", 7, "h1:7"),
            ("h1:1", "h1", 1, "h1:1"),
            ("10.0.0.1:65535", "10.0.0.1", 65535, "10.0.0.1:65535"),
            ("[::1]", "::1", 7, "[::1]:7"),
            ("[fe80::2]:3", "fe80::2", 3, "[fe80::2]:3"),
        ] {
            let server = HostPort::parse(text, 7, "form").unwrap();
            assert_eq!((&*server.host, server.port, &*server.to_string()), (host, port, shown));
        }
    }

    #[test]
    fn an_address_without_a_server_is_refused() {
        for text in ["", ":1", "::1", "a b", "[::1", "[::1]x", "[]", "[]:1"] {
            assert_eq!(HostPort::parse(text, 7, "form"), Err("form"), "{text}");
        }
        for text in ["h1:", "h1:0", "h1:x", "h1:70000", "h1:1:2", "[::1]:0"] {
            assert_eq!(HostPort::parse(text, 7, "form"), Err("a port is 1 to 65535"), "{text}");
        }
    }
}
