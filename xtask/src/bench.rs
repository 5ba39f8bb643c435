//! `cargo xtask bench <what>`: hands over to `crates/fencelock-bench`, in a release build.

use crate::packages;
use crate::shell::{self, Result, cargo};

pub(crate) fn run(args: &[String]) -> Result {
    if !shell::root().join("crates/fencelock-bench").is_dir() {
        return Err("there are no benchmarks yet".to_owned());
    }
    let is = |word: &str| args.iter().any(|arg| arg == word);
    let needs: &[_] = match () {
        () if is("file") || is("defaults") => packages::BENCH,
        () if is("--peers") => packages::INTEROP,
        () => &[],
    };
    let has_servers = ["zookeeper", "redis", "postgres", "defaults"].into_iter().any(is);
    packages::ensure(needs, if has_servers { packages::SERVERS } else { &[] })?;
    shell::run(cargo(&["run", "--release", "--package", "fencelock-bench", "--"]).args(args))
}
