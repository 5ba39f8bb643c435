//! `fencelock completions` and `fencelock man`.

use crate::common::{PROGRAM, Place, binary, code, ended, output, stderr, stdout};

/// The verbs that a user may give.
const VERBS: [&str; 20] = [
    "run",
    "jobs",
    "acquire",
    "release",
    "wait",
    "note",
    "elect",
    "ls",
    "show",
    "break",
    "doctor",
    "serve",
    "top",
    "stores",
    "migrate",
    "bench",
    "verify",
    "completions",
    "man",
    "help",
];

#[test]
fn bash_completes_verbs_and_options_and_nothing_that_is_hidden() {
    let script = output(binary().args(["completions", "bash"]));
    assert_eq!((code(&script), stderr(&script)), (0, String::new()));
    let complete = |words: &str, last: usize| {
        let asked = "_fencelock fencelock \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"";
        let list = format!("COMP_WORDS=({words}); COMP_CWORD={last}; {asked}; echo \"${{COMPREPLY[@]}}\"");
        let asked = output(std::process::Command::new("bash").args(["-c", &(stdout(&script) + &list)]));
        assert_eq!(code(&asked), 0, "{asked:?}");
        stdout(&asked).split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let verbs: Vec<_> = complete("fencelock ''", 1).into_iter().filter(|word| !word.starts_with('-')).collect();
    let (mut is, mut expected) = (verbs.clone(), VERBS.map(str::to_owned).to_vec());
    is.sort();
    expected.sort();
    assert_eq!(is, expected);
    assert_eq!(complete("fencelock run --max", 2), ["--max-hold"]);
}

#[test]
fn every_shell_has_a_script() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = stdout(&output(binary().args(["completions", shell])));
        assert!(script.contains("max-hold") && !script.contains("bench-workers"), "{shell}");
    }
    let (code, said) = ended(binary().args(["completions", "tcsh"]));
    assert_eq!((code, said.contains("bash")), (64, true), "{said}");
}

#[test]
fn the_manual_has_a_page_for_each_verb() {
    let place = Place::new();
    let page = stdout(&output(binary().args(["man", "run"])));
    assert!(page.contains(".SH NAME") && page.contains("max\\-hold") && !page.contains(PROGRAM), "{page}");
    let directory = place.path("man");
    let written = |place: &Place| ended(place.fencelock(&["man", "--directory"]).arg(&directory));
    let (code, said) = written(&place);
    assert_eq!((code, said.contains("cannot write to")), (74, true), "{said}");
    std::fs::create_dir(&directory).unwrap();
    assert_eq!(written(&place), (0, String::new()));
    let mut pages: Vec<_> =
        std::fs::read_dir(&directory).unwrap().map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    pages.sort();
    let mut expected: Vec<_> =
        VERBS.iter().filter(|verb| **verb != "help").map(|verb| format!("fencelock-{verb}.1")).collect();
    expected.push("fencelock.1".to_owned());
    expected.sort();
    assert_eq!(pages, expected);
    let (code, said) = ended(binary().args(["man", "nothing"]));
    assert_eq!((code, said.contains("no verb \"nothing\"")), (64, true), "{said}");
}
