//! HTTP by hand: requests with any headers, and a `fencelock serve` that receives them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{Place, Running, until};

/// The reply of a server.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let headers = self.head.lines().filter_map(|line| line.split_once(':'));
        headers.filter(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Sends one request on a connection of its own, with `headers` unchanged, and a `Host` if they have none.
pub(crate) fn ask(to: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(180))).unwrap();
    let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    if !headers.iter().any(|(name, _)| *name == "Host") {
        request.push_str(&format!("Host: {to}\r\n"));
    }
    headers.iter().for_each(|(name, value)| request.push_str(&format!("{name}: {value}\r\n")));
    stream.write_all(format!("{request}\r\n{body}").as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).unwrap(), 0, "{head}");
    }
    let mut answer = Answer { status: head.split(' ').nth(1).unwrap().parse().unwrap(), head, body: String::new() };
    let length = answer.header("content-length").map_or(u64::MAX, |length| length.parse().unwrap());
    reader.take(length).read_to_string(&mut answer.body).unwrap();
    answer
}

/// `fencelock serve` on a free port, looking at the store without much rest.
pub(crate) struct Served {
    pub(crate) running: Running,
    pub(crate) address: SocketAddr,
    /// A label that each figure has, besides the labels that a test names.
    store: String,
}

impl Served {
    pub(crate) fn start(place: &Place, options: &[&str]) -> Self {
        let mut command = place.fencelock(&["serve", "--every", "20ms"]);
        if !options.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        Self::of(command.args(options), place.url().split('?').next().unwrap())
    }

    /// Starts `command`. Its figures have the label of `store` until a test names another one.
    pub(crate) fn of(command: &mut Command, store: &str) -> Self {
        let mut running = Running::start(command.stdout(Stdio::piped()));
        let mut line = String::new();
        BufReader::new(running.0.as_mut().unwrap().stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (_, url) = line.trim_end().split_once(" on http://").unwrap_or_else(|| panic!("{line:?}"));
        let mut address: SocketAddr = url.trim_end_matches('/').parse().unwrap();
        if address.ip().is_unspecified() {
            address.set_ip([127, 0, 0, 1].into());
        }
        let store = format!("store=\"{store}\"");
        Self { running, address, store }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        ask(self.address, "GET", path, &[], "")
    }

    pub(crate) fn post(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let headers = [&[("Content-Type", "application/json")], headers].concat();
        ask(self.address, "POST", path, &headers, body)
    }

    /// Waits until the figure called `name`, with its labels, is `value`.
    pub(crate) fn counts(&self, name: &str, value: &str) {
        let line = format!("{name} {value}");
        let without_store =
            |said: &str| said.replace(&format!("{},", self.store), "").replace(&format!("{{{}}}", self.store), "");
        until(&line, || self.get("/metrics").body.lines().any(|said| without_store(said) == line).then_some(()));
    }
}

/// A token, and the file that contains it.
pub(crate) fn token(place: &Place) -> (&'static str, String) {
    const TOKEN: &str = "0123456789abcdef0123456789abcdef";
    let file = place.path("token");
    std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    (TOKEN, file.display().to_string())
}
