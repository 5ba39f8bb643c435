//! Builds the drivers of other languages by their ecosystems' own files, below the directory that cargo builds into.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use fencelock_testbed::process;

/// Where the sources are.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../interop");

/// The sources that all drivers in Java share.
const JAVA: [&str; 4] = ["Orders.java", "Recipe.java", "Turns.java", "Workloads.java"];
/// The other sources of each: of Curator, of Redisson, and of locks in databases.
const CURATOR: [&str; 3] = ["pom.xml", "CuratorLocks.java", "Driver.java"];
const REDISSON: [&str; 3] = ["redisson.pom.xml", "RedissonDriver.java", "RedissonLocks.java"];
const SQL: [&str; 3] = ["sql.pom.xml", "SqlDriver.java", "SqlLocks.java"];

/// An older release, whose unlock is another script, and its logging library.
const OLD_REDISSON: [&str; 4] = ["-f", "redisson.pom.xml", "-Dredisson.version=3.20.0", "-Dslf4j.version=1.7.36"];

/// A driver of clients in another language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Foreign {
    /// Apache Curator 5.9.0.
    Curator59,
    /// Apache Curator 5.4.0.
    Curator54,
    /// kazoo.
    Kazoo,
    /// go-zookeeper/zk, and recipes on top of it.
    Go,
    /// Redisson 4.7.0.
    Redisson,
    /// Redisson 3.20.0.
    Redisson320,
    /// redsync and bsm/redislock.
    Redsync,
    /// redis-py and python-redis-lock.
    RedisPy,
    /// redlock and redis-semaphore of npm.
    Node,
    /// ShedLock, and a tutorial's lock by JDBC.
    Jdbc,
    /// A tutorial's lock in Python, and sessions of `psql` and `mariadb`.
    PythonSql,
    /// etcd's own client.
    Etcd,
}

/// The purpose of a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A short run without figures: the driver is ready soon.
    Playing,
    /// A run whose figures count: everything at its defaults.
    Measuring,
}

/// The directory of the built drivers.
#[derive(Debug, Clone)]
pub struct Built {
    home: PathBuf,
}

impl Built {
    /// Builds the drivers of the clients of ZooKeeper, into `interop/` next to the directory of this very program. Programs
    /// that were built from the same sources stay.
    ///
    /// # Errors
    /// When a tool is missing or fails, with its output and Debian's package for it.
    pub fn for_zookeeper() -> Result<Self> {
        let built = Self::next_to_this_program()?;
        built.java("5.9.0", CURATOR, &[])?;
        built.java("5.4.0", CURATOR, &["-P", "curator-5.4.0"])?;
        built.go("driver", ".")?;
        built.python()?;
        Ok(built)
    }

    /// Builds the drivers of the measured clients of Redis.
    ///
    /// # Errors
    /// As those of [`Self::for_zookeeper`].
    pub fn for_redis() -> Result<Self> {
        let built = Self::next_to_this_program()?;
        built.java("redisson", REDISSON, &["-f", "redisson.pom.xml"])?;
        built.go("redsync", "redis")?;
        built.python()?;
        built.node()?;
        Ok(built)
    }

    /// Builds the drivers of all clients that lock on Redis.
    ///
    /// # Errors
    /// As those of [`Self::for_zookeeper`].
    pub fn for_redis_cells() -> Result<Self> {
        let built = Self::for_redis()?;
        built.java("redisson-3.20.0", REDISSON, &OLD_REDISSON)?;
        Ok(built)
    }

    /// Builds the drivers of all clients that lock in databases.
    ///
    /// # Errors
    /// As those of [`Self::for_zookeeper`].
    pub fn for_sql() -> Result<Self> {
        let built = Self::next_to_this_program()?;
        built.java("sql", SQL, &["-f", "sql.pom.xml"])?;
        built.python()?;
        Ok(built)
    }

    /// Builds the clients that lock in etcd.
    ///
    /// # Errors
    /// As those of [`Self::for_zookeeper`].
    pub fn for_etcd() -> Result<Self> {
        let built = Self::next_to_this_program()?;
        built.go("etcd", "etcd")?;
        Ok(built)
    }

    fn next_to_this_program() -> Result<Self> {
        let this = std::env::current_exe().context("where is this program?")?;
        let home = this.ancestors().nth(2).context("this program is nowhere")?.join("interop");
        std::fs::create_dir_all(&home).with_context(|| home.display().to_string())?;
        Ok(Self { home })
    }

    /// The command that starts a driver, bound to the life of this process; see [`process::spawn`]. The caller adds the driver's
    /// arguments (servers, session timeout, log).
    #[must_use]
    pub fn command(&self, driver: Foreign, purpose: Purpose) -> Command {
        match driver {
            Foreign::Curator59 => self.java_command("5.9.0", "fencelock.Driver", purpose),
            Foreign::Curator54 => self.java_command("5.4.0", "fencelock.Driver", purpose),
            Foreign::Redisson => self.java_command("redisson", "fencelock.RedissonDriver", purpose),
            Foreign::Redisson320 => self.java_command("redisson-3.20.0", "fencelock.RedissonDriver", purpose),
            Foreign::Jdbc => self.java_command("sql", "fencelock.SqlDriver", purpose),
            Foreign::PythonSql => self.python_command("sql_driver.py"),
            Foreign::Kazoo => self.python_command("driver.py"),
            Foreign::RedisPy => self.python_command("redis_driver.py"),
            Foreign::Go => process::bound(self.home.join("go/driver")),
            Foreign::Redsync => process::bound(self.home.join("go/redsync")),
            Foreign::Etcd => process::bound(self.home.join("go/etcd")),
            Foreign::Node => {
                let mut command = process::bound("node");
                command.env("FENCELOCK_NODE_HOME", self.home.join("node")).arg(source("node").join("redis_driver.mjs"));
                command
            }
        }
    }

