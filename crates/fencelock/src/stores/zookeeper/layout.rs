//! The names of nodes: writes ours, and reads the names of all families.

use std::fmt::Write as _;

use super::dialect::{After, CURATOR_MARKS, Dialect, Form, IdForm, Kind, LOCK, Mark, RLOCK};
use crate::queue::Claim;
use crate::store::RequestId;

/// The highest number in use: clients disagree about the number after 2^31 - 1, so fencelock stops a million before.
pub(super) const NUMBER_LIMIT: i64 = i32::MAX as i64 - 1_000_000;

/// The node names of one kind of lock in one dialect.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    dialect: &'static Dialect,
    kind: Kind,
}

impl Dialect {
    /// The layout for `claim`; `None` where there is none.
    pub(super) fn layout_for(&'static self, claim: Claim) -> Option<Layout> {
        let layout = Layout { dialect: self, kind: Kind::of(claim) };
        layout.form(claim).map(|_| layout)
    }

    pub(super) fn mutex(&'static self) -> Layout {
        Layout { dialect: self, kind: Kind::Mutex }
    }

    /// The layout of the queue of `children`, by the name of the first. A node that may be a mutex or a writer is a writer among readers.
    pub(super) fn layout_of(&'static self, children: &[String]) -> Layout {
        let kinds = || children.iter().filter_map(|child| kind_of(child));
        let front = kinds().min_by_key(|(number, _)| *number).and_then(|(_, kind)| kind);
        let has_readers = || kinds().any(|(_, kind)| kind == Some(Kind::ReadWrite));
        let kind = match front {
            _ if self.one_parent => Kind::Mutex,
            None if has_readers() => Kind::ReadWrite,
            front => front.unwrap_or(Kind::Mutex),
        };
        Layout { dialect: self, kind }
    }
}

/// The number of `node`, and the kind of lock that it belongs to as far as its name shows; `None` for a stranger.
fn kind_of(node: &str) -> Option<(i64, Option<Kind>)> {
    numbers(node).find_map(|(head, number)| {
        if permit(head).is_some() {
            return Some((number, Some(Kind::Semaphore)));
        }
        let mark = CURATOR_MARKS.iter().find(|mark| head.ends_with(mark.text))?;
        let kind = match mark.text {
            LOCK => ours(node),
            _ => Some(Kind::of(mark.claim)),
        };
        Some((number, kind))
    })
}

/// A node that is in the queue, or ahead of it in another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QueueNode {
    /// The number that the server appended when the node was created. Negative past the end of the counter.
    pub(super) number: i64,
    pub(super) claim: Claim,
    /// The node belongs to another kind of lock.
    pub(super) alien: bool,
}

impl Layout {
    pub(super) fn kind(self) -> Kind {
        self.kind
    }

