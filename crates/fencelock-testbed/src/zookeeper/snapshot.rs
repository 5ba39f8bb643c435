//! A server's snapshot on disk, changed by hand: the number of the next sequential child of a node, which no request can
//! set.
//!
//! The layout is that of ZooKeeper's `FileSnap`, with digests off: records in its Jute encoding, then an Adler-32 of
//! everything before as 8 bytes, then the path `/` that ends a snapshot.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The checksum and what comes after it.
const SEAL: usize = 8 + 4 + 1;

/// Makes `next` the number of the next sequential child of the node at `path`, in the newest snapshot in `directory`.
pub(super) fn set_sequence(directory: &Path, path: &str, next: i32) -> io::Result<()> {
    let file = newest(directory)?;
    let mut snapshot = fs::read(&file)?;
    let fault = |what: &str| io::Error::other(format!("{}: {what}", file.display()));
    let end = snapshot.len().checked_sub(SEAL).ok_or_else(|| fault("too short"))?;
    if snapshot[end..end + 8] != checksum(&snapshot[..end]) {
        return Err(fault("its checksum is not where it is expected: start the server with digest.enabled=false"));
    }
    let at = child_version(&snapshot[..end], path).ok_or_else(|| fault("does not have that node"))?;
    snapshot[at..at + 4].copy_from_slice(&next.to_be_bytes());
    let sum = checksum(&snapshot[..end]);
    snapshot[end..end + 8].copy_from_slice(&sum);
    fs::write(&file, snapshot)
}

fn newest(directory: &Path) -> io::Result<PathBuf> {
    let number = |path: &PathBuf| -> Option<u64> {
        u64::from_str_radix(path.file_name()?.to_str()?.strip_prefix("snapshot.")?, 16).ok()
    };
    let files = fs::read_dir(directory)?.flatten().map(|entry| entry.path());
    let newest = files.filter_map(|path| Some((number(&path)?, path))).max();
    newest.map(|(_, path)| path).ok_or_else(|| io::Error::other(format!("no snapshot in {}", directory.display())))
}

/// The offset of the node's child version. Before it are the path, the data, the ACL's number, four times and
/// transaction numbers (8 bytes each), and the version.
fn child_version(snapshot: &[u8], path: &str) -> Option<usize> {
    let length = u32::try_from(path.len()).ok()?;
    let record = [&length.to_be_bytes(), path.as_bytes()].concat();
    let data = snapshot.windows(record.len()).position(|window| window == record)? + record.len();
    let length = i32::from_be_bytes(snapshot.get(data..data + 4)?.try_into().ok()?);
    let after = data + 4 + usize::try_from(length.max(0)).ok()?;
    let at = after + 8 + 4 * 8 + 4;
    (at + 4 <= snapshot.len()).then_some(at)
}

/// Adler-32, as Java writes a long.
fn checksum(bytes: &[u8]) -> [u8; 8] {
    const MODULUS: u64 = 65_521;
    let (a, b) = bytes.iter().fold((1, 0), |(a, b), byte| {
        let a = (a + u64::from(*byte)) % MODULUS;
        (a, (b + a) % MODULUS)
    });
    ((b << 16) | a).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_adler_32() {
        assert_eq!(checksum(b"Wikipedia"), 0x11E6_0398_u64.to_be_bytes());
    }
}
