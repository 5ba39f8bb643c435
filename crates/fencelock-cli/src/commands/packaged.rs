//! The examples in `packaging/` say what the command takes.

use std::path::PathBuf;

use clap::Parser as _;
use serde_yaml_ng::{Deserializer, Value};

use super::Fencelock;

/// The text of each file under `packaging/` whose name ends with one of `ends`.
fn files(directory: &str, ends: &[&str]) -> Vec<(PathBuf, String)> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(directory);
    let paths = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let is_meant = |path: &PathBuf| ends.iter().any(|end| path.to_str().unwrap().ends_with(end));
    paths.filter(is_meant).map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

/// How many of `lines`, words each, begin with the command; each of those has to be one that it takes.
fn parsed(lines: &[Vec<String>]) -> usize {
    let ours = |words: &&Vec<String>| words.first().is_some_and(|word| word.rsplit('/').next() == Some("fencelock"));
    let ours: Vec<_> = lines.iter().filter(ours).collect();
    for words in &ours {
        if let Err(error) = Fencelock::try_parse_from(*words) {
            panic!("{words:?}: {error}");
        }
    }
    ours.len()
}

/// The examples quote nothing.
fn words(line: &str) -> Vec<String> {
    assert!(!line.contains(['"', '\'', '\\']), "{line}");
    line.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn services_start_what_the_command_takes() {
    let services = files("systemd", &[".service"]);
    for (path, text) in &services {
        let started: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("ExecStart=")).map(words).collect();
        assert_eq!(parsed(&started), 1, "{path:?}");
    }
    assert_eq!(services.len(), 2);
}

#[test]
fn lines_of_cron_are_what_the_command_takes() {
    for (_, text) in files("cron", &["jobs"]) {
        let is_job = |line: &&str| !line.is_empty() && !line.starts_with(['#', 'P']);
        // Five fields of time, and the user.
        let jobs: Vec<_> = text.lines().filter(is_job).map(|line| words(line).split_off(6)).collect();
        assert_eq!((parsed(&jobs), jobs.len()), (3, 3));
    }
}

/// The command lines of all containers in `value`, with the program of our own image where only arguments are given.
fn containers(value: &Value, found: &mut Vec<Vec<String>>) {
    let texts = |value: Option<&Value>| -> Vec<String> {
        let texts = value.and_then(Value::as_sequence).into_iter().flatten();
        texts.map(|text| text.as_str().expect("arguments are texts").to_owned()).collect()
    };
    match value {
        Value::Mapping(map) => {
            let is_ours = map.get("image").and_then(Value::as_str).is_some_and(|image| image.contains("/fencelock:"));
            let mut words = texts(map.get("command"));
            words.extend(is_ours.then(|| "fencelock".to_owned()));
            words.extend(texts(map.get("args")));
            found.push(words);
            map.values().for_each(|value| containers(value, found));
        }
        Value::Sequence(values) => values.iter().for_each(|value| containers(value, found)),
        _ => {}
    }
}

#[test]
fn examples_for_kubernetes_are_yaml_and_start_what_the_command_takes() {
    let examples = files("kubernetes", &[".yaml"]);
    for (path, text) in &examples {
        let mut found = Vec::new();
        for document in Deserializer::from_str(text) {
            let document: Value = serde::Deserialize::deserialize(document).unwrap();
            assert!(document.get("kind").is_some_and(Value::is_string), "{path:?}");
            containers(&document, &mut found);
        }
        assert_eq!(parsed(&found), 1, "{path:?}");
    }
    assert_eq!(examples.len(), 3);
}

#[test]
fn the_image_starts_the_command() {
    let (_, text) = files("docker", &["Dockerfile"]).swap_remove(0);
    let of = |word: &str| -> Vec<String> {
        let line = text.lines().find_map(|line| line.strip_prefix(word)).unwrap();
        serde_json::from_str(line).unwrap()
    };
    let help = Fencelock::try_parse_from([of("ENTRYPOINT "), of("CMD ")].concat()).unwrap_err();
    assert_eq!(help.kind(), clap::error::ErrorKind::DisplayHelp);
}

#[test]
fn the_workflows_are_yaml() {
    for (path, text) in files("../.github/workflows", &[".yml"]) {
        let workflow: Value = serde_yaml_ng::from_str(&text).unwrap();
        assert!(workflow.get("jobs").is_some_and(Value::is_mapping), "{path:?}");
    }
}

#[test]
fn the_package_of_debian_has_this_version() {
    let (_, changelog) = files("debian", &["changelog"]).swap_remove(0);
    let version = concat!("fencelock (", env!("CARGO_PKG_VERSION"), "-1) ");
    assert!(changelog.starts_with(version), "{version:?}: {changelog}");
}
