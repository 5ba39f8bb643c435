//! Which node names a dialect writes and understands: data, and the few functions that read it.

use std::fmt::Write as _;

use crate::queue::Claim;
use crate::store::RequestId;

/// How clients of one family name the nodes of their locks, by kind of lock.
#[derive(Debug)]
pub(super) struct Dialect {
    /// The value of the URL option `dialect`.
    pub(super) name: &'static str,
    /// What the capability calls the layout.
    pub(super) layout: &'static str,
    /// Whether the nodes of all locks are children of one node.
    pub(super) one_parent: bool,
    mutex: Layout,
    read_write: Option<Layout>,
    semaphore: Option<Layout>,
}

/// The node names of one kind of lock: ours are `before` + request id + `after` (or the name of the lock) + number.
#[derive(Debug)]
pub(super) struct Layout {
    before: &'static str,
    id: IdForm,
    after: After,
    /// Who else is in the queue.
    marks: &'static [Mark],
}

#[derive(Debug, Clone, Copy)]
enum IdForm {
    /// `a0000000-0000-0001-…`: 36 characters.
    Dashed,
    /// 32 hexadecimal digits.
    Plain,
}

#[derive(Debug, Clone, Copy)]
enum After {
    Text(&'static str),
    /// `-` and the name of the lock: many locks share one parent.
    Key,
}

/// What stands before the number tells who a node belongs to.
#[derive(Debug)]
struct Mark {
    text: &'static str,
    claim: Claim,
    /// Another kind of lock altogether: ahead of us, it is a conflict.
    alien: bool,
}

const fn mark(text: &'static str, claim: Claim, alien: bool) -> Mark {
    Mark { text, claim, alien }
}

/// All of these draw their numbers from one counter, so waiting for whoever has a smaller one deadlocks with nobody.
const MUTEX_MARKS: &[Mark] = &[
    mark("lock-", Claim::MUTEX, false),
    mark("__lock__", Claim::MUTEX, false),
    mark("__rlock__", Claim::READER, false),
    mark("__READ__", Claim::READER, true),
    mark("__WRIT__", Claim::WRITER, true),
];

/// Every dialect; the first one is the default.
pub(super) static DIALECTS: [Dialect; 3] = [
    Dialect {
        name: "curator",
        layout: "_c_<id>-lock-<number> under a node of its own, as Curator's mutex",
        one_parent: false,
        mutex: Layout { before: "_c_", id: IdForm::Dashed, after: After::Text("-lock-"), marks: MUTEX_MARKS },
        read_write: None,
        semaphore: None,
    },
    Dialect {
        name: "kazoo",
        layout: "<id>__lock__<number> under a node of its own, as kazoo's lock",
        one_parent: false,
        mutex: Layout { before: "", id: IdForm::Plain, after: After::Text("__lock__"), marks: MUTEX_MARKS },
        read_write: None,
        semaphore: None,
    },
    Dialect {
        name: "shared",
        layout: "_c_<id>-<name><number> under one node for all locks",
        one_parent: true,
        mutex: Layout { before: "_c_", id: IdForm::Plain, after: After::Key, marks: &[] },
        read_write: None,
        semaphore: None,
    },
];

/// The highest number that is used: clients disagree about what comes after 2^31 - 1, so we stop a million before.
pub(super) const NUMBER_LIMIT: i64 = i32::MAX as i64 - 1_000_000;

impl Dialect {
    /// The layout for `claim`; `None` where this release knows none.
    pub(super) fn layout_for(&self, claim: Claim) -> Option<&Layout> {
        if claim == Claim::MUTEX {
            Some(&self.mutex)
        } else if claim.is_reader() || claim == Claim::WRITER {
            self.read_write.as_ref()
        } else {
            self.semaphore.as_ref()
        }
    }

    /// The layout that a queue is read with.
    pub(super) fn mutex(&self) -> &Layout {
        &self.mutex
    }
}

/// A node that is in the queue, or ahead of it in another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket {
    /// What the server appended when the node was created. Negative past the end of the counter.
    pub(super) number: i64,
    pub(super) claim: Claim,
    /// It belongs to another kind of lock.
    pub(super) alien: bool,
}

impl Layout {
    /// What our node for `id` is called, up to the number.
    pub(super) fn prefix(&self, id: RequestId, key: &str) -> String {
        let mut name = String::from(self.before);
        // Writing to a string does not fail.
        let _ = match self.id {
            IdForm::Dashed => write_dashed(&mut name, id),
            IdForm::Plain => write!(name, "{:032x}", to_bits(id)),
        };
        match self.after {
            After::Text(text) => name.push_str(text),
            After::Key => {
                name.push('-');
                name.push_str(key);
            }
        }
        name
    }

    /// What `node` is in the queue of `key`; `None` for a stranger.
    pub(super) fn read(&self, node: &str, key: &str) -> Option<Ticket> {
        numbers(node).find_map(|(head, number)| match self.after {
            After::Text(_) => {
                let mark = self.marks.iter().find(|mark| head.ends_with(mark.text))?;
                Some(Ticket { number, claim: mark.claim, alien: mark.alien })
            }
            After::Key => {
                let is_of_key = head == key || key_of(head) == Some(key);
                is_of_key.then_some(Ticket { number, claim: Claim::MUTEX, alien: false })
            }
        })
    }

