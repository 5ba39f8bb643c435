//! `cargo xtask fuzz <target> [seconds]`: arbitrary bytes against what takes them in. Needs a nightly compiler, and so is no part of `ci`.

use std::fs;

use crate::shell::{self, Result, command, run, succeeds};

const CRATE: &str = "crates/fencelock-zookeeper";
const SECONDS: u32 = 60;

pub(crate) fn run_target(args: &[String]) -> Result {
    let targets = targets()?;
    let known = || format!("the targets are {}", targets.join(", "));
    let (target, seconds) = match args {
        [target] => (target, SECONDS),
        [target, seconds] => (target, seconds.parse().map_err(|_| format!("{seconds:?} is no number of seconds"))?),
        _ => return Err(format!("takes a target and perhaps seconds ({SECONDS} otherwise); {}", known())),
    };
    if !targets.contains(target) {
        return Err(format!("there is no target {target:?}; {}", known()));
    }
    if !succeeds(command("cargo").args(["+nightly", "fuzz", "--version"])) {
        return Err(
            "needs a nightly compiler and cargo-fuzz: `rustup toolchain install nightly`, `cargo install cargo-fuzz`"
                .to_owned(),
        );
    }
    fs::create_dir_all(shell::root().join(CRATE).join("fuzz/corpus").join(target))
        .map_err(|error| error.to_string())?;
    // The compiler that runs this is not the one that is needed.
    run(command("cargo")
        .env_remove("RUSTUP_TOOLCHAIN")
        .args(["+nightly", "fuzz", "run", "--fuzz-dir", &format!("{CRATE}/fuzz"), target])
        // What is found is kept in the first, which is nobody's but ours; it begins with the seeds of the repository.
        .args([&format!("{CRATE}/fuzz/corpus/{target}"), &format!("{CRATE}/fuzz/seeds/{target}"), "--"])
        .arg(format!("-max_total_time={seconds}"))
        .arg("-max_len=8192"))
}

/// The names of the targets, which are those of their files.
fn targets() -> Result<Vec<String>> {
    let directory = shell::root().join(CRATE).join("fuzz/fuzz_targets");
    let entries = fs::read_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let stem = |entry: fs::DirEntry| entry.path().file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let mut targets: Vec<String> = entries.flatten().filter_map(stem).collect();
    targets.sort();
    Ok(targets)
}
