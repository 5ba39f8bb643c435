//! The data that we write into a node for people. Others' data is read leniently.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::kit::record::Identity;
use crate::queue::Claim;
use crate::store::clean::cut;
use crate::store::{Entry, Owner};

/// The longest data of a node, in bytes.
const LIMIT: usize = 1024;

/// The version of [`Json`]; unknown ones are read as far as they can be.
const VERSION: u32 = 1;

/// The content of a node's data.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NodeData {
    pub(super) owner: Option<Owner>,
    pub(super) purpose: Option<Arc<str>>,
    /// The grant, where it is not the node's own transaction.
    pub(super) grant: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct Json<'a> {
    fencelock: u32,
    #[serde(flatten)]
    owner: Identity<'a>,
    claim: [u32; 2],
    /// Written into the node of a granted permit, for the waiter behind it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    granted: bool,
    /// The grant of a lighter claim, whose node is younger. A number as text: JSON's are too small.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    grant: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    purpose: Option<Cow<'a, str>>,
}

/// The data of our own node: JSON of at most 1 KiB. A purpose that does not fit is cut, and ends in `…`.
pub(super) fn write(owner: &Owner, entry: &Entry) -> Vec<u8> {
    encode(owner, entry, entry.claim, false, None)
}

/// The data of our node for a permit that is granted.
pub(super) fn granted(owner: &Owner, entry: &Entry) -> Vec<u8> {
    encode(owner, entry, entry.claim, true, None)
}

/// The data of our node for a place that was granted by the transaction `grant` and has become lighter.
pub(super) fn lighter(owner: &Owner, entry: &Entry, claim: Claim, grant: u64) -> Vec<u8> {
    encode(owner, entry, claim, false, Some(grant))
}

fn encode(owner: &Owner, entry: &Entry, claim: Claim, granted: bool, grant: Option<u64>) -> Vec<u8> {
    let grant = grant.map(|grant| grant.to_string());
    let encode = |purpose: Option<&str>| {
        let note = Json {
            fencelock: VERSION,
            owner: Identity::at(owner, cut(&owner.host, 255)),
            claim: [claim.weight(), claim.capacity()],
            granted,
            grant: grant.as_deref().map(Into::into),
            purpose: purpose.map(Into::into),
        };
        serde_json::to_vec(&note).unwrap_or_default()
    };
    let full = encode(entry.purpose.as_deref());
    if full.len() <= LIMIT {
        return full;
    }
    let purpose = entry.purpose.as_deref().unwrap_or_default();
    let mut keep = purpose.len();
    loop {
        keep = keep.saturating_sub(32);
        let note = encode(Some(&format!("{}…", cut(purpose, keep))));
        if note.len() <= LIMIT || keep == 0 {
            return note;
        }
    }
}

/// Whether a fencelock wrote `data`.
pub(super) fn is_ours(data: &[u8]) -> bool {
    serde_json::from_slice::<Json<'_>>(data).is_ok()
}

/// Reads the data of any client's node: ours in full, Curator's address as the host, any other text as the purpose.
pub(super) fn read(data: &[u8]) -> NodeData {
    let Ok(text) = std::str::from_utf8(data) else { return NodeData::default() };
    if let Ok(note) = serde_json::from_str::<Json<'_>>(text)
        && let Some(owner) = note.owner.owner()
    {
        let purpose = note.purpose.map(|purpose| Arc::from(&*purpose));
        return NodeData { owner: Some(owner), purpose, grant: note.grant.and_then(|grant| grant.parse().ok()) };
    }
    if text.parse::<IpAddr>().is_ok() {
        return NodeData {
            owner: Some(Owner { client: 0, host: text.to_owned(), pid: 0 }),
            purpose: None,
            grant: None,
        };
    }
    let shown: String = cut(text, Entry::MAX_PURPOSE).chars().filter(|c| !c.is_control()).collect();
    NodeData { purpose: (!shown.is_empty()).then(|| shown.into()), ..NodeData::default() }
}

/// Takes a node's text as the name of its maker, and not as its purpose: kazoo calls the text the identifier.
pub(super) fn named(node: NodeData) -> NodeData {
    match node {
        NodeData { owner: None, purpose: Some(name), grant } => {
            let owner = Owner { client: 0, host: name.to_string(), pid: 0 };
            NodeData { owner: Some(owner), purpose: None, grant }
        }
        node => node,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Name;
    use crate::store::RequestId;

    fn entry(purpose: Option<&str>) -> Entry {
        let id = RequestId { client: 1, number: 1 };
        let name = Name::new("job").unwrap();
        Entry { name, claim: Claim::MUTEX, id, wait: true, purpose: purpose.map(Arc::from) }
    }

    fn owner(host: &str) -> Owner {
        Owner { client: 0xabc, host: host.to_owned(), pid: if host.is_empty() { 0 } else { 7 } }
    }

    #[test]
    fn node_data_is_read_back_and_an_opaque_owner_shows_neither_host_nor_pid() {
        for host in ["db-1", "", "ü\"\\"] {
            let data = write(&owner(host), &entry(Some("nightly \"import\"\n")));
            let node = NodeData { owner: Some(owner(host)), purpose: Some("nightly \"import\"\n".into()), grant: None };
            assert_eq!(read(&data), node);
        }
        let opaque = String::from_utf8(write(&owner(""), &entry(None))).unwrap();
        assert_eq!(opaque, r#"{"fencelock":1,"client":"0000000000000abc","claim":[1,1]}"#);
    }

    #[test]
    fn no_data_is_longer_than_its_limit() {
        for purpose in ["\u{1}".repeat(512), "é\"\n".repeat(128), "日".repeat(170)] {
            for host in ["h".repeat(64), "\u{1}".repeat(255)] {
                let data = write(&owner(&host), &entry(Some(&purpose)));
                let node = read(&data).purpose.unwrap();
                assert!(node.starts_with(cut(&purpose, 0)) && (node.ends_with('…') || *node == *purpose), "{node}");
                assert!(data.len() <= LIMIT + 1024 * usize::from(host.len() > 64), "{}", data.len());
            }
        }
    }

    #[test]
    fn data_of_other_clients_is_shown_as_far_as_that_is_text() {
        let host = |host: &str| Owner { client: 0, host: host.to_owned(), pid: 0 };
        assert_eq!(read(b"10.0.0.1").owner, Some(host("10.0.0.1")));
        assert_eq!(read(b"::1").owner, Some(host("::1")));
        assert_eq!(read(b"b'py'\x07").purpose.as_deref(), Some("b'py'"));
        for data in [&b""[..], &[0x12, 0x34], &[0xff, 0xfe], b"\x01\x02"] {
            assert_eq!(
                read(data),
                NodeData { purpose: if data == [0x12, 0x34] { Some("4".into()) } else { None }, ..NodeData::default() }
            );
        }
        assert_eq!(named(read(b"worker 7")), NodeData { owner: Some(host("worker 7")), ..NodeData::default() });
        assert_eq!(read(br#"{"fencelock":9,"client":"zz"}"#).owner, None);
    }

    #[test]
    fn the_limit_that_earlier_releases_wrote_is_passed_over() {
        let data = write(&owner("db-1"), &entry(Some("nightly")));
        let earlier =
            String::from_utf8(data.clone()).unwrap().replace(r#","purpose""#, r#","lease_ms":1500,"purpose""#);
        assert!(earlier.contains("lease_ms") && is_ours(earlier.as_bytes()));
        assert_eq!(read(earlier.as_bytes()), read(&data));
    }
}
