//! The packages for a server, and the command that installs them.

use std::path::Path;

/// A server as Debian packages it.
#[derive(Debug, Clone, Copy)]
pub struct Package {
    /// The server's name.
    pub server: &'static str,
    /// Files that are there once it is installed, and the package that brings each.
    pub files: &'static [(&'static str, &'static str)],
}

/// ZooKeeper: the jars, a Java to run them, and OpenSSL for certificates.
pub const ZOOKEEPER: Package = Package {
    server: "ZooKeeper",
    files: &[
        ("/usr/share/java/zookeeper.jar", "libzookeeper-java"),
        ("/usr/bin/java", "default-jre-headless"),
        ("/usr/bin/setpriv", "util-linux"),
    ],
};

/// Redis, which is a Sentinel too when it is asked to.
pub const REDIS: Package = Package {
    server: "Redis",
    files: &[("/usr/bin/redis-server", "redis-server"), ("/usr/bin/setpriv", "util-linux")],
};

/// PostgreSQL: the server, and its own command.
pub const POSTGRESQL: Package = Package {
    server: "PostgreSQL",
    files: &[
        ("/usr/bin/pg_createcluster", "postgresql"),
        ("/usr/bin/psql", "postgresql-client"),
        ("/usr/bin/setpriv", "util-linux"),
    ],
};

/// MariaDB: the server, and its own command.
pub const MARIADB: Package = Package {
    server: "MariaDB",
    files: &[
        ("/usr/sbin/mariadbd", "mariadb-server"),
        ("/usr/bin/mariadb", "mariadb-client"),
        ("/usr/bin/setpriv", "util-linux"),
    ],
};

/// etcd: the server, and its own command.
pub const ETCD: Package =
    Package { server: "etcd", files: &[("/usr/bin/etcd", "etcd-server"), ("/usr/bin/etcdctl", "etcd-client")] };

/// PgBouncer, a pooler for PostgreSQL.
pub const PGBOUNCER: Package = Package { server: "PgBouncer", files: &[("/usr/sbin/pgbouncer", "pgbouncer")] };

/// Programs that want a terminal for themselves, under which the command is tried.
pub const TERMINAL_PROGRAMS: Package = Package {
    server: "A program for terminals",
    files: &[("/usr/bin/vim", "vim"), ("/usr/bin/less", "less"), ("/usr/bin/ssh-keygen", "openssh-client")],
};

/// A server for remote commands (SSH), and its client.
pub const SSH: Package = Package {
    server: "OpenSSH",
    files: &[
        ("/usr/sbin/sshd", "openssh-server"),
        ("/usr/bin/ssh", "openssh-client"),
        ("/usr/bin/ssh-keygen", "openssh-client"),
    ],
};

/// A browser, and what drives it.
pub const CHROMIUM: Package = Package {
    server: "Chromium",
    files: &[("/usr/bin/chromium", "chromium"), ("/usr/bin/chromedriver", "chromium-driver")],
};

/// The program that runs a command as another user.
pub const SUDO: Package =
    Package { server: "sudo", files: &[("/usr/bin/sudo", "sudo"), ("/usr/bin/setpriv", "util-linux")] };

/// Prometheus, and its tool that checks rules and tries alerts.
pub const PROMETHEUS: Package = Package {
    server: "Prometheus",
    files: &[("/usr/bin/promtool", "prometheus"), ("/usr/bin/prometheus", "prometheus")],
};

/// Proxies that stand before servers of HTTP.
pub const PROXIES: Package =
    Package { server: "A proxy", files: &[("/usr/sbin/nginx", "nginx"), ("/usr/sbin/haproxy", "haproxy")] };

impl Package {
    /// The packages that are not installed.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        self.files.iter().filter(|(file, _)| !Path::new(file).exists()).map(|(_, package)| *package).collect()
    }

    /// Fails a test on a machine that lacks the server.
    ///
    /// # Panics
    /// When something is missing, with the command that installs it.
    pub fn require(&self) {
        let missing = self.missing().join(" ");
        assert!(
            missing.is_empty(),
            "{} is not installed; run `cargo xtask test` as root, or\n  \
             sudo apt-get update && sudo apt-get install --yes --no-install-recommends {missing}\n",
            self.server,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "install --yes --no-install-recommends second")]
    fn a_missing_package_is_named_with_the_command_that_installs_it() {
        Package { server: "A server", files: &[("/", "first"), ("/no/such/file", "second")] }.require();
    }
}
