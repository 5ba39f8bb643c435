//! The sources of PostgreSQL's own programs besides a URL: the environment, password files and service files. The library reads neither
//! files nor the environment for it.

use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use fencelock::capability::StoreUrl;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::output::{Failure, Outcome, code, say};
use crate::trusted;

#[derive(Debug, Default)]
struct Around {
    password: Option<String>,
    password_file: Option<PathBuf>,
    service: Option<String>,
    service_file: Option<PathBuf>,
}

impl Around {
    fn of_this_process() -> Self {
        let text = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let home = env::var_os("HOME").filter(|home: &OsString| !home.is_empty()).map(PathBuf::from);
        let file = |name: &str, at_home: &str| {
            env::var_os(name).map(PathBuf::from).or_else(|| home.as_ref().map(|home| home.join(at_home)))
        };
        Self {
            password: text("PGPASSWORD"),
            password_file: file("PGPASSFILE", ".pgpass"),
            service: text("PGSERVICE"),
            service_file: file("PGSERVICEFILE", ".pg_service.conf"),
        }
    }
}

/// A `postgres:` URL, completed with its missing parts; any other URL unchanged.
pub(crate) fn complete(url: &str) -> Outcome<String> {
    complete_from(url, &Around::of_this_process())
}

fn complete_from(url: &str, around: &Around) -> Outcome<String> {
    let Ok(mut parsed) = StoreUrl::parse(url) else { return Ok(url.to_owned()) };
    if !matches!(parsed.scheme(), "postgres" | "postgresql") {
        return Ok(url.to_owned());
    }
    let mut url = without_option(url, "service");
    let (user, has_password) = match parsed.credentials().map(|given| given.split_once(':').unwrap_or((given, ""))) {
        Some((user, password)) => (Some(user.to_owned()), !password.is_empty()),
        None => (None, false),
    };
    let mut user = user.filter(|user| !user.is_empty()).or_else(|| parsed.take("user"));
    let is_asked = parsed.take("password_file").is_some();
    let mut has_password = has_password || is_asked || parsed.take("password").is_some();
    let mut servers: Vec<String> = parsed.authority().split(',').map(str::to_owned).collect();
    let mut host = parsed.take("host");
    let mut port = parsed.take("port");
    let mut database = Some(parsed.path().trim_start_matches('/').to_owned()).filter(|name| !name.is_empty());
    if let Some(service) = parsed.take("service").or_else(|| around.service.clone()) {
        for (key, value) in section(around.service_file.as_deref(), &service)? {
            match key.as_str() {
                "user" if user.is_none() => {
                    option(&mut url, "user", &value);
                    user = Some(value);
                }
                "password" if !has_password => {
                    around.service_file.as_deref().map_or(Ok(()), trusted::refuse_shared)?;
                    option(&mut url, "password", &value);
                    has_password = true;
                }
                "host" if parsed.authority().is_empty() && host.is_none() && value.starts_with('/') => {
                    option(&mut url, "host", &value);
                    host = Some(value);
                }
                "host" if parsed.authority().is_empty() && host.is_none() => {
                    url = with_authority(&url, &value);
                    servers = value.split(',').map(str::to_owned).collect();
                }
                "port" if port.is_none() => {
                    option(&mut url, "port", &value);
                    port = Some(value);
                }
                "dbname" if database.is_none() => {
                    url = with_path(&url, &value);
                    database = Some(value);
                }
                "sslmode" if parsed.take("sslmode").is_none() => option(&mut url, "sslmode", &value),
                "sslrootcert" if parsed.take("tls_ca").is_none() => option(&mut url, "tls_ca", &value),
                "application_name" if parsed.take(&key).is_none() => option(&mut url, &key, &value),
                _ => {}
            }
        }
    }
    let (Some(user), false) = (user, has_password) else { return Ok(url) };
    if let Some(password) = &around.password {
        option(&mut url, "password", password);
        return Ok(url);
    }
    let database = database.unwrap_or_else(|| user.clone());
    let port = port.unwrap_or_else(|| "5432".to_owned());
    let hosts: Vec<(String, String)> = match host {
        Some(_) => vec![("localhost".to_owned(), port)],
        None => servers.iter().map(|server| host_and_port(server, &port)).collect(),
    };
    if let Some(password) = around.password_file.as_deref().and_then(|file| password(file, &hosts, &database, &user)) {
        option(&mut url, "password", &password);
    }
    Ok(url)
}

fn host_and_port(server: &str, port: &str) -> (String, String) {
    let (host, own) = match server.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, own)) => (host, own.strip_prefix(':')),
        None => server.split_once(':').map_or((server, None), |(host, own)| (host, Some(own))),
    };
    (host.to_owned(), own.unwrap_or(port).to_owned())
}

fn section(file: Option<&Path>, name: &str) -> Outcome<Vec<(String, String)>> {
    let missing = |why: &str| Failure::new(code::CONFIG, format!("the PostgreSQL service {name:?}: {why}"));
    let file = file.ok_or_else(|| missing("there is no home directory, and PGSERVICEFILE is not set"))?;
    let text = fs::read_to_string(file).map_err(|error| missing(&format!("{}: {error}", file.display())))?;
    let heading = format!("[{name}]");
    let mut lines = text.lines().map(str::trim).skip_while(|line| *line != heading);
    if lines.next().is_none() {
        return Err(missing(&format!("{} has no section {heading}", file.display())));
    }
    let settings = lines.take_while(|line| !line.starts_with('['));
    let pair = |line: &str| line.split_once('=').map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()));
    Ok(settings.filter(|line| !line.is_empty() && !line.starts_with('#')).filter_map(pair).collect())
}

