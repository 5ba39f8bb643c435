//! Reading queues and names, for people and for error messages.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fencelock_zookeeper as wire;
use fencelock_zookeeper::ErrorKind as Wire;
use futures_util::future;

use super::config::Config;
use super::data::{self, NodeData};
use super::foreign;
use super::layout::{QueueNode, disturbs_curator, request_of};
use super::listing::Listing;
use super::numbers;
use super::path::{LockPath, RECORDS};
use super::queue_view;
use crate::name::Name;
use crate::queue::{Claim, granted};
use crate::store::{Contender, Foreign, Grant, Outline, Page, Queue, RequestId};
use crate::token::FencingToken;

/// How many nodes are read at once.
const BATCH: usize = 100;

/// How many contenders of a page are shown with the data of their nodes; later contenders are shown only by name.
const DETAILED: usize = 1000;

type Answered<T> = wire::Result<T>;

/// A queue as one listing shows it.
struct Listed {
    /// The contenders, front first, and their nodes.
    line: Vec<(QueueNode, String)>,
    /// The kind of each contender that another client made.
    foreign: Vec<Option<Foreign>>,
    /// The children that are no contenders of the queue.
    others: Vec<String>,
}

impl Listed {
    async fn ask(client: &wire::Client, config: &Config, home: &LockPath<'_>) -> Answered<Self> {
        let Listing { children, .. } = Listing::synced(client, home.parent()).await?;
        let layout = config.dialect.layout_of(&children);
        let (line, mut others) = queue_view::line(layout, home.key, children);
        if config.dialect.one_parent {
            others.retain(|node| layout.key(node).is_none());
        }
        let foreign = foreign::foreign(&line, config.dialect.one_parent);
        Ok(Self { line, foreign, others })
    }

    fn unseen(&self, index: usize) -> Shown {
        let (ticket, node) = &self.line[index];
        unseen(ticket, node, self.foreign[index])
    }

    /// These contenders with the data of their nodes; `None` for a contender that is gone.
    async fn read(
        &self,
        client: &wire::Client,
        home: &LockPath<'_>,
        which: Range<usize>,
    ) -> Answered<Vec<Option<Shown>>> {
        let paths: Vec<_> = self.line[which.clone()].iter().map(|(_, node)| home.child(node)).collect();
        let read = future::join_all(paths.iter().map(|path| client.get_data(path))).await;
        which
            .zip(paths.iter().zip(read))
            .map(|(index, (path, read))| contender(self.unseen(index), path, read))
            .collect()
    }
}

/// A page of the queue of `name`, as of a moment after the call.
pub(super) async fn queue(
    client: &wire::Client,
    config: &Config,
    name: &Name,
    home: &LockPath<'_>,
    page: Page,
) -> Answered<Queue> {
    let listed = Listed::ask(client, config, home).await?;
    numbers::warn(home, listed.line.last().map_or(0, |(ticket, _)| ticket.number));
    let all = listed.line.len();
    let (start, end) = (page.skip.min(all), page.skip.saturating_add(page.limit).min(all));
    let read_to = end.min(start.saturating_add(DETAILED));
    let mut shown = Vec::new();
    for at in (start..read_to).step_by(BATCH) {
        shown.extend(listed.read(client, home, at..read_to.min(at + BATCH)).await?.into_iter().flatten());
    }
    let gone = read_to - start - shown.len();
    shown.extend((read_to..end).map(|index| listed.unseen(index)));
    let on_page = shown.iter().map(|(contender, _)| contender.claim);
    let claims: Vec<_> = claims(&listed.line[..start]).chain(on_page).chain(claims(&listed.line[end..])).collect();
    let holders = granted(&claims).saturating_sub(start);
    for (contender, token) in shown.iter_mut().take(holders) {
        contender.grant = Some(Grant::new(*token));
    }
    let foreign_locks = foreign::foreign_locks(&listed.foreign);
    let strangers = strangers(client, home, listed.others).await?;
    let contenders = shown.into_iter().map(|(contender, _)| contender).collect();
    Ok(Queue { name: name.clone(), contenders, queued: all - gone, foreign_locks, strangers, closed: None })
}

