//! Notes on locks: a node for each version of a note, apart from the nodes of the locks.
//!
//! A transaction checks the holder's own node, creates the version and deletes the earlier versions: so it counts only while the grant is
//! current. A version is never changed. The one with the greatest number is the note. A reader that finds an expired note deletes it.
//!
//! Only writes show ZooKeeper's time, the leader's clock, in the written node. So a read creates, writes and deletes a node in one
//! transaction, which no client sees. The read that follows on the same connection shows everything committed before it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fencelock_zookeeper as wire;
use fencelock_zookeeper::{CreateMode, Done, ErrorKind as Wire, Operation};
use serde::{Deserialize, Serialize};

use super::breaks;
use super::config::Config;
use super::inspect::or_nothing;
use super::path::{LockPath, NOW};
use crate::error::Result;
use crate::kit::record::{self, Identity};
use crate::name::Name;
use crate::store::{Note, NoteOrder};
use crate::token::FencingToken;

/// The most tries to write a note while other clients write it.
const ROUNDS: usize = 64;

const VERSION: u32 = 1;

/// The first line of a version; the value follows.
#[derive(Serialize, Deserialize)]
struct Head<'a> {
    fencelock: u32,
    /// As text: many programs keep numbers of JSON in 53 bits.
    token: Option<String>,
    /// How long the note is kept, in milliseconds; 0 for no end.
    ttl_ms: u64,
    #[serde(borrow)]
    owner: Identity<'a>,
}

/// The content of the node; `None` for an order to delete.
pub(super) fn content(order: &NoteOrder) -> Result<Option<Vec<u8>>> {
    let Some(value) = &order.value else { return Ok(None) };
    let head = Head {
        fencelock: VERSION,
        token: order.grant.token.map(|token| token.get().to_string()),
        ttl_ms: order.ttl.map_or(0, |ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)),
        owner: Identity::of(&order.owner),
    };
    Ok(Some([record::text("note", &head)?.as_bytes(), b"\n", value].concat()))
}

