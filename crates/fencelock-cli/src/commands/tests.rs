//! The examples in `packaging/` and in the documents say what the command takes, and which store they mean.

use std::path::PathBuf;

use clap::Parser as _;
use serde_yaml_ng::{Deserializer, Value};

use super::{Fencelock, Verb};

/// The text of each file under `packaging/` whose name ends with one of `ends`.
fn files(directory: &str, ends: &[&str]) -> Vec<(PathBuf, String)> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(directory);
    let paths = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let is_meant = |path: &PathBuf| ends.iter().any(|end| path.to_str().unwrap().ends_with(end));
    paths.filter(is_meant).map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

/// How many of `lines`, words each, begin with the command; each of them has to be one that it takes, and to name its store, unless the
/// example `around` it does.
fn parsed(lines: &[Vec<String>], around: &str) -> usize {
    let ours = |words: &&Vec<String>| words.first().is_some_and(|word| word.rsplit('/').next() == Some("fencelock"));
    let ours: Vec<_> = lines.iter().filter(ours).collect();
    for words in &ours {
        match Fencelock::try_parse_from(*words) {
            Err(error) => panic!("{words:?}: {error}"),
            Ok(Fencelock { verb: Verb::Stores(_) | Verb::Completions(_) | Verb::Man(_), .. }) => {}
            Ok(_) => {
                let own = words.split(|word| word == "--").next().unwrap();
                let is_named = own.iter().any(|word| word.contains("://") || word == "--config");
                assert!(is_named || around.contains("FENCELOCK_STORE"), "no store is named: {words:?}");
            }
        }
    }
    ours.len()
}

/// The words of the command in a line of a shell or of cron, if there is one: without what surrounds it.
fn command_in(line: &str) -> Option<Vec<String>> {
    let is_ours = |(at, _): &(usize, &str)| {
        let before = line[..*at].trim_end_matches('`');
        let is_first = before.is_empty() || before.ends_with(['(', ' ']) && !before.starts_with("cargo");
        is_first && line[*at..].starts_with("fencelock ") && !before.contains(['#', '"', '\''])
    };
    let (at, _) = line.match_indices("fencelock ").find(is_ours)?;
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line[at..].replace("$$", "7").chars() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            ('|' | ';' | '&' | '>' | ')' | '#' | '`', None) => break,
            (' ', None) => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Some(words)
}

#[test]
fn examples_in_documents_are_what_the_command_takes_and_name_their_store() {
    let mut found = 0;
    let readmes = ["..", "../crates/fencelock", "../crates/fencelock-cli", "../examples", "../interop", "../ops", "."];
    let documents =
        ["../docs", "../docs/guide", "../docs/adr"].into_iter().flat_map(|directory| files(directory, &[".md"]));
    for (_, text) in documents.chain(readmes.into_iter().flat_map(|directory| files(directory, &["README.md"]))) {
        for (index, part) in text.split("```").enumerate() {
            if index % 2 == 1 {
                let commands: Vec<_> = part.lines().filter_map(command_in).collect();
                found += parsed(&commands, part);
                continue;
            }
            // Commands that must be the same on each host are checked in running text, too.
            for span in part.split('`').skip(1).step_by(2).filter_map(command_in) {
                let is_of_all_hosts = |word: &String| ["elect", "jobs", "--once-per", "--slot"].contains(&&**word);
                if span.len() > 2 && span.iter().any(is_of_all_hosts) {
                    found += parsed(&[span], "");
                }
            }
        }
    }
    assert!(found > 30, "{found}");
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
        assert_eq!(parsed(&started, text), 1, "{path:?}");
    }
    assert_eq!(services.len(), 2);
}

#[test]
fn lines_of_cron_are_what_the_command_takes() {
    for (_, text) in files("cron", &["jobs"]) {
        let is_job = |line: &&str| line.starts_with(|c: char| c == '*' || c.is_ascii_digit());
        // Five fields of time, and the user.
        let jobs: Vec<_> = text.lines().filter(is_job).map(|line| words(line).split_off(6)).collect();
        assert_eq!((parsed(&jobs, &text), jobs.len()), (3, 3));
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
        assert_eq!(parsed(&found, text), 1, "{path:?}");
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
