//! Admission of requests: only requests for this server by name, from its own page, with its token.
//!
//! A page of a stranger can have its own name resolved to 127.0.0.1 and then read what this server answers. The `Host` that
//! browsers send gives that away: the name is the stranger's.

use std::collections::HashSet;
use std::hint::black_box;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, StatusCode};

pub(super) const HEADERS: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cache-control", "no-store"),
];

/// Pages that say nothing about locks, and need no token.
const OPEN: [&str; 4] = ["/", "/page.js", "/page.css", "/healthz"];

#[derive(Clone)]
pub(super) struct Admission {
    hosts: Arc<HashSet<String>>,
    token: Option<Arc<str>>,
}

pub(super) type Refusal = (StatusCode, &'static str);

impl Admission {
    /// Takes requests for `hosts`, with `token` if there is one.
    pub(super) fn new(hosts: &[String], token: Option<String>) -> Self {
        let hosts = hosts.iter().map(|host| without_port(host).to_ascii_lowercase()).collect();
        Self { hosts: Arc::new(hosts), token: token.map(Into::into) }
    }

    pub(super) fn check(&self, request: &Request) -> Result<(), Refusal> {
        const HOST_REFUSED: Refusal = (
            StatusCode::MISDIRECTED_REQUEST,
            "this server goes by its IP address, localhost, and the names given by --host",
        );
        // Health checks of load balancers may send no `Host`, and the reply has no secret.
        if request.uri().path() == "/healthz" {
            return Ok(());
        }
        let host = only(request.headers(), &HOST).ok_or(HOST_REFUSED)?;
        let is_ours = |host: &str| self.knows(host);
        if !is_ours(host) || request.uri().authority().is_some_and(|authority| !is_ours(authority.as_str())) {
            return Err(HOST_REFUSED);
        }
        let is_own = |origin: &str| origin.split_once("://").is_some_and(|(_, of)| of.eq_ignore_ascii_case(host));
        if request.headers().contains_key(ORIGIN) && !only(request.headers(), &ORIGIN).is_some_and(is_own) {
            return Err((StatusCode::FORBIDDEN, "the page of another site asks"));
        }
        if self.token.is_some() && !OPEN.contains(&request.uri().path()) && !self.has_token(request.headers()) {
            return Err((StatusCode::UNAUTHORIZED, "the token is missing or wrong: Authorization: Bearer TOKEN"));
        }
        Ok(())
    }

    /// Whether `host`, with its port, may be this server: an address needs no resolver that a stranger could command.
    fn knows(&self, host: &str) -> bool {
        let name = without_port(host);
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        let name = name.to_ascii_lowercase();
        address.parse::<IpAddr>().is_ok() || name == "localhost" || self.hosts.contains(&name)
    }

    fn has_token(&self, headers: &HeaderMap) -> bool {
        let given = only(headers, &AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
        let (Some(given), Some(token)) = (given, &self.token) else { return false };
        // The comparison takes the same time for every wrong token, so that its time reveals nothing.
        let differs = given.bytes().zip(token.bytes()).fold(0, |differs, (a, b)| black_box(differs | (a ^ b)));
        given.len() == token.len() && differs == 0
    }
}

/// The host before the port: the port says nothing about the server meant.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// The value of a header, if it occurs exactly once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none()).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(headers: &[(&str, &str)]) -> Request {
        let mut request = Request::builder().uri("/api/locks");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(axum::body::Body::empty()).unwrap()
    }

    #[test]
    fn a_name_that_a_stranger_could_resolve_is_refused() {
        let admission = Admission::new(&["Locks.example".to_owned()], None);
        for host in ["127.0.0.1:80", "127.0.0.1", "[::1]:7433", "localhost:1", "LOCALHOST", "locks.example:443"] {
            assert_eq!(admission.check(&asked(&[("host", host)])), Ok(()), "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example:80", "localhost.evil.example", "", "[::1", "a@localhost"] {
            assert_eq!(admission.check(&asked(&[("host", host)])).unwrap_err().0, 421, "{host}");
        }
        assert_eq!(admission.check(&asked(&[])).unwrap_err().0, 421);
        assert_eq!(admission.check(&asked(&[("host", "localhost"), ("host", "evil")])).unwrap_err().0, 421);
    }

    #[test]
    fn a_name_is_known_with_any_port_also_where_it_was_given_with_one() {
        let admission = Admission::new(&["locks.example:8443".to_owned()], None);
        for host in ["locks.example:8443", "locks.example", "locks.example:443"] {
            assert_eq!(admission.check(&asked(&[("host", host)])), Ok(()), "{host}");
        }
    }

    #[test]
    fn a_page_of_another_site_is_refused() {
        let admission = Admission::new(&[], None);
        let of = |origin: &str| admission.check(&asked(&[("host", "localhost:7433"), ("origin", origin)])).is_ok();
        assert!(of("http://localhost:7433") && of("https://localhost:7433"));
        for origin in ["null", "http://localhost", "http://localhost:1", "http://evil.example", "localhost:7433"] {
            assert!(!of(origin), "{origin}");
        }
    }

    #[test]
    fn only_the_whole_token_is_the_token() {
        let admission = Admission::new(&[], Some("0123456789abcdef".to_owned()));
        let with = |given: &str| admission.check(&asked(&[("host", "localhost"), ("authorization", given)]));
        assert_eq!(with("Bearer 0123456789abcdef"), Ok(()));
        for given in
            ["", "Bearer ", "Bearer 0123456789abcde", "Bearer 0123456789abcdefg", "Bearer 0123456789abcdeF", "Basic x"]
        {
            assert_eq!(with(given).unwrap_err().0, 401, "{given}");
        }
    }
}
