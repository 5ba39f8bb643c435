//! The whole interface for working on fencelock: `cargo xtask <verb>`. The checks of every change call the same verbs.

mod api;
mod checks;
mod deb;
mod deep;
mod gate;
mod mutants;
mod packages;
mod programs;
mod servers;
mod shell;
mod tidy;

use std::process::ExitCode;

/// A verb: its name, its help in one line, and its function.
struct Verb {
    name: &'static str,
    help: &'static str,
    run: fn(&[String]) -> shell::Result,
}

/// Every verb there is; `CONTRIBUTING.md` may name only these.
const VERBS: &[Verb] = &[
    Verb {
        name: "test",
        help: "every test that judges no time; installs the servers that it needs; arguments go to cargo test",
        run: gate::test,
    },
    Verb { name: "lint", help: "clippy over all crates, warnings denied", run: checks::clippy },
    Verb { name: "tidy", help: "the rules of the house that text can check", run: tidy::run },
    Verb {
        name: "deep",
        help: "[row…]: what breaks servers, judges time or takes long, one row after the other; --list names the rows",
        run: deep::run,
    },
    Verb { name: "api", help: "writes down anew what users can name, in docs/api/", run: api::write },
    Verb { name: "docs", help: "writes the generated parts of the documents anew", run: programs::docs },
    Verb { name: "deb", help: "packs the command for Debian, in target/debian/", run: deb::run },
    Verb { name: "servers", help: "starts every server that tests share, until Ctrl-C", run: servers::run },
    Verb { name: "bench", help: "<what>: measures; see crates/fencelock-bench", run: programs::bench },
    Verb { name: "interop", help: "plays with clients in other languages on the same locks", run: programs::interop },
    Verb { name: "torture", help: "<store>: experiments on what locks cannot promise", run: programs::torture },
    Verb { name: "ledger", help: "[--hours N]: counts drills; --sum FILES adds them up", run: programs::ledger },
    Verb { name: "versions", help: "[store [version]]: tests on other versions of servers", run: programs::versions },
    Verb { name: "fuzz", help: "[target [seconds]]: arbitrary bytes against the readers", run: programs::fuzz },
    Verb { name: "advisories", help: "whether a dependency has a known fault", run: checks::advisories },
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, rest)) = args.split_first().filter(|(name, _)| !["help", "--help", "-h"].contains(&name.as_str()))
    else {
        print!("{}", usage());
        return ExitCode::SUCCESS;
    };
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
        usage.push_str(&format!("  {:<12}{}\n", verb.name, verb.help));
    }
    usage
}
