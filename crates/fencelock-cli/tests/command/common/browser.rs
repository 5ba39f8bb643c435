//! A real Chromium without a screen, driven by WebDriver.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use fencelock_testbed::CHROMIUM;
use nix::sys::signal::{Signal, killpg};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::http::ask;
use super::{Running, until};

/// A window with a fresh profile.
pub(crate) struct Browser {
    driver: Running,
    address: SocketAddr,
    session: String,
    _home: TempDir,
}

impl Browser {
    pub(crate) fn start() -> Self {
        CHROMIUM.require();
        let home = tempfile::tempdir().unwrap();
        let mut command = Command::new("/usr/bin/chromedriver");
        command.arg("--port=0").env("HOME", home.path()).process_group(0);
        let mut driver = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::null()));
        let lines = BufReader::new(driver.0.as_mut().unwrap().stdout.take().unwrap()).lines();
        let port = |line: String| line.split_once("successfully on port ")?.1.trim_end_matches('.').parse().ok();
        let port: u16 = lines.map_while(Result::ok).find_map(port).unwrap();
        let mut this = Self { driver, address: ([127, 0, 0, 1], port).into(), session: String::new(), _home: home };
        let data = format!("--user-data-dir={}", this._home.path().join("data").display());
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            &data,
        ];
        let options = json!({ "binary": "/usr/bin/chromium", "args": arguments });
        let wanted = json!({ "capabilities": { "alwaysMatch": { "goog:chromeOptions": options } } });
        let session = this.post("/session", &wanted);
        this.session = format!("/session/{}", session["sessionId"].as_str().unwrap());
        this
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let path = format!("{}{path}", self.session);
        let answer = ask(self.address, "POST", &path, &[("Content-Type", "application/json")], &body.to_string());
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.json()["value"].take()
    }

    pub(crate) fn open(&self, address: SocketAddr) {
        self.open_at(&format!("http://{address}/"));
    }

    pub(crate) fn open_at(&self, url: &str) {
        self.post("/url", &json!({ "url": url }));
    }

    /// The value of `expression` in the page.
    pub(crate) fn is(&self, expression: &str) -> Value {
        self.post("/execute/sync", &json!({ "script": format!("return {expression}"), "args": [] }))
    }

    /// Waits until the text of the element `id` contains all of `parts`.
    pub(crate) fn shows(&self, id: &str, parts: &[&str]) {
        let mut last = String::new();
        let said = || {
            last = self.text(id);
            parts.iter().all(|part| last.contains(part)).then_some(())
        };
        until(&format!("{parts:?} in #{id}"), said);
    }

    pub(crate) fn text(&self, id: &str) -> String {
        self.is(&format!("document.getElementById('{id}').innerText")).as_str().unwrap().to_owned()
    }

    /// Presses and releases keys, one at a time.
    pub(crate) fn types(&self, keys: &str) {
        let strokes =
            keys.chars().flat_map(|key| ["keyDown", "keyUp"].map(|what| json!({ "type": what, "value": key })));
        let strokes: Vec<_> = strokes.collect();
        self.post("/actions", &json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": strokes }] }));
    }

    /// Goes through the page by the Tab key until the element in focus says `text`.
    pub(crate) fn goes_to(&self, text: &str) {
        until(&format!("the focus is on {text:?}"), || {
            let focus = self.is("document.activeElement.innerText");
            if focus.as_str() == Some(text) {
                return Some(());
            }
            self.types("\u{e004}");
            None
        });
    }

    /// A picture of the window, as PNG.
    pub(crate) fn picture(&self) -> Vec<u8> {
        let answer = ask(self.address, "GET", &format!("{}/screenshot", self.session), &[], "");
        decoded(answer.json()["value"].as_str().unwrap())
    }

    /// Sends a command of Chromium's DevTools protocol, which WebDriver lacks.
    pub(crate) fn tool(&self, command: &str, parameters: &Value) {
        self.post("/goog/cdp/execute", &json!({ "cmd": command, "params": parameters }));
    }
}

pub(crate) const ENTER: &str = "\u{e007}";
pub(crate) const ESCAPE: &str = "\u{e00c}";
pub(crate) const DOWN: &str = "\u{e015}";

/// The bytes of a text in base64.
fn decoded(text: &str) -> Vec<u8> {
    const DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits: Vec<_> = text.chars().filter_map(|digit| DIGITS.find(digit)).collect();
    let bytes = |four: &[usize]| {
        let bits = four.iter().fold(0, |bits, digit| (bits << 6) | digit) << (6 * (4 - four.len()));
        [bits >> 16, bits >> 8, bits].map(|byte| u8::try_from(byte & 0xff).unwrap())[..four.len() - 1].to_vec()
    };
    digits.chunks(4).flat_map(bytes).collect()
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Chromium is in the group of its driver.
        let _ = killpg(self.driver.pid(), Signal::SIGKILL);
    }
}
