//! Tickets: a place in a queue is one symbolic link, whose *name* is everything the queue rule needs.
//!
//! `{name}.{seq}.{claim}.{session}.{request}`, parsed from the right. Creating a link is one system call and carries
//! its content, so no crash and no full disk can leave half a ticket. The *target* holds what only people want to see.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::kit::bucket::{bucket_of, digest};
use crate::name::Name;
use crate::queue::Claim;
use crate::store::clean::cut;

/// The most bytes of an encoded name that stand in a file name: 255 less the other fields at their longest.
const INLINE_MAX: usize = 180;
/// The longest target: XFS takes 1024 bytes.
const TARGET_MAX: usize = 1000;
/// The mark before the digest of a long name; no encoded name holds it.
const DIGEST_MARK: char = '~';

/// A name as the store writes it, and the bucket it falls into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EncodedName {
    /// The encoded name, the first field of its tickets.
    pub(super) encoded: Arc<str>,
    /// The number of its bucket, below [`BUCKETS`](crate::kit::bucket::BUCKETS).
    pub(super) bucket: u16,
}

impl EncodedName {
    pub(super) fn of(name: &Name) -> Self {
        let bucket = bucket_of(name);
        let encoded = encode(name.as_str());
        if encoded.len() <= INLINE_MAX {
            return Self { encoded: encoded.into(), bucket };
        }
        let mut hashed = String::with_capacity(65);
        hashed.push(DIGEST_MARK);
        for byte in digest(name.as_str()) {
            let _ = write!(hashed, "{byte:02x}");
        }
        Self { encoded: hashed.into(), bucket }
    }

    /// Whether the encoded form contains the whole name.
    pub(super) fn is_inline(&self) -> bool {
        !self.encoded.starts_with(DIGEST_MARK)
    }
}

/// Percent-encodes everything but `[A-Za-z0-9_-]` and dots that are not the first character.
fn encode(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for (index, byte) in name.bytes().enumerate() {
        let plain = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') || (byte == b'.' && index > 0);
        if plain {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// The name that [`encode`] encoded; `None` for a text that `encode` never makes.
pub(crate) fn decode(encoded: &str) -> Option<Name> {
    let decoded = percent_encoding::percent_decode_str(encoded).decode_utf8().ok()?;
    let name = Name::new(decoded).ok()?;
    (encode(name.as_str()) == encoded).then_some(name)
}

/// The order of tickets, and the permanent identity of one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    /// The number drawn at the entry: the order in the queue, and the grant.
    pub(super) seq: u64,
    /// The session of the place.
    pub(super) session: u64,
    /// The number of the request within its client.
    pub(super) number: u64,
}

/// A ticket: its owner, its place in the queue, and its claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Ticket {
    pub(super) key: Key,
    pub(super) claim: Claim,
}

impl Ticket {
    /// The file name of this ticket in the queue of `encoded`.
    pub(crate) fn file_name(&self, encoded: &str) -> String {
        let mut file = String::with_capacity(encoded.len() + 56);
        let Key { seq, session, number } = self.key;
        let _ = write!(file, "{encoded}.{seq:014x}.");
        let _ = match self.claim {
            Claim::MUTEX => file.write_char('m'),
            Claim::READER => file.write_char('r'),
            Claim::WRITER => file.write_char('w'),
            claim => write!(file, "p{}-{}", claim.weight(), claim.capacity()),
        };
        let _ = write!(file, ".{session:016x}.{number:x}");
        file
    }

    /// Splits a file name into the encoded name and the ticket; `None` for a file that is no ticket.
    pub(crate) fn parse(file: &str) -> Option<(&str, Self)> {
        let mut fields = file.rsplitn(5, '.');
        let number = parse_hex(fields.next()?, 1)?;
        let session = parse_hex(fields.next()?, 16)?;
        let claim = parse_claim(fields.next()?)?;
        let seq = parse_hex(fields.next()?, 14)?;
        let encoded = fields.next()?;
        Some((encoded, Self { key: Key { seq, session, number }, claim }))
    }

    /// Whether the holder may replace the ticket by a lighter one, which takes over the same place.
    pub(super) fn can_lighten(&self) -> bool {
        self.claim.weight() > 1
    }
}

fn parse_claim(field: &str) -> Option<Claim> {
    match field {
        "m" => Some(Claim::MUTEX),
        "r" => Some(Claim::READER),
        "w" => Some(Claim::WRITER),
        _ => {
            let (weight, capacity) = field.strip_prefix('p')?.split_once('-')?;
            let claim = Claim::new(parse_decimal(weight)?, parse_decimal(capacity)?).ok()?;
            // Each claim has a single text: under another file name, a ticket would not be found.
            (![Claim::MUTEX, Claim::READER, Claim::WRITER].contains(&claim)).then_some(claim)
        }
    }
}

fn parse_decimal(field: &str) -> Option<u32> {
    let canonical = field.bytes().all(|byte| byte.is_ascii_digit()) && !field.starts_with('0');
    canonical.then(|| field.parse().ok()).flatten()
}

/// Reads a number in at least `width` hexadecimal digits, exactly as this store writes it.
pub(super) fn parse_hex(field: &str, width: usize) -> Option<u64> {
    let is_canonical = field.len() == width || (field.len() > width && !field.starts_with('0'));
    let is_hex = field.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_canonical && is_hex { u64::from_str_radix(field, 16).ok() } else { None }
}

/// A ticket's text for people: the target of the link, `key value` lines after the format's number, the purpose last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TicketText {
    /// The name, when the file name holds only its digest.
    pub(super) name: Option<String>,
    /// The purpose of the lock.
    pub(super) purpose: Option<String>,
}

