//! The keys of the layout `fair`, version 1. What is in them, NOTES.md says; who writes it, `scripts/`.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::name::Name;

/// The version that the layout key holds, and that every other key carries in its name.
pub(super) const VERSION: &str = "1";
/// The name of the layout in the capability table.
pub(super) const LAYOUT_NAME: &str = "fencelock redis fair layout 1";
/// How many buckets names fall into: as many hash tags, and as many counters.
pub(super) const BUCKETS: u16 = 4096;

/// Where a layout begins in the key space of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    root: Box<str>,
}

/// The keys of one name. They share a hash tag, so that a script may touch all of them wherever they are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Slot {
    /// The number of the bucket, below [`BUCKETS`].
    pub(super) bucket: u16,
    /// The hash of the bucket: its counter, and the records and places of its names.
    pub(super) bucket_key: String,
    /// The order of the places, where there are several.
    pub(super) queue_key: String,
}

impl Default for Layout {
    fn default() -> Self {
        Self::new("fencelock")
    }
}

impl Layout {
    /// A layout whose keys begin with `root`.
    pub(super) fn new(root: &str) -> Self {
        Self { root: root.into() }
    }

    /// The key that says which version the keys beside it are of.
    pub(super) fn layout_key(&self) -> String {
        format!("{}:layout", self.root)
    }

    /// What the keys of all sessions begin with; 16 hexadecimal digits follow.
    pub(super) fn session_prefix(&self) -> String {
        format!("{}:{VERSION}:session:", self.root)
    }

    /// The key that lives as long as the session does. Its channel has the same name.
    pub(super) fn session_key(&self, session: u64) -> String {
        format!("{}{session:016x}", self.session_prefix())
    }

    /// What the keys of one bucket begin with.
    fn tag(&self, bucket: u16) -> String {
        format!("{}:{VERSION}:{{{bucket:03x}}}:", self.root)
    }

    /// The key of a bucket.
    pub(super) fn bucket_key(&self, bucket: u16) -> String {
        self.tag(bucket) + "bucket"
    }

    /// The keys of a name.
    pub(super) fn slot(&self, name: &Name) -> Slot {
        let bucket = bucket_of(name);
        let mut queue_key = self.tag(bucket);
        // Writing to a string cannot fail.
        let _ = write!(queue_key, "queue:{name}");
        Slot { bucket, bucket_key: self.bucket_key(bucket), queue_key }
    }

    /// The key of the records of broken grants.
    pub(super) fn breaks_key(&self, name: &Name) -> String {
        format!("{}breaks:{name}", self.tag(bucket_of(name)))
    }
}

/// The first 12 bits of the digest, as in the file store.
fn bucket_of(name: &Name) -> u16 {
    let digest = Sha256::digest(name.as_str().as_bytes());
    u16::from(digest[0]) << 4 | u16::from(digest[1] >> 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a cluster hashes of a key: what is between the first brace and the next closing one.
    fn hashed(key: &str) -> &str {
        let (_, after) = key.split_once('{').unwrap();
        after.split_once('}').unwrap().0
    }

    #[test]
    fn the_keys_of_a_name_share_one_hash_tag_whatever_the_name_holds() {
        let layout = Layout::default();
        for name in ["deploy", "{a}", "}{", "a}b{c}", "{}", "日本 {x}"] {
            let name = Name::new(name).unwrap();
            let slot = layout.slot(&name);
            let tag = format!("{:03x}", slot.bucket);
            assert_eq!(hashed(&slot.bucket_key), tag);
            assert_eq!(hashed(&slot.queue_key), tag);
            assert_eq!(hashed(&layout.breaks_key(&name)), tag);
        }
    }

    #[test]
    fn every_key_carries_the_version_and_no_two_things_share_one() {
        let layout = Layout::new("here");
        let name = Name::new("bucket").unwrap();
        let slot = layout.slot(&name);
        let keys = [slot.bucket_key, slot.queue_key, layout.breaks_key(&name), layout.session_key(7)];
        for key in &keys {
            assert!(key.starts_with("here:1:"), "{key}");
            assert_ne!(*key, layout.layout_key());
        }
        assert_eq!(keys.iter().collect::<std::collections::HashSet<_>>().len(), keys.len());
    }
}
