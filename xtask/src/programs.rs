//! Verbs that run programs and tests of other crates.

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
    let has_servers = ["zookeeper", "redis", "postgres", "mysql", "etcd", "stores", "defaults"].into_iter().any(is);
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
    of_torture("fencelock-torture", args)
}

/// `cargo xtask ledger`: every drill in turn, a row for each.
pub(crate) fn ledger(args: &[String]) -> Result {
    of_torture("fencelock-ledger", args)
}

fn of_torture(program: &str, args: &[String]) -> Result {
    packages::ensure(packages::GATE, packages::SERVERS)?;
    // All of the package's binaries: this one runs the other programs itself.
    shell::run(&mut cargo(&["build", "--release", "--package", "fencelock-torture"]))?;
    shell::run(&mut release("fencelock-torture", program, args))
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

/// Coverage of branches and comparisons, which the fuzzer follows.
const FUZZED: &str = "--cfg fuzzing --cfg fencelock_fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// `cargo xtask fuzz [target [seconds]]`: arbitrary bytes against the readers. No code of ours is unsafe, so no sanitizer is needed.
pub(crate) fn fuzz(args: &[String]) -> Result {
    const TARGETS: [&str; 5] = ["connection", "records", "reply", "ticket", "url"];
    let is_chosen = |target: &&str| args.first().is_none_or(|chosen| chosen == target);
    let seconds = args.get(1).map_or("10", String::as_str);
    if !TARGETS.iter().any(is_chosen) || seconds.parse::<std::num::NonZeroU32>().is_err() {
        return Err(format!("takes one of {} and perhaps seconds, and was given {args:?}", TARGETS.join(", ")));
    }
    // The fuzz targets build with the versions of the workspace.
    shell::run(shell::command("cp").args(["Cargo.lock", "fuzz/Cargo.lock"]))?;
    for target in TARGETS.into_iter().filter(is_chosen) {
        // The first keeps the findings, and is ours alone; the fuzzer begins with the seeds of the repository.
        let [corpus, seeds] = ["corpus", "seeds"].map(|kept| format!("fuzz/{kept}/{target}/"));
        shell::run(shell::command("mkdir").args(["-p", &corpus]))?;
        // A target is named, so that the flags do not apply to build scripts.
        let mut fuzz = cargo(&["run", "--manifest-path", "fuzz/Cargo.toml", "--target", "host-tuple", "--bin", target]);
        fuzz.env("CARGO_TARGET_DIR", "target/fuzz").env("RUSTFLAGS", FUZZED).args(["--", &corpus, &seeds]);
        fuzz.args([&format!("-max_total_time={seconds}"), &format!("-artifact_prefix={corpus}")]);
        shell::run(fuzz.args(["-max_len=8192", "-timeout=10"]))?;
    }
    Ok(())
}