impl TicketText {
    /// The target. A purpose that does not fit behind a long name is cut, and ends in `…` then.
    pub(super) fn encode(&self) -> String {
        let mut target = String::from("1");
        if let Some(name) = &self.name {
            let _ = write!(target, "\nname {name}");
        }
        if let Some(purpose) = &self.purpose {
            target.push_str("\npurpose ");
            let kept = cut(purpose, TARGET_MAX - target.len() - '…'.len_utf8());
            target.push_str(kept);
            target.extend((kept.len() < purpose.len()).then_some('…'));
        }
        target
    }

    /// Reads a target; other fields, such as `lease_ms` of earlier releases, are skipped.
    pub(crate) fn decode(target: &str) -> Self {
        let (fields, purpose) = target
            .split_once("\npurpose ")
            .map_or((target, None), |(fields, purpose)| (fields, Some(purpose.to_owned())));
        let name = fields.split('\n').find_map(|line| line.strip_prefix("name ")).map(str::to_owned);
        Self { name, purpose }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names() -> impl Strategy<Value = Name> {
        "[a-zA-Z0-9_./%~é日 -]{1,60}".prop_filter_map("not a name", |text| Name::new(text).ok())
    }

    fn claims() -> impl Strategy<Value = Claim> {
        (1..=u32::MAX, 1..=u32::MAX).prop_map(|(a, b)| Claim::new(a.min(b), a.max(b)).unwrap())
    }

    proptest! {
        #[test]
        fn encoded_names_are_injective(a in names(), b in names()) {
            prop_assert_eq!(a == b, EncodedName::of(&a).encoded == EncodedName::of(&b).encoded);
            let slot = EncodedName::of(&a);
            prop_assert!(!slot.encoded.contains('/') && !slot.encoded.starts_with('.') && slot.bucket < crate::kit::bucket::BUCKETS);
            if slot.is_inline() {
                prop_assert_eq!(decode(&slot.encoded), Some(a));
            }
        }

        #[test]
        fn a_ticket_is_read_back_from_its_file_name(
            name in names(), seq in 0..1u64 << 51, session: u64, number: u64, claim in claims()
        ) {
            let slot = EncodedName::of(&name);
            let ticket = Ticket { key: Key { seq, session, number }, claim };
            let file = ticket.file_name(&slot.encoded);
            prop_assert!(file.len() <= 255);
            prop_assert_eq!(Ticket::parse(&file), Some((&*slot.encoded, ticket)));
        }

        #[test]
        fn a_file_that_is_no_ticket_is_not_taken_for_one(file in "[a-z0-9A-Z.%-]{0,60}") {
            if let Some((encoded, ticket)) = Ticket::parse(&file) {
                prop_assert_eq!(ticket.file_name(encoded), file);
            }
        }

        #[test]
        fn a_note_fits_a_link_and_is_read_back(purpose in "\\PC{0,100}") {
            let note = TicketText { name: None, purpose: Some(purpose) };
            let target = note.encode();
            prop_assert!(target.len() <= TARGET_MAX);
            prop_assert_eq!(&TicketText::decode(&target), &note);
            prop_assert_eq!(TicketText::decode(&target.replacen('1', "1\nlease_ms 1500", 1)), note);
        }
    }

    #[test]
    fn a_ticket_has_one_file_name() {
        for claim in ["p1-1", "p1-4294967295", "p4294967295-4294967295", "p01-2", "p+1-2", "p3-2", "p0-1"] {
            assert_eq!(Ticket::parse(&format!("job.0000000000002a.{claim}.00000000deadbeef.1")), None, "{claim}");
        }
    }

    #[test]
    fn the_longest_ticket_fits_a_file_name() {
        for length in [INLINE_MAX, INLINE_MAX + 1, 512] {
            let slot = EncodedName::of(&Name::new("n".repeat(length)).unwrap());
            let key = Key { seq: u64::MAX, session: u64::MAX, number: u64::MAX };
            let claim = Claim::new(u32::MAX - 1, u32::MAX).unwrap();
            assert!(Ticket { key, claim }.file_name(&slot.encoded).len() <= 255);
            assert_eq!(slot.is_inline(), length <= INLINE_MAX);
        }
    }

    #[test]
    fn a_purpose_that_does_not_fit_is_cut_visibly() {
        let note = TicketText { name: Some("n".repeat(512)), purpose: Some("%".repeat(512)) };
        let target = note.encode();
        assert!(target.len() <= TARGET_MAX && target.ends_with('…'));
        assert_eq!(TicketText::decode(&target).name, note.name);
    }
}