/// The outline of a queue: reads only the node at its head.
pub(super) async fn contention(
    client: &wire::Client,
    config: &Config,
    home: &LockPath<'_>,
    mine: &[RequestId],
) -> Answered<Outline> {
    let listed = Listed::ask(client, config, home).await?;
    let (mut gone, mut head) = (0, None);
    while head.is_none() && gone < listed.line.len() {
        head = listed.read(client, home, gone..gone + 1).await?.pop().flatten();
        gone += usize::from(head.is_none());
    }
    let line = &listed.line[gone..];
    let claims: Vec<_> = claims(line).collect();
    let places: HashMap<RequestId, usize> = match mine {
        [] => HashMap::new(),
        _ => line.iter().zip(1..).map(|((_, node), position)| (request_of(node), position)).collect(),
    };
    let holder = head.map(|(head, token)| Contender { grant: Some(Grant::new(token)), ..head });
    let positions = mine.iter().map(|id| places.get(id).copied()).collect();
    Ok(Outline { holder, holders: granted(&claims), queued: line.len(), positions, closed: None })
}

fn claims(line: &[(QueueNode, String)]) -> impl Iterator<Item = Claim> {
    line.iter().map(|(ticket, _)| ticket.claim)
}

type Shown = (Contender, Option<FencingToken>);

/// A contender with the data of its node; `None` when it is gone.
fn contender(unread: Shown, path: &str, read: Answered<(Vec<u8>, wire::Stat)>) -> Answered<Option<Shown>> {
    let (data, stat) = match read {
        Ok(read) => read,
        Err(error) if error.kind() == Wire::NoNode => return Ok(None),
        Err(error) if error.kind() == Wire::NoAuth => return Ok(Some(unread)),
        Err(error) => return Err(error),
    };
    let mut node = data::read(&data);
    let (mut contender, _) = unread;
    if contender.foreign.is_some_and(foreign::is_kazoo) {
        node = data::named(node);
    }
    if stat.ephemeral_owner == 0 {
        let purpose = format!("the node {path} belongs to no session: it blocks until a user deletes it");
        node = NodeData { purpose: Some(purpose.into()), ..NodeData::default() };
    }
    contender.owner = node.owner;
    contender.purpose = node.purpose;
    contender.since = since(stat.ctime_ms);
    Ok(Some((contender, token(&data, &stat))))
}

/// The token that a holder with this node has.
pub(super) fn token(data: &[u8], stat: &wire::Stat) -> Option<FencingToken> {
    let made_by = u64::try_from(stat.czxid).ok()?;
    // Only the data of a lighter claim may have a grant, of an older transaction. A grant in other data is ignored.
    let grant = data::read(data).grant.filter(|grant| *grant < made_by);
    FencingToken::new(grant.unwrap_or(made_by))
}

/// A contender of which only the name of its node is known.
fn unseen(ticket: &QueueNode, node: &str, foreign: Option<Foreign>) -> Shown {
    (Contender { foreign, ..Contender::new(request_of(node), ticket.claim) }, None)
}

fn since(ctime_ms: i64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(u64::try_from(ctime_ms).ok()?))
}

/// The nodes that are no parents of other locks: other programs left them here, or use them.
async fn strangers(client: &wire::Client, home: &LockPath<'_>, nodes: Vec<String>) -> Answered<Vec<String>> {
    let mut strangers = Vec::new();
    for batch in nodes.chunks(BATCH).take(DETAILED / BATCH) {
        let paths: Vec<_> = batch.iter().map(|node| home.child(node)).collect();
        let stats = future::join_all(paths.iter().map(|path| client.exists(path))).await;
        for (node, stat) in batch.iter().zip(stats) {
            let is_parent = |stat: wire::Stat| stat.ephemeral_owner == 0 && stat.data_length == 0;
            match stat? {
                Some(stat) if !is_parent(stat) || disturbs_curator(node) => strangers.push(node.clone()),
                _ => {}
            }
        }
    }
    Ok(strangers)
}

