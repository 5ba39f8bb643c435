//! The keys of the layout `fair`, version 2. NOTES.md has their content, and `scripts/` writes them.

use std::collections::HashMap;
use std::sync::Arc;

use crate::kit::bucket::bucket_of;
use crate::name::Name;
use crate::store::RequestId;
use crate::sync::Mutex;

/// The version in the layout key, and in the name of every other key.
pub(super) const VERSION: &str = "2";
/// The name of the layout in the capability table.
pub(super) const LAYOUT_NAME: &str = "fencelock redis fair layout 2";

/// How many names the client remembers with their buckets.
const KNOWN: usize = 1024;

/// The prefix of a layout in the key space of a server.
#[derive(Debug, Clone)]
pub(super) struct KeySpace {
    root: Box<str>,
    /// The buckets of recent names: a digest takes as long as all the rest of a request.
    known: Arc<Mutex<HashMap<Name, u16>>>,
}

/// The keys of one name. They share a hash tag, so that a script may use all of them in a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct NameKeys {
    /// The number of the bucket, below [`BUCKETS`](crate::kit::bucket::BUCKETS).
    pub(super) bucket: u16,
    /// The hash of the bucket: its counter, and the records and places of its names.
    pub(super) bucket_key: String,
    /// The order of the places, if there are several.
    pub(super) queue_key: String,
}

impl Default for KeySpace {
    fn default() -> Self {
        Self::new("fencelock")
    }
}

impl KeySpace {
    /// A layout whose keys begin with `root`.
    pub(super) fn new(root: &str) -> Self {
        Self { root: root.into(), known: Arc::default() }
    }

    /// The key with the version of all other keys.
    pub(super) fn layout_key(&self) -> String {
        format!("{}:layout", self.root)
    }

    /// The prefix of all sessions' keys; 16 hexadecimal digits follow.
    pub(super) fn session_prefix(&self) -> String {
        format!("{}:{VERSION}:session:", self.root)
    }

    /// The key that lives as long as the session does. Its channel has the same name.
    pub(super) fn session_key(&self, session: u64) -> String {
        let mut key = self.with_root(":2:session:", 16);
        push_hex(&mut key, session, 16);
        key
    }

    /// The prefix of a bucket's keys.
    fn tag(&self, bucket: u16, room: usize) -> String {
        let mut key = self.with_root(":2:{", 5 + room);
        push_hex(&mut key, bucket.into(), 3);
        key.push_str("}:");
        key
    }

    fn with_root(&self, next: &str, room: usize) -> String {
        let mut key = String::with_capacity(self.root.len() + next.len() + room);
        key.push_str(&self.root);
        key.push_str(next);
        key
    }

    /// The key of a bucket.
    pub(super) fn bucket_key(&self, bucket: u16) -> String {
        self.tag(bucket, 6) + "bucket"
    }

    /// The keys of a name.
    pub(super) fn slot(&self, name: &Name) -> NameKeys {
        let bucket = self.bucket_of(name);
        let queue_key = self.tag(bucket, 6 + name.as_str().len()) + "queue:" + name.as_str();
        NameKeys { bucket, bucket_key: self.bucket_key(bucket), queue_key }
    }

    /// A key that exists for a moment after a client cleared away remains of dead sessions.
    pub(super) fn janitor_key(&self) -> String {
        self.with_root(":2:janitor", 0)
    }

    /// Keys like the keys of a queue, but always empty: no bucket, order or breaks of a name.
    pub(super) fn empty_keys(&self) -> [String; 3] {
        let tag = |rest| self.tag(0, 8) + rest;
        [tag("bucket"), tag("queue:"), tag("breaks:")]
    }

    /// The key of the records of broken grants.
    pub(super) fn breaks_key(&self, name: &Name) -> String {
        self.tag(self.bucket_of(name), 7 + name.as_str().len()) + "breaks:" + name.as_str()
    }

    /// The key of the note on a lock.
    pub(super) fn note_key(&self, name: &Name) -> String {
        self.tag(self.bucket_of(name), 5 + name.as_str().len()) + "note:" + name.as_str()
    }

    /// The bucket of a name.
    pub(super) fn bucket_of(&self, name: &Name) -> u16 {
        let mut known = self.known.lock();
        if let Some(bucket) = known.get(name) {
            return *bucket;
        }
        if known.len() >= KNOWN {
            known.clear();
        }
        let bucket = bucket_of(name);
        known.insert(name.clone(), bucket);
        bucket
    }
}

/// Writes a number with at least `digits` hexadecimal digits. `write!` takes ten times as long.
pub(super) fn push_hex(text: &mut String, number: u64, digits: u32) {
    let digits = (u64::BITS - number.leading_zeros()).div_ceil(4).max(digits);
    let digit = |place| char::from(b"0123456789abcdef"[(number >> (4 * place) & 15) as usize]);
    text.extend((0..digits).rev().map(digit));
}

/// Writes a request id in the form of keys, fields and messages.
pub(super) fn push_id(text: &mut String, id: RequestId) {
    push_hex(text, id.client, 16);
    text.push('-');
    push_hex(text, id.number, 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The part of a key that a cluster hashes, from the first opening brace to the next closing one.
    fn hashed(key: &str) -> &str {
        let (_, after) = key.split_once('{').unwrap();
        after.split_once('}').unwrap().0
    }

    #[test]
    fn the_keys_of_any_name_share_one_hash_tag() {
        let layout = KeySpace::default();
        for name in ["deploy", "{a}", "}{", "a}b{c}", "{}", "日本 {x}"] {
            let name = Name::new(name).unwrap();
            let slot = layout.slot(&name);
            let tag = format!("{:03x}", slot.bucket);
            assert_eq!(hashed(&slot.bucket_key), tag);
            assert_eq!(hashed(&slot.queue_key), tag);
            assert_eq!(hashed(&layout.breaks_key(&name)), tag);
            assert_eq!(hashed(&layout.note_key(&name)), tag);
        }
    }

    #[test]
    fn ids_are_written_as_they_are_shown() {
        for (client, number) in [(0, 0), (1, 1), (0xab, 0x10), (u64::MAX, u64::MAX), (1 << 60, 0xfff)] {
            let id = RequestId { client, number };
            let mut text = String::new();
            push_id(&mut text, id);
            assert_eq!(text, id.to_string());
        }
    }

    #[test]
    fn a_bucket_is_the_same_whether_or_not_it_is_remembered() {
        let layout = KeySpace::default();
        for round in 0..2 {
            for number in 0..2 * KNOWN {
                let name = Name::new(format!("n{}", number / (round + 1))).unwrap();
                assert_eq!(layout.bucket_of(&name), bucket_of(&name));
                assert!(layout.known.lock().len() <= KNOWN);
            }
        }
    }

    #[test]
    fn every_key_carries_the_version_and_no_two_things_share_one() {
        let layout = KeySpace::new("here");
        let name = Name::new("bucket").unwrap();
        let slot = layout.slot(&name);
        let kept = [layout.breaks_key(&name), layout.note_key(&name)];
        let keys = [[slot.bucket_key, slot.queue_key], kept, [layout.session_key(7), layout.janitor_key()]].concat();
        for key in &keys {
            assert!(key.starts_with("here:2:"), "{key}");
            assert_ne!(*key, layout.layout_key());
        }
        assert_eq!(layout.session_key(7), layout.session_prefix() + "0000000000000007");
        assert_eq!(keys.iter().collect::<std::collections::HashSet<_>>().len(), keys.len());
    }
}
