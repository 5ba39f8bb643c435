//! Grants broken on purpose, and the record of it: a node for each, apart from the nodes of the locks.
//!
//! The client creates the record before it deletes the grant, so that every break has a record, and deletes the record if the grant was
//! gone already. The record's name follows from the order, so that a repeated order finds its record.

use std::sync::Arc;

use fencelock_zookeeper as wire;
use fencelock_zookeeper::{CreateMode, ErrorKind as Wire};
use futures_util::future;

use super::config::Config;
use super::dialect::Kind;
use super::inspect::{self, or_nothing};
use super::layout::{Layout, request_of};
use super::listing::{Listing, Parent};
use super::path::LockPath;
use super::queue_view::line;
use crate::kit::record::{self, Record, milliseconds};
use crate::name::Name;
use crate::queue::{Admission, admits};
use crate::store::{Break, GrantId, RequestId};
use crate::token::FencingToken;

/// How many records the store keeps of one name.
const KEPT: usize = 100;

/// The most searches for a place: a holder may be replacing its node by a lighter one. Also the most tries to create the parents of a
/// record.
const ROUNDS: usize = 8;

/// How many records are read at once.
const BATCH: usize = 100;

/// Part of the name of every record of a place's breaks.
fn part_of(request: RequestId) -> String {
    format!("-{:016x}-{:x}-", request.client, request.number)
}

/// The node name of a record. Records of one name sort by their time, as text.
fn node_name(order: &Break) -> String {
    let grant = order.token.map_or(0, FencingToken::get);
    format!("{:016x}{}{grant:x}-{:016x}", milliseconds(order.at), part_of(order.place.request), order.by.client)
}

/// Breaks the grant that `order` names, and no later one, with `text` as the record. Returns whether the grant was there, or the
/// same order broke it before.
pub(super) async fn break_grant(
    client: &wire::Client,
    config: &Config,
    home: &LockPath<'_>,
    order: &Break,
    text: &str,
) -> wire::Result<bool> {
    let directory = config.records(&order.place.name);
    let record = format!("{directory}/{}", node_name(order));
    let Some(granted) = grant(client, config, home, order.place.request, order.token).await? else {
        return Ok(client.exists(&record).await?.is_some());
    };
    let mut removed = !make_record(client, config, &record, text).await?;
    let mut nodes = granted.nodes.clone();
    for _round in 0..ROUNDS {
        let paths: Vec<_> = nodes.iter().map(|node| home.child(node)).collect();
        for deleted in future::join_all(paths.iter().map(|path| client.delete(path, None))).await {
            match deleted {
                Ok(()) => removed = true,
                Err(error) if error.kind() == Wire::NoNode => {}
                Err(error) => return Err(error),
            }
        }
        let listing = Listing::synced(client, home.parent()).await?;
        nodes = if listing.parent == granted.parent { granted.among(&listing.children, home.key) } else { Vec::new() };
        if nodes.is_empty() {
            break;
        }
    }
    if removed {
        prune(client, &directory).await;
    } else {
        or_nothing(client.delete(&record, None).await)?;
    }
    Ok(removed)
}

/// The nodes of a grant have the same number and parent. A later grant has another number, even with the same request id: kazoo has one id
/// for all grants of a `Lock` object.
pub(super) struct Granted {
    parent: Parent,
    layout: Layout,
    number: i64,
    request: RequestId,
    /// The node with the token is last, so that a client that repeats a half-done order still finds the grant.
    pub(super) nodes: Vec<String>,
}

impl Granted {
    /// The nodes of the same grant: during a downgrade a holder has two, with one number.
    fn among(&self, children: &[String], key: &str) -> Vec<String> {
        let is_same = |node: &&String| {
            let ticket = self.layout.read(node, key).filter(|ticket| ticket.number == self.number && !ticket.alien);
            // Curator's two nodes have different ids.
            ticket.is_some_and(|_| request_of(node) == self.request || self.layout.kind() == Kind::ReadWrite)
        };
        children.iter().filter(is_same).cloned().collect()
    }
}

/// The grant of this request with this token; `None` when it is not there.
pub(super) async fn grant(
    client: &wire::Client,
    config: &Config,
    home: &LockPath<'_>,
    request: RequestId,
    token: Option<FencingToken>,
) -> wire::Result<Option<Granted>> {
    let Listing { children, parent } = Listing::synced(client, home.parent()).await?;
    let layout = config.dialect.layout_of(&children);
    let (queue, _) = line(layout, home.key, children.clone());
    for (at, (ticket, node)) in queue.iter().enumerate() {
        let ahead = queue[..at].iter().map(|(ticket, _)| ticket.claim);
        if request_of(node) != request || admits(ahead, ticket.claim) != Admission::Admitted {
            continue;
        }
        let read = or_nothing(client.get_data(&home.child(node)).await)?;
        let found = read.and_then(|(data, stat)| inspect::token(&data, &stat));
        if found.is_some() && found == token {
            let mut granted = Granted { parent, layout, number: ticket.number, request, nodes: vec![] };
            granted.nodes = granted.among(&children, home.key);
            granted.nodes.sort_by_key(|other| other == node);
            return Ok(Some(granted));
        }
    }
    Ok(None)
}

