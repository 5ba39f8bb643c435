//! The whole interface for working on fencelock: `cargo xtask <verb>`. What runs on every change calls the same verbs.

mod advisories;
mod api;
mod bench;
mod ci;
mod docs;
mod examples;
mod figures;
mod fuzz;
mod interop;
mod packages;
mod readme;
mod schedule;
mod servers;
mod shell;
mod test;
mod tidy;
mod torture;
mod versions;

use std::process::ExitCode;

/// A verb: its name, what it does in one line, and the function that does it.
struct Verb {
    name: &'static str,
    help: &'static str,
    run: fn(&[String]) -> shell::Result,
}

/// Every verb there is; `CONTRIBUTING.md` may name these and no others.
const VERBS: &[Verb] = &[
    Verb {
        name: "test",
        help: "every test except those with foreign clients; installs what is missing; test --changed [BASE]: those that a change concerns; other arguments go to cargo",
        run: test::run,
    },
    Verb { name: "interop", help: "tests with clients in other languages", run: interop::run },
    Verb {
        name: "ci",
        help: "[part]: everything that has to hold before a change lands, or one part of it",
        run: ci::run,
    },
    Verb { name: "tidy", help: "the rules of the house that text can check", run: tidy::run },
    Verb {
        name: "examples",
        help: "runs every example, on a directory of its own or the store URL that is given",
        run: examples::run,
    },
    Verb { name: "bench", help: "bench <what>: measures, in a release build", run: bench::run },
    Verb { name: "fuzz", help: "fuzz <target> [seconds]: arbitrary bytes; needs nightly", run: fuzz::run_target },
    Verb {
        name: "torture",
        help: "torture <store> --seconds N --seed S: breaks real servers under a hundred workers; torture redis --experiment WHAT: shows what no lock there can promise",
        run: torture::run,
    },
    Verb {
        name: "versions",
        help: "versions [STORE [VERSION]]: a store's tests on other versions of its server, which it fetches",
        run: versions::run,
    },
    Verb {
        name: "advisories",
        help: "whether a dependency has a known fault; for a scheduler, succeeds where the list cannot be fetched",
        run: advisories::run,
    },
    Verb {
        name: "api",
        help: "api [--bless]: whether what users can name is what docs/api/ lists; --bless writes it down anew",
        run: api::run,
    },
    Verb { name: "docs", help: "writes the generated parts of the documents anew", run: docs::run },
    Verb { name: "servers", help: "starts every server that tests need, until Ctrl-C", run: servers::run },
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, rest)) = args.split_first() else {
        print!("{}", usage());
        return ExitCode::from(64);
    };
    if matches!(name.as_str(), "help" | "--help" | "-h") {
        print!("{}", usage());
        return ExitCode::SUCCESS;
    }
    let Some(verb) = VERBS.iter().find(|verb| verb.name == name) else {
        eprint!("xtask: there is no verb {name:?}\n\n{}", usage());
        return ExitCode::from(64);
    };
    match (verb.run)(rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("xtask {name}: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> String {
    let mut usage = "cargo xtask <verb>\n\n".to_owned();
    for verb in VERBS {
        usage.push_str(&format!("  {:<10}{}\n", verb.name, verb.help));
    }
    usage
}
