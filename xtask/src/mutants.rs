//! Mutants of the whole: reviewed changes of the library's safety code. Every test that is named for one must notice it.
//!
//! The mutants of `fencelock-conformance` are stores that break a law, and show that the laws notice it. A mutant here is the library itself.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::shell::{self, Result};
use crate::{gate, packages};

/// Blocks of lines whose beginnings name their content: `- ` the text before the change, `+ ` the text after it.
pub(crate) const TABLE: &str = "xtask/reviewed/mutants.txt";

/// The copy of the tree, with a build of its own.
const COPY: &str = "target/mutants";

/// The longest time for the build of a mutant and for its tests.
const LIMIT: Duration = Duration::from_secs(600);

pub(crate) struct Mutant {
    about: String,
    pub(crate) path: String,
    /// The arguments of `cargo test`, each of which must fail.
    tests: Vec<String>,
    before: String,
    after: String,
}

pub(crate) fn mutants(table: &str) -> impl Iterator<Item = Mutant> {
    table.trim_end().split("\n\n").filter(|block| !block.starts_with('#')).map(|block| {
        let all = |word: &str| block.lines().filter_map(|line| line.strip_prefix(word)).collect::<Vec<_>>();
        let of = |word: &str| all(word).join("\n");
        let tests = all("test ").into_iter().map(str::to_owned).collect();
        Mutant { about: of("mutant "), path: of("in "), tests, before: of("- "), after: of("+ ") }
    })
}

impl Mutant {
    /// The changed text of its file.
    pub(crate) fn change(&self, text: &str) -> Result<String> {
        match text.matches(&self.before).count() {
            1 if self.before != self.after => Ok(text.replace(&self.before, &self.after)),
            count => Err(format!("{}: {count} places of {} have the text before, and not one", self.about, self.path)),
        }
    }

    /// The tests that notice the change.
    fn noticed(&self) -> Result<String> {
        let file = shell::root().join(COPY).join(&self.path);
        let text = fs::read_to_string(&file).map_err(failed)?;
        fs::write(&file, self.change(&text)?).map_err(failed)?;
        let noticed = self.tests.iter().map(|tests| failing(tests)).collect::<Result<Vec<_>>>();
        fs::write(&file, text).map_err(failed)?;
        noticed.map(|red| red.join(", "))
    }
}

fn test(tests: &str, option: &str) -> Command {
    let mut test = gate::cargo_test();
    test.args(["--quiet", option]).args(tests.split(' ')).current_dir(shell::root().join(COPY));
    // Clippy would refuse code that a change leaves unused.
    test.env_remove("RUSTC_WORKSPACE_WRAPPER").env_remove("CARGO_TARGET_DIR");
    test.envs(gate::seeds()).env("CARGO_INCREMENTAL", "1");
    test
}

/// Which of `tests` fail.
fn failing(tests: &str) -> Result<String> {
    shell::run(&mut test(tests, "--no-run"))?;
    let tested = shell::captured(&mut test(tests, "--no-fail-fast")).0;
    let red = tested.lines().filter_map(|line| line.strip_prefix("---- ")?.strip_suffix(" stdout ----"));
    red.map(str::to_owned).reduce(|all, one| all + ", " + &one).ok_or_else(|| format!("NO TEST FAILED of {tests}"))
}

fn failed(error: std::io::Error) -> String {
    format!("{COPY}: {error}")
}

/// The deep row `mutants`. With `FENCELOCK_MUTANT`, only mutants with this text in their names or their tests.
pub(crate) fn check() -> Result {
    packages::ensure(packages::GATE, packages::GATE_SERVERS)?;
    let copy = shell::root().join(COPY);
    let listed = ["ls-files", "--cached", "--others", "--exclude-standard"];
    for path in shell::output(shell::command("git").args(listed))?.lines() {
        let to = copy.join(path);
        // Git lists a file that was deleted and not committed. An equal file is not built again.
        if let Ok(text) = fs::read(shell::root().join(path))
            && fs::read(&to).ok().as_ref() != Some(&text)
        {
            to.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&to, text)).map_err(failed)?;
        }
    }
    let chosen = std::env::var("FENCELOCK_MUTANT").unwrap_or_default();
    let is_chosen =
        |mutant: &Mutant| mutant.about.contains(&chosen) || mutant.tests.iter().any(|tests| tests.contains(&chosen));
    let mutants: Vec<_> = mutants(&shell::read(TABLE)?).filter(is_chosen).collect();
    // A test that fails without the change notices nothing.
    let sound: BTreeSet<_> = mutants.iter().flat_map(|mutant| &mutant.tests).collect();
    sound.into_iter().try_for_each(|tests| shell::run(&mut test(tests, "--no-fail-fast")))?;
    let mut unnoticed = Vec::new();
    for mutant in &mutants {
        shell::limit(LIMIT);
        let (start, noticed) = (Instant::now(), mutant.noticed());
        unnoticed.extend(noticed.is_err().then_some(&*mutant.about));
        let (Ok(said) | Err(said)) = noticed;
        println!("=== {}, {:.0} s: {said}", mutant.about, start.elapsed().as_secs_f64());
    }
    match unnoticed.join("; ") {
        none if none.is_empty() && chosen.is_empty() => fs::remove_dir_all(copy).map_err(failed),
        none if none.is_empty() => Ok(()),
        unnoticed => Err(format!("not noticed: {unnoticed}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutant_changes_one_place_and_one_that_finds_none_or_two_is_an_error() {
        let table = "# why\n\nmutant a guard\nin a/b.rs\ntest --test laws -- c::\ntest --lib\n- x\n-     y\n+ z\n\nmutant none\n- x\n+ x\n";
        let mutants: Vec<_> = mutants(table).collect();
        assert_eq!((mutants[0].about.as_str(), mutants[0].path.as_str(), mutants.len()), ("a guard", "a/b.rs", 2));
        assert_eq!(mutants[0].tests, ["--test laws -- c::", "--lib"]);
        assert_eq!(mutants[0].change("1\nx\n    y\n2\n").unwrap(), "1\nz\n2\n");
        for text in ["x\ny\n", "x\n    y\nx\n    y\n"] {
            mutants[0].change(text).unwrap_err();
        }
        mutants[1].change("x").unwrap_err();
    }
}