/// Makes the record and missing nodes above it; `false` when the record exists.
async fn make_record(client: &wire::Client, config: &Config, path: &str, text: &str) -> wire::Result<bool> {
    let acl = config.node_acl();
    let mut rounds = 0;
    loop {
        match client.create(path, text.as_bytes(), CreateMode::Persistent, &acl).await {
            Ok(_) => return Ok(true),
            Err(error) if error.kind() == Wire::NodeExists => return Ok(false),
            Err(error) if error.kind() == Wire::NoNode && rounds < ROUNDS => rounds += 1,
            Err(error) => return Err(error),
        }
        make_parents(client, config, path).await?;
    }
}

/// Makes missing nodes above `path`, as containers.
pub(super) async fn make_parents(client: &wire::Client, config: &Config, path: &str) -> wire::Result<()> {
    for (end, _) in path.match_indices('/').skip(1) {
        let acl = if end > config.parent.len() { config.node_acl() } else { config.parent_acl() };
        match client.create(&path[..end], b"", CreateMode::Container, &acl).await {
            Err(error) if !matches!(error.kind(), Wire::NodeExists | Wire::NoNode) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Deletes the oldest records beyond the limit. If that fails, the next break does it.
async fn prune(client: &wire::Client, directory: &str) {
    let Ok((mut records, _)) = client.get_children(directory).await else { return };
    if records.len() <= KEPT {
        return;
    }
    records.sort_unstable();
    let paths = records[..records.len() - KEPT].iter().map(|record| format!("{directory}/{record}"));
    let paths: Vec<_> = paths.collect();
    future::join_all(paths.iter().map(|path| client.delete(path, None))).await;
}

/// The records of `name`, oldest first.
pub(super) async fn breaks(client: &wire::Client, config: &Config, name: &Name) -> wire::Result<Vec<Break>> {
    let directory = config.records(name);
    let (synced, listed) = future::join(client.sync("/"), client.get_children(&directory)).await;
    synced?;
    let mut records = or_nothing(listed)?.map_or_else(Vec::new, |(records, _)| records);
    records.sort_unstable();
    read_records(client, &directory, &records, name).await
}

async fn read_records(
    client: &wire::Client,
    directory: &str,
    records: &[String],
    name: &Name,
) -> wire::Result<Vec<Break>> {
    let mut breaks = Vec::new();
    for batch in records.chunks(BATCH) {
        let paths: Vec<_> = batch.iter().map(|record| format!("{directory}/{record}")).collect();
        for read in future::join_all(paths.iter().map(|path| client.get_data(path))).await {
            let Some((data, _)) = or_nothing(read)? else { continue };
            breaks.extend(record::read::<Record>(&data).and_then(|record| record.order(name)));
        }
    }
    Ok(breaks)
}

/// Why a grant was broken, if it was.
pub(super) async fn reason(client: &wire::Client, config: &Config, grant: &GrantId) -> wire::Result<Option<Arc<str>>> {
    let place = &grant.place;
    let directory = config.records(&place.name);
    let Some((mut records, _)) = or_nothing(client.get_children(&directory).await)? else { return Ok(None) };
    let part = part_of(place.request);
    records.retain(|record| record.contains(&part));
    let broken = read_records(client, &directory, &records, &place.name).await?;
    Ok(broken.into_iter().rfind(|order| grant.is_of(&order.place, order.token)).map(|order| order.reason))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::queue::Claim;
    use crate::store::{Owner, PlaceId};

    fn order() -> Break {
        let owner = |client| Owner { client, host: "db-1".to_owned(), pid: 7 };
        Break {
            place: PlaceId { name: Name::new("a/b").unwrap(), request: RequestId { client: 5, number: 9 } },
            token: FencingToken::new(1 << 50),
            claim: Claim::WRITER,
            owner: Some(owner(u64::MAX)),
            by: owner(3),
            reason: "it was \"stuck\", é".into(),
            at: UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
        }
    }

    #[test]
    fn each_order_has_a_record_of_its_own_and_they_sort_by_time() {
        let (first, mut later) = (order(), order());
        later.at += Duration::from_secs(1);
        assert!(node_name(&first) < node_name(&later));
        assert!(node_name(&first).contains(&part_of(first.place.request)));
        let by_another = Break { by: Owner { client: 4, ..first.by.clone() }, ..first.clone() };
        assert_ne!(node_name(&by_another), node_name(&first));
    }
}
