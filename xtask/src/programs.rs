//! Verbs that hand over to programs and tests of other crates.

use std::process::Command;

use crate::shell::{self, Result, cargo};
use crate::{gate, packages};

/// The program in a release build, with these arguments.
fn release(package: &str, program: &str, args: &[String]) -> Command {
    let mut run = cargo(&["run", "--release", "--quiet", "--package", package, "--bin", program, "--"]);
    run.args(args);
    run
}

/// `cargo xtask bench <what>`.
pub(crate) fn bench(args: &[String]) -> Result {
    let is = |word: &str| args.iter().any(|arg| arg == word);
    let needs: &[_] = match () {
        () if is("file") || is("defaults") => packages::BENCH,
        () if is("--peers") => packages::INTEROP,
        () => &[],
    };
    let has_servers = ["zookeeper", "redis", "postgres", "mysql", "stores", "defaults"].into_iter().any(is);
    packages::ensure(needs, if has_servers { packages::SERVERS } else { &[] })?;
    shell::run(&mut release("fencelock-bench", "fencelock-bench", args))
}

/// `cargo xtask interop`: clients in other languages on the same locks.
pub(crate) fn interop(args: &[String]) -> Result {
    packages::ensure(packages::INTEROP, packages::SERVERS)?;
    shell::run(cargo(&["run", "--package", "fencelock-interop", "--"]).args(args))
}

/// `cargo xtask torture <store>`.
pub(crate) fn torture(args: &[String]) -> Result {
    packages::ensure(packages::GATE, packages::SERVERS)?;
    // All of its binaries: the first runs the others itself.
    shell::run(&mut cargo(&["build", "--release", "--package", "fencelock-torture"]))?;
    shell::run(&mut release("fencelock-torture", "fencelock-torture", args))
}

/// `cargo xtask ledger`: every drill in turn, a row for each. The servers decide how long a drill takes, so that this is no release build.
pub(crate) fn ledger(args: &[String]) -> Result {
    packages::ensure(packages::GATE, packages::SERVERS)?;
    shell::run(&mut cargo(&["build", "--package", "fencelock-torture"]))?;
    shell::run(shell::command(shell::root().join("target/debug/fencelock-ledger")).args(args))
}

/// `cargo xtask versions [store [version]]`.
pub(crate) fn versions(args: &[String]) -> Result {
    packages::ensure(packages::GATE, packages::SERVERS)?;
    shell::run(
        cargo(&["run", "--quiet", "--package", "fencelock-testbed", "--bin", "fencelock-versions", "--"]).args(args),
    )
}

/// `cargo xtask docs`: the tests that compare parts of the documents with the code write them instead. Rows of the ledger, where there are any,
/// are added up in `docs/proof.md`.
pub(crate) fn docs(args: &[String]) -> Result {
    shell::no_arguments(args)?;
    let write = ("FENCELOCK_WRITE_DOCUMENTS", "1");
    gate::run(gate::cargo_test().args(["--test", "command", "--", "documents::"]).envs([write]))?;
    shell::run(cargo(&["test", "--package", "fencelock-bench", "--test", "figures"]).envs([write]))?;
    let files = std::fs::read_dir(shell::root().join("target/ledger")).into_iter().flatten().flatten();
    let paths = files.map(|file| file.path().display().to_string()).filter(|path| path.ends_with(".jsonl"));
    match paths.collect::<Vec<_>>() {
        none if none.is_empty() => Ok(()),
        logs => ledger(&[&["--write".to_owned(), "--sum".to_owned()], logs.as_slice()].concat()),
    }
}

/// `cargo xtask fuzz <target> [seconds]`: arbitrary bytes against the ZooKeeper client; no part of the gate, as it needs a nightly compiler.
pub(crate) fn fuzz(args: &[String]) -> Result {
    const FUZZ: &str = "crates/fencelock-zookeeper/fuzz";
    let usage = format!("takes a target (a file in {FUZZ}/fuzz_targets) and perhaps seconds, and was given {args:?}");
    let [target, seconds @ ..] = args else { return Err(usage) };
    let seconds = seconds.first().map_or(Ok(60), |seconds| seconds.parse::<u32>());
    let Ok(seconds @ 1..) = seconds else { return Err(usage) };
    shell::read(&format!("{FUZZ}/fuzz_targets/{target}.rs")).map_err(|_| usage)?;
    // The first keeps the findings, and is ours alone; the fuzzer begins with the seeds of the repository.
    let [corpus, seeds] = ["corpus", "seeds"].map(|kept| format!("{FUZZ}/{kept}/{target}"));
    std::fs::create_dir_all(shell::root().join(&corpus)).map_err(|error| format!("{corpus}: {error}"))?;
    // The compiler that runs this is not the one that is needed.
    let mut fuzz = shell::command("cargo");
    fuzz.env_remove("RUSTUP_TOOLCHAIN").args(["+nightly", "fuzz", "run", "--fuzz-dir", FUZZ, target, &corpus, &seeds]);
    shell::run(fuzz.args(["--", &format!("-max_total_time={seconds}"), "-max_len=8192"]))
}
