//! `cargo xtask bench <what>`: hands over to `crates/fencelock-bench`, in a release build.

use crate::packages;
use crate::shell::{self, Result, cargo};

pub(crate) fn run(args: &[String]) -> Result {
    if !shell::root().join("crates/fencelock-bench").is_dir() {
        return Err("there are no benchmarks yet".to_owned());
    }
    let servers = if args.iter().any(|what| what == "zookeeper") { packages::SERVERS } else { &[] };
    packages::ensure(packages::BENCH, servers)?;
    shell::run(cargo(&["run", "--release", "--package", "fencelock-bench", "--"]).args(args))
}
