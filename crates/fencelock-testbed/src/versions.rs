//! The build of a server to start: Debian's, unless the environment names another. `cargo xtask versions` names several.

use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// A directory with the jars of a ZooKeeper server and its dependencies, to start instead of Debian's.
pub const ZOOKEEPER_JARS: &str = "FENCELOCK_TEST_ZOOKEEPER_JARS";

/// A `redis-server` to start instead of Debian's.
pub const REDIS_SERVER: &str = "FENCELOCK_TEST_REDIS_SERVER";

/// An `etcd` to start instead of Debian's.
pub const ETCD_SERVER: &str = "FENCELOCK_TEST_ETCD_SERVER";

/// MySQL's `mysqld` to start instead of Debian's MariaDB.
pub const MYSQL_SERVER: &str = "FENCELOCK_TEST_MYSQL_SERVER";

/// The first needs the last two for TLS, without naming them.
const DEBIANS: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar:\
                       /usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar";

/// Where Java finds the ZooKeeper server.
pub(crate) fn zookeeper_class_path() -> String {
    env::var(ZOOKEEPER_JARS).map_or_else(|_| DEBIANS.to_owned(), |jars| format!("{jars}/*"))
}

/// Whether the Redis server has and needs an option to allow `DEBUG`: since 7.0.
pub(crate) fn asks_for_debug_commands() -> bool {
    static MAJOR: OnceLock<u32> = OnceLock::new();
    let major = MAJOR.get_or_init(|| {
        let said = Command::new(program(REDIS_SERVER, "redis-server"))
            .arg("--version")
            .output()
            .map(|said| said.stdout)
            .unwrap_or_default();
        // Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=…
        let said = String::from_utf8_lossy(&said);
        said.split_once("v=").and_then(|(_, number)| number.split('.').next()?.parse().ok()).unwrap_or(7)
    });
    *major >= 7
}

/// The program that `variable` names, or Debian's.
pub(crate) fn program(variable: &str, debians: &str) -> String {
    env::var(variable).unwrap_or_else(|_| debians.to_owned())
}

/// A directory of PostgreSQL's programs to use instead of Debian's newest.
pub const POSTGRES_PROGRAMS: &str = "FENCELOCK_TEST_POSTGRES_PROGRAMS";

/// A program of PostgreSQL's; a program that the directory does not have is Debian's.
pub(crate) fn postgres_program(name: &str) -> PathBuf {
    let chosen = env::var(POSTGRES_PROGRAMS).map(|directory| PathBuf::from(directory).join(name));
    chosen.ok().filter(|program| program.exists()).unwrap_or_else(|| debians_postgres().join(name))
}

fn debians_postgres() -> PathBuf {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    let newest = || {
        let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let version = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
        let newest = installed.filter_map(version).max().unwrap_or_default();
        format!("/usr/lib/postgresql/{newest}/bin").into()
    };
    PROGRAMS.get_or_init(newest).clone()
}
