//! The first inputs of the fuzzer, and changes of them, for unit tests.

use std::path::Path;

/// The files of `fuzz/seeds/<target>`, by name.
pub(crate) fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(path).unwrap())
    };
    let mut seeds: Vec<_> = std::fs::read_dir(directory).unwrap().map(read).collect();
    seeds.sort();
    assert!(seeds.len() >= 10, "{target}");
    seeds
}

/// Calls `read` with each seed, and with `changes` changes of each.
pub(crate) fn change_seeds(target: &str, changes: usize, read: impl Fn(&[u8])) {
    let mut random = fastrand::Rng::with_seed(7);
    for (_, seed) in seeds(target) {
        read(&seed);
        (0..changes).for_each(|_| read(&changed(&mut random, &seed)));
    }
}

/// The seed with some of its bytes changed, left out or doubled.
fn changed(random: &mut fastrand::Rng, seed: &[u8]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..random.usize(1..6) {
        let at = random.usize(..bytes.len().max(1)).min(bytes.len().saturating_sub(1));
        match random.u8(..4) {
            _ if bytes.is_empty() => bytes.push(random.u8(..)),
            0 => bytes[at] = random.u8(..),
            1 => bytes[at] ^= 1 << random.u8(..8),
            2 => drop(bytes.remove(at)),
            _ => bytes.extend_from_within(at..),
        }
        bytes.truncate(8192);
    }
    bytes
}