/// Makes a version with this content, or deletes the note, if the grant of `order` is current. Returns whether the grant was current.
pub(super) async fn write(
    client: &wire::Client,
    config: &Config,
    home: &LockPath<'_>,
    order: &NoteOrder,
    content: Option<&[u8]>,
) -> wire::Result<bool> {
    let place = &order.grant.place;
    let directory = config.kept("notes", &place.name);
    // A path that is never used again, even if the servers remove the directory and its numbers begin anew.
    let path = format!("{directory}/{:016x}-", getrandom::u64().unwrap_or_default());
    let acl = config.node_acl();
    let mut rounds = 0;
    loop {
        let Some(granted) = breaks::grant(client, config, home, place.request, order.grant.token).await? else {
            return Ok(false);
        };
        let Some(holder) = granted.nodes.last().map(|node| home.child(node)) else { return Ok(false) };
        let earlier = versions(client, &directory).await?;
        let mut steps = vec![Operation::check(&holder, None)];
        steps.extend(content.map(|content| Operation::create(&path, content, CreateMode::PersistentSequential, &acl)));
        steps.extend(earlier.iter().map(|version| Operation::delete(version, None)));
        match client.multi(&steps).await {
            Ok(_) => return Ok(true),
            // The holder's node has gone or was replaced by a lighter one, nothing was noted yet, or a version has gone.
            Err(error) if error.kind() == Wire::NoNode && rounds < ROUNDS => {
                if content.is_some() && error.refused_operation() == Some(1) {
                    breaks::make_parents(client, config, &path).await?;
                }
                rounds += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// The content of the note and when it was written, in ms since 1970; and the time of the store.
pub(super) async fn read(
    client: &wire::Client,
    config: &Config,
    name: &Name,
) -> wire::Result<(Option<(Vec<u8>, i64)>, i64)> {
    let directory = config.kept("notes", name);
    let now_ms = now(client, config).await?;
    let mut rounds = 0;
    loop {
        let versions = versions(client, &directory).await?;
        let Some(latest) = versions.last() else { return Ok((None, now_ms)) };
        match client.get_data(latest).await {
            Ok((content, stat)) if has_expired(&content, stat.ctime_ms, now_ms) => {
                // All or none: otherwise an older version would be the note again. A client without the right to delete leaves the old
                // versions to other clients.
                let steps: Vec<_> = versions.iter().map(|version| Operation::delete(version, None)).collect();
                let _ = client.multi(&steps).await;
                return Ok((None, now_ms));
            }
            Ok((content, stat)) => return Ok((Some((content, stat.ctime_ms)), now_ms)),
            // A later version was written meanwhile.
            Err(error) if error.kind() == Wire::NoNode && rounds < ROUNDS => rounds += 1,
            Err(error) => return Err(error),
        }
    }
}

/// The note of a version with this content; `None` for a version that this release does not understand.
pub(super) fn note_of(content: &[u8], written_ms: i64) -> Option<Note> {
    let (head, value) = parts(content)?;
    let written = time(written_ms)?;
    let expires = (head.ttl_ms != 0).then(|| written + Duration::from_millis(head.ttl_ms));
    let token = match &head.token {
        Some(token) => Some(FencingToken::new(token.parse().ok()?)?),
        None => None,
    };
    Some(Note { value: value.into(), token, owner: head.owner.owner()?, written, expires })
}

pub(super) fn time(ms: i64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(u64::try_from(ms).ok()?))
}

fn parts(content: &[u8]) -> Option<(Head<'_>, &[u8])> {
    let end = content.iter().position(|byte| *byte == b'\n')?;
    let head: Head<'_> = serde_json::from_slice(&content[..end]).ok()?;
    (head.fencelock == VERSION).then_some((head, &content[end + 1..]))
}

fn has_expired(content: &[u8], written_ms: i64, now_ms: i64) -> bool {
    let ttl_ms = parts(content).map_or(0, |(head, _)| i64::try_from(head.ttl_ms).unwrap_or(i64::MAX));
    ttl_ms != 0 && written_ms.saturating_add(ttl_ms) <= now_ms
}

/// The paths of the versions that are there, the latest last.
async fn versions(client: &wire::Client, directory: &str) -> wire::Result<Vec<String>> {
    let (nodes, _) = or_nothing(client.get_children(directory).await)?.unwrap_or_default();
    let number = |node: &str| node.rsplit_once('-')?.1.parse::<i64>().ok();
    let mut nodes: Vec<_> = nodes.iter().filter_map(|node| Some((number(node)?, node))).collect();
    nodes.sort_unstable();
    Ok(nodes.into_iter().map(|(_, node)| format!("{directory}/{node}")).collect())
}

/// The time of the leader, in ms since 1970.
async fn now(client: &wire::Client, config: &Config) -> wire::Result<i64> {
    let path = format!("{}/{NOW}", config.parent);
    let acl = config.node_acl();
    let steps = [
        Operation::create(&path, b"", CreateMode::Persistent, &acl),
        Operation::set_data(&path, b"", None),
        Operation::delete(&path, None),
    ];
    let mut rounds = 0;
    loop {
        match client.multi(&steps).await {
            Ok(done) => {
                let written = done.iter().find_map(|done| match done {
                    Done::DataSet(stat) => Some(stat.mtime_ms),
                    _ => None,
                });
                return Ok(written.unwrap_or_default());
            }
            // No lock was taken below the parent yet.
            Err(error) if error.kind() == Wire::NoNode && rounds < ROUNDS => {
                breaks::make_parents(client, config, &path).await?;
                rounds += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{GrantId, Owner, PlaceId, RequestId};

    #[test]
    fn notes_of_any_bytes_are_read_back_and_other_data_is_refused() {
        let place = PlaceId { name: Name::new("job").unwrap(), request: RequestId { client: 7, number: 1 } };
        let grant = GrantId { place, token: FencingToken::new(1 << 60) };
        let owner = Owner::new(7, "host", 1);
        let order = NoteOrder::new(grant, owner.clone(), Some(b"\n\xff\n"), Some(Duration::from_millis(1500))).unwrap();
        let content = content(&order).unwrap().unwrap();
        assert!(content.starts_with(br#"{"fencelock":1,"token":"1152921504606846976","ttl_ms":1500,"owner":{"#));
        let note = note_of(&content, 1000).unwrap();
        assert_eq!(Some(&note), order.written_at(time(1000).unwrap()).as_ref());
        assert!(!has_expired(&content, 1000, 2499) && has_expired(&content, 1000, 2500));
        for bad in [&b""[..], b"x\n", br#"{"fencelock":1,"token":null,"ttl_ms":0}"#, br#"{"fencelock":2}"#] {
            assert_eq!(note_of(bad, 0), None, "{bad:?}");
        }
    }
}