/// The names with contenders, as far as they were listed.
pub(super) struct NameList {
    client: wire::Client,
    /// The nodes that are still to be listed.
    waiting: Vec<String>,
}

impl NameList {
    pub(super) fn new(client: wire::Client) -> Self {
        Self { client, waiting: vec![String::new()] }
    }

    /// Lists some more nodes; `None` when all were listed.
    pub(super) async fn go_on(mut self, config: &Config, prefix: &str) -> Answered<Option<(Vec<Name>, Option<Self>)>> {
        if self.waiting.is_empty() {
            return Ok(None);
        }
        let batch = self.waiting.split_off(self.waiting.len().saturating_sub(BATCH));
        let paths: Vec<String> = batch.iter().map(|below| path_of(config, below)).collect();
        let lists = future::join_all(paths.iter().map(|path| self.client.get_children(path))).await;
        let mut names = BTreeSet::new();
        for (below, listed) in batch.iter().zip(lists) {
            let found = self.found_in(config, prefix, below, listed)?;
            names.extend(found.iter().filter(|name| name.starts_with(prefix)).filter_map(|name| Name::new(name).ok()));
        }
        Ok(Some((names.into_iter().collect(), Some(self))))
    }

    /// The names of which `below` is a contender, or has contenders as children. Keeps the paths to list next.
    fn found_in(
        &mut self,
        config: &Config,
        prefix: &str,
        below: &str,
        listed: Answered<(Vec<String>, wire::Stat)>,
    ) -> Answered<Vec<String>> {
        let layout = config.dialect.mutex();
        let children = match (listed, below.is_empty()) {
            (Err(error), false) if error.kind() == Wire::NoAuth => return Ok(Vec::new()),
            // A node with too many children for an answer is a queue; a client that lists it receives the error. Locks nested below it stay unknown.
            (Err(error), false) if error.kind() == Wire::TooLarge => return Ok(vec![below.to_owned()]),
            (listed, _) => or_nothing(listed)?.map_or_else(Vec::new, |(children, _)| children),
        };
        if config.dialect.one_parent {
            return Ok(children.iter().filter_map(|child| layout.key(child)).map(str::to_owned).collect());
        }
        // Directly under the common parent no lock has its contenders, even if a child looks like one.
        let is_contender = |child: &String| !below.is_empty() && layout.read(child, "").is_some();
        let nested = children.iter().filter(|child| !is_contender(child) && (!below.is_empty() || *child != RECORDS));
        let nested = nested.map(|child| if below.is_empty() { child.clone() } else { format!("{below}/{child}") });
        self.waiting.extend(nested.filter(|name| may_be_below(prefix, name)));
        Ok(if children.iter().any(is_contender) { vec![below.to_owned()] } else { Vec::new() })
    }
}

fn path_of(config: &Config, below: &str) -> String {
    match (config.parent.as_str(), below) {
        ("", "") => "/".to_owned(),
        (parent, "") => parent.to_owned(),
        (parent, below) => format!("{parent}/{below}"),
    }
}

/// Whether `name`, or a name that continues it after a slash, may start with the prefix.
fn may_be_below(prefix: &str, name: &str) -> bool {
    let shorter = name.len().min(prefix.len());
    name.as_bytes()[..shorter] == prefix.as_bytes()[..shorter]
        && (name.len() >= prefix.len() || prefix.as_bytes()[shorter] == b'/')
}

/// A node that is not there has nothing in it.
pub(super) fn or_nothing<T>(answered: Answered<T>) -> Answered<Option<T>> {
    match answered {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.kind() == Wire::NoNode => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_start_with_the_prefix_is_looked_into() {
        for (prefix, name) in
            [("", "a"), ("job", "job"), ("job", "jobs"), ("job/a", "job"), ("job/", "job"), ("é", "é/x")]
        {
            assert!(may_be_below(prefix, name), "{prefix} {name}");
        }
        for (prefix, name) in [("job", "jo"), ("job/a", "jobs"), ("job/a", "job/b"), ("x", "é"), ("job/ab", "job/a")] {
            assert!(!may_be_below(prefix, name), "{prefix} {name}");
        }
    }
}
