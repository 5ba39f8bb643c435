//! The facts of a lock directory and its host.

use std::fs;
use std::path::Path;

use nix::sys::statvfs::statvfs;

use super::checks::{Check, Facts, Severity, checks};

/// Where something deletes files that are old.
const CLEANED: [&str; 3] = ["/tmp", "/var/tmp", "/var/cache"];

pub(super) fn facts(directory: &str) -> Result<Facts, String> {
    let mut facts = Facts::default();
    let path = fs::canonicalize(directory).map_err(|error| error.to_string())?;
    facts.set("path", path.display());
    if let Ok(space) = statvfs(&path) {
        facts.set("free_bytes", space.blocks_available() * space.fragment_size());
        facts.set("inodes", space.files());
        facts.set("free_inodes", space.files_available());
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    facts.set("file_system", file_system(&mounts, &path));
    for (name, file) in [("instances", "max_user_instances"), ("watches", "max_user_watches")] {
        let text = fs::read_to_string(format!("/proc/sys/fs/inotify/{file}")).unwrap_or_default();
        facts.set(name, text.trim());
    }
    Ok(facts)
}

/// The kind of file system that `path` is on: that of the longest mount point above it, and of several there the last.
fn file_system(mounts: &str, path: &Path) -> String {
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let above = mounts.filter(|(point, _)| path.starts_with(point)).max_by_key(|(point, _)| point.len());
    above.map_or_else(String::new, |(_, kind)| kind.to_owned())
}

checks! {
    Problem, |facts| {
        const REMOTE: [&str; 9] = ["nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "glusterfs", "9p", "afs"];
        let kind = facts.text("file_system");
        (REMOTE.contains(&kind) || kind.starts_with("fuse")).then(|| format!("the directory is on {kind}, a network file system"))
    }, "locks of the kernel end at the host, or are lost with a connection, without notice", "a directory on a local disk, or a store for many hosts";
    Warning, |facts| {
        let path = Path::new(facts.text("path"));
        Some(format!("the directory is in {}", CLEANED.into_iter().find(|cleaned| path.starts_with(cleaned))?))
    }, "cleaners (systemd-tmpfiles, tmpreaper) delete files there that are old, and locks with them: two may hold one", "a directory elsewhere, as in /var/lib";
    Note, |facts| facts.is("file_system", "overlay").then(|| "the directory is in the layers of a container".to_owned()),
        "other containers and the host have another directory: they exclude each other nowhere", "a volume that all of them mount";
    Warning, |facts| {
        let free = facts.number("free_bytes").filter(|free| *free < 16.0 * 1024.0 * 1024.0)?;
        Some(format!("{:.1} MiB are free there", free / 1024.0 / 1024.0))
    }, "on a full disk no client gets a lock", "room";
    Warning, |facts| {
        let (free, all) = (facts.number("free_inodes")?, facts.above_nothing("inodes")?);
        (free < 10_000.0 && free < all / 100.0).then(|| format!("{free} files more fit there (inodes)"))
    }, "each contender is a file: without room no client gets a lock", "fewer files, or another file system";
    Note, |facts| {
        let most = facts.number("instances").filter(|most| *most < 128.0)?;
        Some(format!("fs.inotify.max_user_instances is {most}"))
    }, "a process that gets no instance looks again and again instead of being notified", "sysctl fs.inotify.max_user_instances=128 or more";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mount_point_says_the_kind() {
        let mounts = "a / ext4 rw 0 0\nb /srv nfs4 rw 0 0\nc /srv/local xfs rw 0 0\nd /srvx cifs rw 0 0\n";
        for (path, kind) in [("/srv/x", "nfs4"), ("/srv/local/x", "xfs"), ("/srvx", "cifs"), ("/other", "ext4")] {
            assert_eq!(file_system(mounts, Path::new(path)), kind, "{path}");
        }
    }
}