    fn form(self, claim: Claim) -> Option<&'static Form> {
        match self.kind {
            Kind::Mutex => Some(&self.dialect.mutex),
            Kind::Semaphore => self.dialect.semaphore.as_ref(),
            Kind::ReadWrite if claim.is_reader() => self.dialect.read_write.as_ref().map(|(reader, _)| reader),
            Kind::ReadWrite if claim.is_whole() => self.dialect.read_write.as_ref().map(|(_, writer)| writer),
            Kind::ReadWrite => None,
        }
    }

    /// The name of our node for `id`, up to the number.
    pub(super) fn prefix(self, id: RequestId, claim: Claim, key: &str) -> String {
        let form = self.form(claim).unwrap_or(&self.dialect.mutex);
        let mut name = String::from(form.before);
        let bits = to_bits(id, self.kind);
        // Writing to a string does not fail.
        let _ = match form.id {
            IdForm::Dashed => write_dashed(&mut name, bits),
            IdForm::Plain => write!(name, "{bits:032x}"),
        };
        let _ = match form.after {
            After::Text(text) => write!(name, "{text}"),
            After::Key => write!(name, "-{key}"),
            After::Permit => write!(name, "-{PERM}{}of{}__", claim.weight(), claim.capacity()),
        };
        name
    }

    /// Reads `node` as a member of the queue of `key`; `None` for a stranger.
    pub(super) fn read(self, node: &str, key: &str) -> Option<QueueNode> {
        numbers(node).find_map(|(head, number)| {
            if self.dialect.one_parent {
                let is_of_key = head == key || key_of(head) == Some(key);
                return is_of_key.then_some(QueueNode { number, claim: Claim::MUTEX, alien: false });
            }
            if let Some(claim) = permit(head) {
                return Some(QueueNode { number, claim, alien: self.kind != Kind::Semaphore });
            }
            let mark = self.dialect.marks.iter().find(|mark| head.ends_with(mark.text))?;
            let (claim, alien) = self.marked(mark, node);
            Some(QueueNode { number, claim, alien })
        })
    }

    /// The claim of a node with this mark, and whether the node belongs to another kind of lock.
    fn marked(self, mark: &Mark, node: &str) -> (Claim, bool) {
        let (claim, alien) = match (self.kind, mark.with_readers) {
            (Kind::Mutex, _) => (mark.claim, !mark.with_mutexes),
            (Kind::ReadWrite, Some(claim)) => (claim, false),
            _ => (mark.claim, true),
        };
        // kazoo's names do not distinguish a mutex from a writer. Ours do, by the id.
        match (mark.text, ours(node)) {
            (LOCK, Some(Kind::ReadWrite)) => (Claim::WRITER, alien || self.kind != Kind::ReadWrite),
            (RLOCK, Some(Kind::ReadWrite)) => (Claim::READER, alien || self.kind != Kind::ReadWrite),
            (LOCK, Some(kind)) => (Claim::MUTEX, alien || self.kind != kind),
            _ => (claim, alien),
        }
    }

    /// The lock that `node` belongs to, where many share one parent.
    pub(super) fn key(self, node: &str) -> Option<&str> {
        let (head, _) = numbers(node).next()?;
        Some(key_of(head).unwrap_or(head)).filter(|key| !key.is_empty())
    }
}

/// The name of a node of ours, whose number is not negative.
pub(super) fn numbered(prefix: String, number: i64) -> String {
    format!("{prefix}{number:010}")
}

/// The number of our own node, named `prefix` + number.
pub(super) fn own_number(node: &str, prefix: &str) -> Option<i64> {
    let number = node.strip_prefix(prefix)?;
    numbers(number).find_map(|(head, number)| head.is_empty().then_some(number))
}

/// The text before the number of `node`.
pub(super) fn head_of(node: &str) -> Option<&str> {
    numbers(node).map(|(head, _)| head).next()
}

/// The possible splits of `name` into a head and a server's number: ten characters, sign included, or eleven.
fn numbers(name: &str) -> impl Iterator<Item = (&str, i64)> {
    [10_usize, 11].into_iter().filter_map(move |width| {
        let (head, number) = name.split_at_checked(name.len().checked_sub(width)?)?;
        let digits = number.strip_prefix('-').unwrap_or(number);
        let is_number = digits.len() >= width - 1 && digits.len() <= 10 && digits.bytes().all(|b| b.is_ascii_digit());
        if is_number { Some((head, number.parse().ok()?)) } else { None }
    })
}

/// The key in `_c_<id>-<key>`.
fn key_of(head: &str) -> Option<&str> {
    let rest = head.strip_prefix("_c_")?;
    let (_, key) = leading_id(rest)?;
    key.strip_prefix('-')
}

/// Whether Curator would wait for such a child from its first acquire on, or count it as a contender. Curator compares the text after the
/// last `lock-`, or the whole name.
pub(super) fn disturbs_curator(segment: &str) -> bool {
    let key = segment.rsplit_once("lock-").map_or(segment, |(_, key)| key);
    key < "0000000000" || numbers(key).any(|(head, _)| head.is_empty())
}

/// Whether some client's queue would count a child of this name.
pub(super) fn looks_like_a_contender(segment: &str) -> bool {
    kind_of(segment).is_some()
}

/// The mark before a permit's claim; a new form of claim needs another mark.
const PERM: &str = "__PERM__";

/// The claim of the permit whose node begins with `head`.
fn permit(head: &str) -> Option<Claim> {
    let (_, claim) = head.strip_suffix("__")?.rsplit_once(PERM)?;
    let (weight, capacity) = claim.split_once("of")?;
    let claim = Claim::new(decimal(weight)?, decimal(capacity)?).ok()?;
    (Kind::of(claim) == Kind::Semaphore).then_some(claim)
}