/// The password of the first line that fits, in a file that no other user can read.
fn password(file: &Path, hosts: &[(String, String)], database: &str, user: &str) -> Option<String> {
    let about = fs::metadata(file).ok()?;
    if trusted::is_shared(&about) {
        say(format_args!("{} is not used, because others may read it: chmod 600", file.display()));
        return None;
    }
    let text = fs::read_to_string(file).ok()?;
    let fields = text.lines().filter(|line| !line.starts_with('#')).map(fields);
    fields.filter(|fields| fields.len() == 5).find_map(|fields| {
        let fits = |field: usize, value: &str| fields[field] == "*" || fields[field] == value;
        let is_there = hosts.iter().all(|(host, port)| fits(0, host) && fits(1, port));
        (is_there && fits(2, database) && fits(3, user)).then(|| fields[4].clone())
    })
}

/// The fields between colons; a backslash makes the next character a plain one.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let last = fields.len() - 1;
        match character {
            ':' if last < 4 => fields.push(String::new()),
            '\\' => fields[last].extend(characters.next()),
            other => fields[last].push(other),
        }
    }
    fields
}

pub(crate) fn option(url: &mut String, name: &str, value: &str) {
    let sign = if url.contains('?') { '&' } else { '?' };
    // Writing into a string cannot fail.
    let _ = write!(url, "{sign}{name}={}", encoded(value));
}

/// Characters of a path or of an option's value that stay as they are.
const PLAIN: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'/');

pub(crate) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, &PLAIN).to_string()
}

pub(crate) fn without_option(url: &str, name: &str) -> String {
    let Some((base, query)) = url.split_once('?') else { return url.to_owned() };
    let others: Vec<_> =
        query.split('&').filter(|option| option.split('=').next() != Some(name) && !option.is_empty()).collect();
    if others.is_empty() { base.to_owned() } else { format!("{base}?{}", others.join("&")) }
}

/// The URL with this host, where it has none.
fn with_authority(url: &str, host: &str) -> String {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    format!("{scheme}://{}{host}{}", &rest[..end], &rest[end..])
}

/// The URL with this database, where it has none.
fn with_path(url: &str, database: &str) -> String {
    let (base, query) = url.split_once('?').map_or((url, None), |(base, query)| (base, Some(query)));
    let base = base.trim_end_matches('/');
    let base = if base.ends_with(':') { format!("{base}//") } else { base.to_owned() };
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("{base}/{}{query}", encoded(database))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(directory: &tempfile::TempDir, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn a_password_comes_from_the_url_the_environment_or_the_file_in_this_order() {
        let directory = tempfile::tempdir().unwrap();
        let text = "# those of tests\n*:*:other:*:no\nh1:5432:app:me:of\\:the\\\\file:x\n*:*:*:*:any\n";
        let around = |password: Option<&str>, mode| Around {
            password: password.map(str::to_owned),
            password_file: Some(file(&directory, "pgpass", text, mode)),
            ..Around::default()
        };
        let complete = |url: &str, around: &Around| complete_from(url, around).unwrap();
        assert_eq!(complete("postgres://me:own@h1/app", &around(Some("s"), 0o600)), "postgres://me:own@h1/app");
        assert_eq!(
            complete("postgres://h1/app?user=me&password=o", &around(Some("s"), 0o600)),
            "postgres://h1/app?user=me&password=o"
        );
        assert_eq!(
            complete("postgres://me@h1/app", &around(Some("s &"), 0o600)),
            "postgres://me@h1/app?password=s%20%26"
        );
        assert_eq!(
            complete("postgres://me@h1/app", &around(None, 0o600)),
            "postgres://me@h1/app?password=of%3Athe%5Cfile%3Ax"
        );
        assert_eq!(complete("postgres://me@h2,h1/app", &around(None, 0o600)), "postgres://me@h2,h1/app?password=any");
        assert_eq!(
            complete("postgres://me@h1:7/app?ttl_ms=9", &around(None, 0o600)),
            "postgres://me@h1:7/app?ttl_ms=9&password=any"
        );
        assert_eq!(complete("postgres://me@h1/app", &around(None, 0o644)), "postgres://me@h1/app");
        assert_eq!(complete("redis://h1", &around(Some("s"), 0o600)), "redis://h1");
    }

    #[test]
    fn a_service_says_what_the_url_leaves_out() {
        let directory = tempfile::tempdir().unwrap();
        let text = "[other]\nhost=no\n\n[locks]\n# here\nhost = h1\nport=6000\nuser=me\npassword=s:\ndbname=app\n[last]\nhost=/run/x\nuser=you\n";
        let around = Around { service_file: Some(file(&directory, "services", text, 0o600)), ..Around::default() };
        let complete = |url: &str| complete_from(url, &around);
        assert_eq!(
            complete("postgres://?service=locks&ttl_ms=9").unwrap(),
            "postgres://h1/app?ttl_ms=9&port=6000&user=me&password=s%3A"
        );
        assert_eq!(
            complete("postgres://you@h2/mine?service=locks").unwrap(),
            "postgres://you@h2/mine?port=6000&password=s%3A"
        );
        file(&directory, "services", text, 0o644);
        assert_eq!(complete("postgres:///app?service=last").unwrap(), "postgres:///app?host=/run/x&user=you");
        let refused = complete("postgres://?service=locks").unwrap_err();
        assert!(format!("{refused:?}").contains("chmod 600"), "{refused:?}");
        let refused = complete("postgres://?service=none").unwrap_err();
        assert!(format!("{refused:?}").contains("no section"), "{refused:?}");
    }
}