    /// The lock that `node` belongs to, where many share one parent.
    pub(super) fn key<'n>(&self, node: &'n str) -> Option<&'n str> {
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

/// The ways to take `name` for a head and a number as the server writes it: ten characters, sign included, or eleven.
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

/// Whether Curator, which compares what follows the last `lock-` (or the whole name) as text, would wait for such a
/// child from its first acquire on, or count it as a contender.
pub(super) fn disturbs_curator(segment: &str) -> bool {
    let key = segment.rsplit_once("lock-").map_or(segment, |(_, key)| key);
    key < "0000000000" || numbers(key).any(|(head, _)| head.is_empty())
}

/// Whether some client's queue would count a child of this name.
pub(super) fn looks_like_a_contender(segment: &str) -> bool {
    numbers(segment).any(|(head, _)| MUTEX_MARKS.iter().any(|mark| head.ends_with(mark.text)))
}

/// Set in the first digit of every id of ours, so that no name begins with digits that Curator would sort ahead.
const OURS: u64 = 0xa << 60;

/// The request as the 128 bits of a uuid. Request numbers beyond 2^60 do not occur.
fn to_bits(id: RequestId) -> u128 {
    u128::from(OURS | id.number) << 64 | u128::from(id.client)
}

fn write_dashed(name: &mut String, id: RequestId) -> std::fmt::Result {
    let bits = format!("{:032x}", to_bits(id));
    write!(name, "{}-{}-{}-{}-{}", &bits[..8], &bits[8..12], &bits[12..16], &bits[16..20], &bits[20..])
}

/// The request that `node` names. Every contender of others gets a stable one, made up from its name if it has no id.
pub(super) fn request_of(node: &str) -> RequestId {
    let id = node.strip_prefix("_c_").unwrap_or(node);
    if let Some((bits, _)) = leading_id(id) {
        let (high, low) = ((bits >> 64) as u64, bits as u64);
        let number = if high & (0xf << 60) == OURS { high & !(0xf << 60) } else { high };
        return RequestId { client: low, number };
    }
    let hash = node
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let number = numbers(node).next().map_or(0, |(_, number)| number.unsigned_abs());
    RequestId { client: hash, number }
}

/// 32 hexadecimal digits at the start of `text`, dashed as a uuid or not, and what follows them.
fn leading_id(text: &str) -> Option<(u128, &str)> {
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
    use super::*;

    const ID: RequestId = RequestId { client: 0x0123_4567_89ab_cdef, number: 5 };

    fn dialect(name: &str) -> &'static Dialect {
        DIALECTS.iter().find(|dialect| dialect.name == name).unwrap()
    }

    fn number(node: &str) -> Option<i64> {
        dialect("curator").mutex.read(node, "").map(|ticket| ticket.number)
    }

    #[test]
    fn our_nodes_are_named_as_each_family_names_them() {
        let prefix = |name| dialect(name).mutex.prefix(ID, "job");
        assert_eq!(prefix("curator"), "_c_a0000000-0000-0005-0123-456789abcdef-lock-");
        assert_eq!(prefix("kazoo"), "a0000000000000050123456789abcdef__lock__");
        assert_eq!(prefix("shared"), "_c_a0000000000000050123456789abcdef-job");
        for dialect in &DIALECTS {
            let prefix = dialect.mutex.prefix(ID, "job");
            let node = numbered(prefix.clone(), 42);
            assert_eq!(own_number(&node, &prefix), Some(42));
            assert_eq!(own_number(&format!("{prefix}00000000421"), &prefix), None);
            assert_eq!(request_of(&node), ID);
            let ticket = dialect.mutex.read(&node, "job").unwrap();
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
    fn another_kind_of_lock_is_told_apart() {
        let read = |node| dialect("curator").mutex.read(node, "").unwrap();
        let reader = read("_c_fb230995-c2bc-4a6c-98b5-6f506fd9afae-__READ__0000000001");
        let writer = read("_c_fb230995-c2bc-4a6c-98b5-6f506fd9afae-__WRIT__0000000001");
        assert_eq!(
            (reader.claim, reader.alien, writer.claim, writer.alien),
            (Claim::READER, true, Claim::WRITER, true)
        );
    }

    #[test]
    fn under_one_parent_keys_that_contain_each_other_are_told_apart() {
        let read = |node, key| dialect("shared").mutex.read(node, key).is_some();
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
        assert_eq!(dialect("shared").mutex.key("lock10000000001"), Some("lock1"));
    }

    #[test]
    fn requests_are_written_injectively() {
        let other = RequestId { client: ID.client, number: 6 };
        for dialect in &DIALECTS {
            assert_ne!(dialect.mutex.prefix(ID, "a"), dialect.mutex.prefix(other, "a"));
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
}
