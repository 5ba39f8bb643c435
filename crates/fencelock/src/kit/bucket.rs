//! Buckets of names: a fixed number of counters, for any number of names. `vectors/buckets.tsv` pins them for programs in other languages.

use hmac_sha256::Hash;

use crate::name::Name;

pub(crate) const BUCKETS: u16 = 4096;

/// The bucket of a name, below [`BUCKETS`]: the first 12 bits of its digest.
pub(crate) fn bucket_of(name: &Name) -> u16 {
    let digest = digest(name.as_str());
    u16::from(digest[0]) << 4 | u16::from(digest[1] >> 4)
}

/// The bucket at which the session of this number begins to clear up. Sessions begin at sixteen different buckets, so that together they
/// soon visit all. A session at the first bucket also does the work of a whole round, and most commands end after a single step.
#[allow(dead_code, reason = "databases alone clear up so")]
pub(crate) fn first_to_clear(session: u64) -> u16 {
    (session % 16) as u16 * (BUCKETS / 16)
}

pub(crate) fn digest(text: &str) -> [u8; 32] {
    Hash::hash(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_those_of_the_vectors() {
        let vectors = include_str!("../../vectors/buckets.tsv");
        for row in vectors.lines().filter(|line| !line.starts_with('#')) {
            let (name, bucket) = row.split_once('\t').unwrap();
            assert_eq!(bucket_of(&Name::new(name).unwrap()), bucket.parse::<u16>().unwrap(), "{name}");
        }
    }
}
