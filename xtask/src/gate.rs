//! The gate: the conditions before a change lands. `.ci/run` is its list of steps; two of them are verbs here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::packages;
use crate::shell::{self, Result, cargo};

/// The build of the gate: the crates with tests in it. Every call of cargo has this selection, so that nothing is built twice.
const SELECTION: [&str; 7] =
    ["--workspace", "--exclude", "fencelock-bench", "--exclude", "fencelock-interop", "--exclude", "fencelock-torture"];

/// Random tests play the same games in every run of the gate. The deep tier leaves them to chance.
const SEEDS: [(&str, &str); 2] = [("FENCELOCK_SEED", "1"), ("PROPTEST_RNG_SEED", "1")];

/// Most tests wait for servers: more tests than cores keep the cores busy.
const THREADS: &str = "--test-threads=8";

/// Test binaries that run at the same time: while one starts its servers or waits for its last test, another uses the cores.
const LANES: usize = 2;

/// A gate that hangs fails. A test is patient for three minutes, and a law that hangs for ten.
const LIMIT: Duration = Duration::from_secs(60 * 60);

pub(crate) fn test(args: &[String]) -> Result {
    packages::ensure(packages::GATE, packages::GATE_SERVERS)?;
    match args {
        [] => all(),
        args => run(cargo_test().args(args)),
    }
}

/// Builds all tests, and runs their binaries, two at a time, and then the examples of the documentation.
fn all() -> Result {
    shell::limit(LIMIT);
    let built = shell::output(cargo_test().args(["--no-run", "--message-format", "json-render-diagnostics"]))?;
    let mut binaries: Vec<_> = built.lines().filter_map(Binary::of).collect();
    // The next one is the last. A large binary has many tests and runs for long, so the lanes end at about the same time.
    binaries.sort_by_key(|binary| binary.program.metadata().map_or(0, |file| file.len()));
    let (binaries, failed) = (Mutex::new(binaries), Mutex::new(Vec::new()));
    // A function of its own, so that no lane keeps the list locked while its binary runs.
    let next = || lock(&failed).is_empty().then(|| lock(&binaries).pop()).flatten();
    let lane = || {
        while let Some(binary) = next() {
            let mut command = binary.command();
            // Logs are cut in the middle, so the output of a failure is the last one.
            match shell::captured(&mut command) {
                (output, Ok(())) => println!("$ {}\n{output}", shell::show(&command)),
                (output, Err(error)) => lock(&failed).push(output + &error),
            }
        }
    };
    std::thread::scope(|scope| (0..LANES).for_each(|_| drop(scope.spawn(lane))));
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        none if none.is_empty() => run(cargo_test().arg("--doc")),
        failed => Err(failed.join("; ")),
    }
}

/// The gate in a group of processes that stands still for 4 s of each 15 s, as on a machine whose disk or host stalls: a test that judges time
/// fails.
pub(crate) fn stall() -> Result {
    const WORKS: Duration = Duration::from_secs(11);
    const STANDS_STILL: Duration = Duration::from_secs(4);
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let mount = mounts.lines().find_map(|line| line.strip_prefix("cgroup2 ")?.split(' ').next());
    let group = Path::new(mount.ok_or("no cgroup2 file system is mounted")?).join("fencelock-stall");
    fs::create_dir_all(&group)
        .map_err(|error| format!("{} cannot be made, which needs root: {error}", group.display()))?;
    let freezes =
        |is_frozen: &str| fs::write(group.join("cgroup.freeze"), is_frozen).map_err(|error| error.to_string());
    let mut gate = shell::command("sh");
    gate.args(["-c", "echo $$ > \"$0\" && exec cargo xtask test"]).arg(group.join("cgroup.procs"));
    let (ended, is_over) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let stalls = scope.spawn(move || {
            while is_over.recv_timeout(WORKS) == Err(RecvTimeoutError::Timeout) {
                freezes("1")?;
                std::thread::sleep(STANDS_STILL);
                freezes("0")?;
            }
            Ok(())
        });
        let passed = shell::run(&mut gate);
        drop(ended);
        passed.and(stalls.join().unwrap_or_else(|_| Err("the stalls ended early".to_owned())))
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A test binary, and the directory of its package, in which cargo runs it.
struct Binary {
    program: PathBuf,
    package: PathBuf,
}

impl Binary {
    /// The test binary that a message of cargo announces; `None` for other messages.
    fn of(message: &str) -> Option<Self> {
        let value = |key: &str| message.split_once(&format!("\"{key}\":\""))?.1.split('"').next();
        let profile = message.split_once("\"profile\":{")?.1.split('}').next()?;
        let package = Path::new(value("manifest_path")?).parent()?.into();
        profile.contains("\"test\":true").then_some(Self { program: value("executable")?.into(), package })
    }

    fn command(&self) -> Command {
        let mut command = shell::command(&self.program);
        command.current_dir(&self.package).env("CARGO_MANIFEST_DIR", &self.package).arg(THREADS).envs(seeds());
        command
    }
}

/// Runs tests of the gate's selection.
pub(crate) fn run(test: &mut Command) -> Result {
    shell::limit(LIMIT);
    shell::run(test.envs(seeds()))
}

/// The seeds that the caller has not set.
pub(crate) fn seeds() -> impl Iterator<Item = (&'static str, &'static str)> {
    SEEDS.into_iter().filter(|(name, _)| std::env::var_os(name).is_none())
}

/// `cargo test` of the gate's selection.
pub(crate) fn cargo_test() -> Command {
    let mut test = cargo(&["test"]);
    test.args(SELECTION);
    test
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_binary_is_known_by_the_profile_of_its_message() {
        let message = |is_test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/p/Cargo.toml","target":{{"test":true}},"profile":{{"opt_level":"0","test":{is_test}}},"executable":{executable}}}"#
            )
        };
        let binary = Binary::of(&message(true, r#""/t/laws-1""#)).unwrap();
        assert_eq!((binary.program, binary.package), ("/t/laws-1".into(), "/p".into()));
        assert!(Binary::of(&message(false, r#""/t/fencelock""#)).is_none(), "a program without its tests");
        assert!(Binary::of(&message(true, "null")).is_none());
        assert!(Binary::of(r#"{"reason":"build-finished","success":true}"#).is_none());
    }
}
