//! `cargo xtask tidy`: the rules of the house that text can check.
//!
//! A rule is a function from the tree to violations; each one has a test that plants a violation and sees it found.

mod budgets;
mod documents;
mod english;
mod finished;
mod library;
mod links;
mod manifests;
mod names;
mod sleeps;
mod source;
mod stores;
mod tree;
mod types;

use std::fmt;

use crate::mutants;
use crate::shell::{self, Result};
use tree::Tree;

/// A place that breaks a rule.
#[derive(Debug)]
struct Violation {
    path: String,
    /// The line, from 1; 0 for the file as a whole.
    line: usize,
    fault: String,
    fix: &'static str,
}

impl Violation {
    fn at(path: &str, line: usize, fault: impl Into<String>, fix: &'static str) -> Self {
        Self { path: path.to_owned(), line, fault: fault.into(), fix }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}\n    {}", self.fault, self.fix)
    }
}

struct Rule {
    name: &'static str,
    check: fn(&Tree) -> Vec<Violation>,
}

const RULES: &[Rule] = &[
    Rule { name: "words have their places", check: library::words },
    Rule { name: "cfg(feature) in four files", check: library::features_in_few_files },
    Rule { name: "no store client's type is public", check: library::no_client_types },
    Rule { name: "only `next` waits in a store", check: sleeps::stores_do_not_sleep },
    Rule { name: "tests wait on states", check: sleeps::tests_do_not_sleep },
    Rule { name: "a store has all its parts", check: stores::complete },
    Rule { name: "manifests", check: manifests::complete },
    Rule { name: "nothing is left for later", check: finished::nothing_left },
    Rule { name: "files stay small", check: finished::small_files },
    Rule { name: "names in documents exist", check: names::exist },
    Rule { name: "links in documents resolve", check: links::resolve },
    Rule { name: "documents are there", check: documents::there },
    Rule { name: "rooms keep to their budgets", check: budgets::held },
    Rule { name: "mutants find their text", check: mutants_apply },
    Rule { name: "a type name means one thing", check: types::mean_one_thing },
    Rule { name: "plain sentences", check: english::plain },
];

fn mutants_apply(tree: &Tree) -> Vec<Violation> {
    let table = tree.text(mutants::TABLE).unwrap_or_default();
    let faults =
        mutants::mutants(table).filter_map(|mutant| mutant.change(tree.text(&mutant.path).unwrap_or_default()).err());
    let fix = "write the mutant for the new code: the deep row `mutants` must notice it";
    faults.map(|fault| Violation::at(mutants::TABLE, 0, fault, fix)).collect()
}

pub(crate) fn run(args: &[String]) -> Result {
    shell::no_arguments(args)?;
    let tree = Tree::read(shell::root())?;
    let mut count = 0;
    for rule in RULES {
        for violation in (rule.check)(&tree) {
            println!("{}: {violation}", rule.name);
            count += 1;
        }
    }
    match count {
        0 => {
            println!("tidy: {} rules hold over {} files", RULES.len(), tree.len());
            Ok(())
        }
        _ => Err(format!("{count} violations")),
    }
}