/// Reads a number in its only canonical form.
fn decimal(text: &str) -> Option<u32> {
    let number: u32 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// The first digit of every id of ours: a letter, so that no name begins with digits that Curator would sort ahead.
const fn letter(kind: Kind) -> u64 {
    match kind {
        Kind::Mutex => 0xa << 60,
        Kind::ReadWrite => 0xb << 60,
        Kind::Semaphore => 0xc << 60,
    }
}

const KINDS: [Kind; 3] = [Kind::Mutex, Kind::ReadWrite, Kind::Semaphore];

/// The request as the 128 bits of a uuid. Request numbers beyond 2^60 do not occur.
fn to_bits(id: RequestId, kind: Kind) -> u128 {
    u128::from(letter(kind) | id.number) << 64 | u128::from(id.client)
}

fn write_dashed(name: &mut String, bits: u128) -> std::fmt::Result {
    let bits = format!("{bits:032x}");
    write!(name, "{}-{}-{}-{}-{}", &bits[..8], &bits[8..12], &bits[12..16], &bits[16..20], &bits[20..])
}

/// The kind of lock of our own node in kazoo's form. Only one in 2^30 random ids begins like ours, whose numbers are small; after 2^32
/// requests of a client, its nodes count as kazoo's.
pub(super) fn ours(node: &str) -> Option<Kind> {
    let (bits, _) = leading_id(node)?;
    let high = (bits >> 64) as u64;
    KINDS.into_iter().find(|kind| high >> 32 == letter(*kind) >> 32)
}

/// The request that `node` names. Each contender of another client gets a stable request, derived from its name if it has no id.
pub(super) fn request_of(node: &str) -> RequestId {
    let id = node.strip_prefix("_c_").unwrap_or(node);
    if let Some((bits, _)) = leading_id(id) {
        let (high, low) = ((bits >> 64) as u64, bits as u64);
        let is_ours = KINDS.iter().any(|kind| high & (0xf << 60) == letter(*kind));
        let number = if is_ours { high & !(0xf << 60) } else { high };
        return RequestId { client: low, number };
    }
    let hash = node
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let number = numbers(node).next().map_or(0, |(_, number)| number.unsigned_abs());
    RequestId { client: hash, number }
}

/// 32 hexadecimal digits at the start of `text`, dashed as a uuid or not, and what follows them.
pub(super) fn leading_id(text: &str) -> Option<(u128, &str)> {
    let dashed = text
        .split_at_checked(36)
        .filter(|(id, _)| id.bytes().enumerate().all(|(at, byte)| (byte == b'-') == matches!(at, 8 | 13 | 18 | 23)));
    let (id, rest) = dashed.or_else(|| text.split_at_checked(32))?;
    let digits: String = id.chars().filter(|c| *c != '-').collect();
    if digits.len() != 32 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    Some((u128::from_str_radix(&digits, 16).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::super::dialect::DIALECTS;
    use super::*;

    const ID: RequestId = RequestId { client: 0x0123_4567_89ab_cdef, number: 5 };

    fn dialect(name: &str) -> &'static Dialect {
        DIALECTS.iter().find(|dialect| dialect.name == name).unwrap()
    }

    fn number(node: &str) -> Option<i64> {
        dialect("curator").mutex().read(node, "").map(|ticket| ticket.number)
    }

    #[test]
    fn our_nodes_are_named_as_each_family_names_them() {
        let prefix = |name| dialect(name).mutex().prefix(ID, Claim::MUTEX, "job");
        assert_eq!(prefix("curator"), "_c_a0000000-0000-0005-0123-456789abcdef-lock-");
        assert_eq!(prefix("kazoo"), "a0000000000000050123456789abcdef__lock__");
        assert_eq!(prefix("shared"), "_c_a0000000000000050123456789abcdef-job");
        for dialect in &DIALECTS {
            let prefix = dialect.mutex().prefix(ID, Claim::MUTEX, "job");
            let node = numbered(prefix.clone(), 42);
            assert_eq!(own_number(&node, &prefix), Some(42));
            assert_eq!(own_number(&format!("{prefix}00000000421"), &prefix), None);
            assert_eq!(request_of(&node), ID);
            let ticket = dialect.mutex().read(&node, "job").unwrap();
            assert_eq!((ticket.number, ticket.claim, ticket.alien), (42, Claim::MUTEX, false));
        }
    }

    #[test]
    fn every_clients_contenders_are_read_and_strangers_are_not() {
        for (node, expected) in [
            ("_c_fb230995-c2bc-4a6c-98b5-6f506fd9afae-lock-0000000007", Some(7)),
            ("_c_9043e340783bca239f63470b2f5c0243-lock-0000000007", Some(7)),
            ("94b6e5cf49364b1f8706ee06e5d07c35__lock__0000000007", Some(7)),
            ("94b6e5cf49364b1f8706ee06e5d07c35__rlock__0000000007", Some(7)),
            ("lock-0000000007", Some(7)),
            ("lock--000000003", Some(-3)),
            ("lock--2147483648", Some(-2_147_483_648)),
            ("lock-2147483647", Some(2_147_483_647)),
            ("lock-7", None),
            ("lock-00000000007", None),
            ("lock-000000000x", None),
            ("lock-", None),
            ("x-144-0000000007", None),
            ("0000000007", None),
            ("_c_fb230995-c2bc-4a6c-98b5-6f506fd9afae-latch-0000000007", None),
            ("é", None),
        ] {
            assert_eq!(number(node), expected, "{node}");
        }
    }

    #[test]
    fn another_kind_of_lock_is_distinguished() {
        let read = |node| dialect("curator").mutex().read(node, "").unwrap();
        let reader = read("_c_fb230995-c2bc-4a6c-98b5-6f506fd9afae-__READ__0000000001");
        let writer = read("_c_fb230995-c2bc-4a6c-98b5-6f506fd9afae-__WRIT__0000000001");
        assert_eq!(
            (reader.claim, reader.alien, writer.claim, writer.alien),
            (Claim::READER, true, Claim::WRITER, true)
        );
    }

    #[test]
    fn under_one_parent_keys_that_contain_each_other_are_distinguished() {
        let read = |node, key| dialect("shared").mutex().read(node, key).is_some();
        assert!(read("lock0000000001", "lock"));
        assert!(read("_c_9043e340783bca239f63470b2f5c0243-job0000000001", "job"));
        assert!(read("_c_9043e340783bca239f63470b2f5c0243-my-job0000000001", "my-job"));
        for (node, key) in [
            ("_c_9043e340783bca239f63470b2f5c0243-my-job0000000001", "job"),
            ("_c_9043e340783bca239f63470b2f5c0243-job0000000001", "jo"),
            ("lock10000000001", "lock"),
            ("_c_9043-job0000000001", "job"),
        ] {
            assert!(!read(node, key), "{node} {key}");
        }
        assert_eq!(dialect("shared").mutex().key("lock10000000001"), Some("lock1"));
    }

    #[test]
    fn requests_are_written_injectively() {
        let other = RequestId { client: ID.client, number: 6 };
        for dialect in &DIALECTS {
            let prefix = |id| dialect.mutex().prefix(id, Claim::MUTEX, "a");
            assert_ne!(prefix(ID), prefix(other));
        }
        assert_ne!(request_of("lock-0000000001"), request_of("lock-0000000002"));
    }

    #[test]
    fn segments_that_another_client_would_wait_for_are_known() {
        for segment in ["-x", " x", "!", ".x", "0", "00", "0000000005", "block-", "lock-0", "lock-!"] {
            assert!(disturbs_curator(segment), "{segment:?}");
        }
        for segment in ["x", "1", "0042", "2026-01-01", "lock", "lock-a", "Job", "é", "_x"] {
            assert!(!disturbs_curator(segment), "{segment:?}");
        }
        assert!(looks_like_a_contender("a__lock__0000000001") && !looks_like_a_contender("a__lock__1"));
    }

    fn permits(weight: u32, capacity: u32) -> Claim {
        Claim::new(weight, capacity).unwrap()
    }

    #[test]
    fn readers_writers_and_permits_are_named_as_each_family_names_them() {
        for (name, claim, expected) in [
            ("curator", Claim::READER, "_c_b0000000-0000-0005-0123-456789abcdef-__READ__"),
            ("curator", Claim::WRITER, "_c_b0000000-0000-0005-0123-456789abcdef-__WRIT__"),
            ("kazoo", Claim::READER, "b0000000000000050123456789abcdef__rlock__"),
            ("kazoo", Claim::WRITER, "b0000000000000050123456789abcdef__lock__"),
            ("curator", permits(2, 5), "_c_c0000000000000050123456789abcdef-__PERM__2of5__"),
            ("kazoo", permits(2, 5), "_c_c0000000000000050123456789abcdef-__PERM__2of5__"),
        ] {
            let layout = dialect(name).layout_for(claim).unwrap();
            let prefix = layout.prefix(ID, claim, "");
            assert_eq!(prefix, expected);
            let node = numbered(prefix, 7);
            assert_eq!(layout.read(&node, ""), Some(QueueNode { number: 7, claim, alien: false }));
            assert_eq!(request_of(&node), ID);
            assert_eq!(dialect(name).layout_of(&[node]).kind(), Kind::of(claim));
        }
        assert!(dialect("shared").layout_for(Claim::READER).is_none());
        assert!(dialect("shared").layout_for(permits(1, 2)).is_none());
        assert!(dialect("curator").layout_for(permits(2, Claim::UNBOUNDED)).is_none());
    }

    #[test]
    fn another_kind_is_alien_and_kazoos_names_are_distinguished_by_our_ids() {
        let ours = |claim: Claim| {
            let layout = dialect("kazoo").layout_for(claim).unwrap();
            numbered(layout.prefix(ID, claim, ""), 7)
        };
        let kazoo = "94b6e5cf49364b1f8706ee06e5d07c35__lock__0000000007".to_owned();
        let seen = |mine: Claim, node: &str| {
            let ticket = dialect("kazoo").layout_for(mine).unwrap().read(node, "").unwrap();
            (ticket.claim, ticket.alien)
        };
        let (mutex, reader, writer, permit) = (Claim::MUTEX, Claim::READER, Claim::WRITER, permits(2, 5));
        for (mine, theirs, alien) in [
            (mutex, mutex, false),
            (mutex, writer, true),
            (mutex, reader, true),
            (mutex, permit, true),
            (reader, mutex, true),
            (reader, writer, false),
            (writer, reader, false),
            (writer, permit, true),
            (permit, mutex, true),
            (permit, reader, true),
            (permit, writer, true),
            (permit, permits(1, 3), false),
        ] {
            assert_eq!(seen(mine, &ours(theirs)), (theirs, alien), "{mine} {theirs}");
        }
        assert_eq!(seen(mutex, &kazoo), (mutex, false));
        assert_eq!(seen(reader, &kazoo), (writer, false));
        assert_eq!(seen(permit, &kazoo), (mutex, true));
        let reads = |nodes: &[String]| dialect("kazoo").layout_of(nodes).kind();
        assert_eq!(reads(std::slice::from_ref(&kazoo)), Kind::Mutex);
        assert_eq!(reads(&[kazoo.clone(), kazoo.replace("__lock__", "__rlock__")]), Kind::ReadWrite);
        assert_eq!(reads(&[kazoo, ours(mutex)]), Kind::Mutex);
    }

    #[test]
    fn a_node_that_only_resembles_a_permit_is_a_stranger() {
        let read = |claim: &str| {
            let node = format!("_c_9043e340783bca239f63470b2f5c0243-__PERM__{claim}__0000000007");
            dialect("curator").layout_for(permits(1, 2)).unwrap().read(&node, "").map(|ticket| ticket.claim)
        };
        assert_eq!(read("2of5"), Some(permits(2, 5)));
        assert_eq!(read("4294967294of4294967294"), Some(permits(u32::MAX - 1, u32::MAX - 1)));
        for claim in
            ["", "2", "of5", "2of", "0of5", "6of5", "1of1", "02of5", "+2of5", "2of05", "1of4294967295", "2 of 5"]
        {
            assert_eq!(read(claim), None, "{claim}");
        }
    }
}