    fn python_command(&self, program: &str) -> Command {
        let mut command = process::bound(self.home.join("python/bin/python"));
        // Nothing is written next to the sources.
        command.env("PYTHONDONTWRITEBYTECODE", "1").arg(source("python").join(program));
        command
    }

    fn java_command(&self, version: &str, main: &str, purpose: Purpose) -> Command {
        let home = self.home.join("java").join(version);
        let mut command = process::bound("java");
        if purpose == Purpose::Playing {
            command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]);
        }
        command.arg("-cp").arg(format!("{}:{}/*", home.join("classes").display(), home.join("lib").display()));
        command.arg(main);
        command
    }

    fn java(&self, version: &str, [pom, own @ ..]: [&str; 3], which: &[&str]) -> Result<()> {
        let home = self.home.join("java").join(version);
        let sources = own.into_iter().chain(JAVA).map(|file| format!("src/main/java/fencelock/{file}"));
        let sources: Vec<_> = [pom.to_owned()].into_iter().chain(sources).collect();
        once(&home, &source("java"), &sources, || {
            let mut maven = Command::new("mvn");
            maven.args(["--quiet", "--batch-mode"]).args(which).arg(format!("-Dout={}", home.display()));
            maven.arg("process-classes").current_dir(source("java"));
            run(&mut maven, "Maven, a JDK and a Maven repository; Debian's packages are maven and default-jdk-headless")
        })
    }

    fn go(&self, program: &str, folder: &str) -> Result<()> {
        let mut go = Command::new("go");
        // Go itself builds only changed packages.
        go.args(["build", "-buildvcs=false", "-o"]).arg(self.home.join("go").join(program)).arg(".");
        let needed = "Go, as new as its go.mod says, and a module proxy; Debian's package is golang-go";
        run(go.current_dir(source("go").join(folder)), needed)
    }

    fn python(&self) -> Result<()> {
        let home = self.home.join("python");
        once(&home, &source("python"), &["requirements.txt"], || {
            let needed = "Python 3 with its module venv; Debian's packages are python3 and python3-venv";
            run(Command::new("python3").args(["-m", "venv"]).arg(&home), needed)?;
            let mut pip = Command::new(home.join("bin/python"));
            pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]);
            run(pip.arg(source("python").join("requirements.txt")), "a package index that pip can reach")
        })
    }

    fn node(&self) -> Result<()> {
        let (home, files) = (self.home.join("node"), ["package.json", "package-lock.json"]);
        once(&home, &source("node"), &files, || {
            for file in files {
                std::fs::copy(source("node").join(file), home.join(file)).with_context(|| file.to_owned())?;
            }
            let mut npm = Command::new("npm");
            npm.args(["ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(&home);
            run(&mut npm, "Node with npm, and a registry that it can reach; Debian's packages are nodejs and npm")
        })
    }
}

fn source(language: &str) -> PathBuf {
    Path::new(SOURCES).join(language)
}

/// Builds into an empty `home` unless that was done with these very sources.
fn once(home: &Path, folder: &Path, sources: &[impl AsRef<Path>], build: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut text = String::new();
    for name in sources {
        let path = folder.join(name);
        text += &std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    }
    let stamp = home.join("built-from.txt");
    if std::fs::read_to_string(&stamp).is_ok_and(|built| built == text) {
        return Ok(());
    }
    // There may be none.
    let _ = std::fs::remove_dir_all(home);
    std::fs::create_dir_all(home).with_context(|| home.display().to_string())?;
    build()?;
    std::fs::write(&stamp, text).with_context(|| stamp.display().to_string())
}

fn run(command: &mut Command, needed: &str) -> Result<()> {
    let program = Path::new(command.get_program()).to_owned();
    println!("building with {}", program.file_name().unwrap_or_default().display());
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("what is needed: {needed}"))?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        bail!("{} failed; what is needed: {needed}\n{}", program.display(), String::from_utf8_lossy(&said).trim_end());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_is_rebuilt_only_from_other_sources() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("built");
        let mut builds = 0;
        for text in ["one", "one", "two"] {
            std::fs::write(folder.path().join("source"), text).unwrap();
            once(&home, folder.path(), &["source"], || {
                builds += 1;
                Ok(())
            })
            .unwrap();
        }
        assert_eq!(builds, 2);
        // A half-built folder is not taken for done.
        std::fs::write(folder.path().join("source"), "three").unwrap();
        assert!(once(&home, folder.path(), &["source"], || bail!("no")).is_err());
        once(&home, folder.path(), &["source"], || {
            builds += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(builds, 3);
    }

    #[test]
    fn a_tool_that_is_missing_is_named_with_its_package() {
        let fault = run(&mut Command::new("no-such-tool-anywhere"), "a tool; its package is tool").unwrap_err();
        assert!(format!("{fault:#}").contains("its package is tool"), "{fault:#}");
    }
}
