//! The message of `fencelock run` when a lock ends before its command. The message is one line with the time, the store
//! and the cause.

use std::process::{Output, Stdio};
use std::time::{Duration, SystemTime};

use super::{Place, Running, code, stderr, written};

/// A command that runs for ever, under the lock `job`.
pub(crate) fn holder(place: &Place, options: &[&str]) -> Running {
    let script = "echo $$ > pid; while :; do sleep 0.02; done";
    let running = Running::start(place.run(&[options, &["--quiet", "job"]].concat(), script).stderr(Stdio::piped()));
    written(&place.path("pid"));
    running
}

/// The output, with `TIME` and `STORE` in place of the right values.
pub(crate) fn said(place: &Place, output: &Output) -> String {
    assert_eq!(code(output), 76, "{output:?}");
    let shown = place.url();
    let text = stderr(output).replace(shown.split('?').next().unwrap(), "STORE");
    let words = text.split_inclusive([' ', '\n']).map(|word| {
        let bare = word.trim_end_matches([' ', '\n', ',', ':']);
        let Ok(time) = bare.parse::<jiff::Timestamp>().map(SystemTime::from) else { return word.to_owned() };
        let age = SystemTime::now().duration_since(time).unwrap();
        assert!(age < Duration::from_secs(600), "{text}");
        word.replace(bare, "TIME")
    });
    words.collect()
}

/// A command that runs for ever, under the lock `job`, without `--quiet`, which hides the library's warnings.
pub(crate) fn warned(place: &Place) -> Running {
    let script = "echo $$ > pid; while :; do sleep 0.02; done";
    let holder = Running::start(place.run(&["job"], script).stderr(Stdio::piped()));
    written(&place.path("pid"));
    holder
}
