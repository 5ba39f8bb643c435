//! Reading queues and names, for people and for error messages.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fencelock_zookeeper as wire;
use fencelock_zookeeper::ErrorKind as Wire;
use futures_util::future;

use super::beside::{self, Others};
use super::config::Config;
use super::foreign;
use super::layout::{Ticket, disturbs_curator, request_of};
use super::note::{self, Told};
use super::numbers;
use super::path::{Home, RECORDS};
use super::queue_view;
use crate::name::Name;
use crate::queue::{Claim, granted};
use crate::store::{Contender, Foreign, Grant, Outline, Page, Queue, RequestId};
use crate::token::FencingToken;

/// How many nodes are read at once.
const BATCH: usize = 100;

/// How many contenders of one page are shown with what their nodes say; those behind only by their names.
const DETAILED: usize = 1000;

type Answered<T> = wire::Result<T>;

/// A queue as one listing shows it.
struct Listed {
    /// The contenders, front first, and their nodes.
    line: Vec<(Ticket, String)>,
    /// What each of them is, where another client made it.
    foreign: Vec<Option<Foreign>>,
    /// The children that are no contenders of it.
    others: Vec<String>,
}

impl Listed {
    async fn ask(client: &wire::Client, config: &Config, home: &Home<'_>) -> Answered<Self> {
        let synced = client.sync(home.parent());
        let listed = client.get_children(home.parent());
        synced.await?;
        let children = or_nothing(listed.await)?.map_or_else(Vec::new, |(children, _)| children);
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

    /// These contenders with what their nodes say, `None` for each that is gone.
    async fn read(&self, client: &wire::Client, home: &Home<'_>, which: Range<usize>) -> Answered<Vec<Option<Shown>>> {
        let paths: Vec<_> = self.line[which.clone()].iter().map(|(_, node)| home.child(node)).collect();
        let read = future::join_all(paths.iter().map(|path| client.get_data(path))).await;
        which
            .zip(paths.iter().zip(read))
            .map(|(index, (path, read))| contender(self.unseen(index), path, read))
            .collect()
    }
}

/// One page of the queue of `name`, as of some moment after the call.
pub(super) async fn queue(
    client: &wire::Client,
    config: &Config,
    name: &Name,
    home: &Home<'_>,
    page: Page,
) -> Answered<Queue> {
    let mut listed = Listed::ask(client, config, home).await?;
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
        contender.grant = Some(Grant { token: *token });
    }
    let mut beside = foreign::beside(&listed.foreign);
    beside.extend(beside::beside(client, home, &mut listed.others).await?);
    let strangers = strangers(client, home, listed.others).await?;
    let contenders = shown.into_iter().map(|(contender, _)| contender).collect();
    Ok(Queue { name: name.clone(), contenders, queued: all - gone, beside, strangers })
}

/// The queue in short: of all that are in it only the one at its head is read.
pub(super) async fn contention(
    client: &wire::Client,
    config: &Config,
    home: &Home<'_>,
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
    Ok(Outline {
        holder: head.map(|(head, token)| Contender { grant: Some(Grant { token }), ..head }),
        holders: granted(&claims),
        queued: line.len(),
        positions: mine.iter().map(|id| places.get(id).copied()).collect(),
    })
}

fn claims(line: &[(Ticket, String)]) -> impl Iterator<Item = Claim> {
    line.iter().map(|(ticket, _)| ticket.claim)
}

type Shown = (Contender, Option<FencingToken>);

/// A contender with what its node says; `None` when it is gone.
fn contender(unread: Shown, path: &str, read: Answered<(Vec<u8>, wire::Stat)>) -> Answered<Option<Shown>> {
    let (data, stat) = match read {
        Ok(read) => read,
        Err(error) if error.kind() == Wire::NoNode => return Ok(None),
        Err(error) if error.kind() == Wire::NoAuth => return Ok(Some(unread)),
        Err(error) => return Err(error),
    };
    let mut told = note::read(&data);
    let (mut contender, _) = unread;
    if contender.foreign.is_some_and(foreign::is_kazoo) {
        told = note::named(told);
    }
    if stat.ephemeral_owner == 0 {
        let purpose = format!("no session's: the node {path} blocks until somebody deletes it");
        told = Told { purpose: Some(purpose.into()), ..Told::default() };
    }
    contender.owner = told.owner;
    contender.purpose = told.purpose;
    contender.since = since(stat.ctime_ms);
    Ok(Some((contender, token(&data, &stat))))
}

/// The token that a holder with this node has.
pub(super) fn token(data: &[u8], stat: &wire::Stat) -> Option<FencingToken> {
    let made_by = u64::try_from(stat.czxid).ok()?;
    // Only a lighter claim says so, and names an older transaction; what others write is not believed beyond that.
    let grant = note::read(data).grant.filter(|grant| *grant < made_by);
    FencingToken::new(grant.unwrap_or(made_by), 0)
}

/// A contender of which only the name of its node is known.
fn unseen(ticket: &Ticket, node: &str, foreign: Option<Foreign>) -> Shown {
    let id = request_of(node);
    (Contender { id, owner: None, claim: ticket.claim, grant: None, since: None, purpose: None, foreign }, None)
}

fn since(ctime_ms: i64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(u64::try_from(ctime_ms).ok()?))
}

/// Those among `nodes` that are no parents of other locks: what other programs left here, or use it for.
async fn strangers(client: &wire::Client, home: &Home<'_>, nodes: Vec<String>) -> Answered<Vec<String>> {
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

/// Up to `limit` names with contenders, in byte order.
pub(super) async fn names(
    client: &wire::Client,
    config: &Config,
    prefix: &str,
    from: Option<&Name>,
    limit: usize,
) -> Answered<Vec<Name>> {
    let layout = config.dialect.mutex();
    let mut found = Found { prefix, from, limit, names: BTreeSet::new() };
    client.sync("/").await?;
    let mut others = Others::default();
    let mut waiting = vec![String::new()];
    while !waiting.is_empty() {
        let batch = waiting.split_off(waiting.len().saturating_sub(BATCH));
        let lists = batch.iter().map(|below| client.get_children(&path_of(config, below)));
        for (below, listed) in batch.iter().zip(future::join_all(lists).await) {
            let (children, is_ephemeral) = match (listed, below.is_empty()) {
                (Err(error), false) if error.kind() == Wire::NoAuth => continue,
                // So many children are a queue; who asks for it is told what is wrong. What is nested below it is not known.
                (Err(error), false) if error.kind() == Wire::TooLarge => {
                    found.add(below);
                    continue;
                }
                (listed, _) => or_nothing(listed)?
                    .map_or((Vec::new(), false), |(children, stat)| (children, stat.ephemeral_owner != 0)),
            };
            if config.dialect.one_parent {
                children.iter().filter_map(|child| layout.key(child)).for_each(|key| found.add(key));
                continue;
            }
            match others.is_part(below, &children, is_ephemeral) {
                Some(whole) => found.add(whole),
                None if below.is_empty() => {}
                None if children.iter().any(|child| layout.read(child, "").is_some()) => found.add(below),
                None => {}
            }
            // Directly under the common parent no lock has its contenders, whatever a child is called.
            let is_nested = |child: &&String| match below.is_empty() {
                true => *child != RECORDS,
                false => layout.read(child, "").is_none() && !beside::is_latch(child),
            };
            let nested = children.iter().filter(is_nested);
            let nested = nested.map(|child| if below.is_empty() { child.clone() } else { format!("{below}/{child}") });
            waiting.extend(nested.filter(|name| found.may_be_below(name)));
        }
    }
    others.guards.iter().for_each(|guard| found.remove(guard));
    Ok(found.names.into_iter().collect())
}

fn path_of(config: &Config, below: &str) -> String {
    match (config.parent.as_str(), below) {
        ("", "") => "/".to_owned(),
        (parent, "") => parent.to_owned(),
        (parent, below) => format!("{parent}/{below}"),
    }
}

/// The names found so far, the first ones that are wanted.
struct Found<'a> {
    prefix: &'a str,
    from: Option<&'a Name>,
    limit: usize,
    names: BTreeSet<Name>,
}

impl Found<'_> {
    fn remove(&mut self, name: &str) {
        if let Ok(name) = Name::new(name) {
            self.names.remove(&name);
        }
    }

    fn add(&mut self, name: &str) {
        let Ok(name) = Name::new(name) else { return };
        if name.as_str().starts_with(self.prefix) && self.from.is_none_or(|from| name > *from) {
            self.names.insert(name);
            if self.names.len() > self.limit {
                self.names.pop_last();
            }
        }
    }

    /// Whether `name`, or a name that continues it after a slash, may start with the prefix.
    fn may_be_below(&self, name: &str) -> bool {
        let shorter = name.len().min(self.prefix.len());
        name.as_bytes()[..shorter] == self.prefix.as_bytes()[..shorter]
            && (name.len() >= self.prefix.len() || self.prefix.as_bytes()[shorter] == b'/')
    }
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
        let may = |prefix, name| Found { prefix, from: None, limit: 1, names: BTreeSet::new() }.may_be_below(name);
        for (prefix, name) in
            [("", "a"), ("job", "job"), ("job", "jobs"), ("job/a", "job"), ("job/", "job"), ("é", "é/x")]
        {
            assert!(may(prefix, name), "{prefix} {name}");
        }
        for (prefix, name) in [("job", "jo"), ("job/a", "jobs"), ("job/a", "job/b"), ("x", "é"), ("job/ab", "job/a")] {
            assert!(!may(prefix, name), "{prefix} {name}");
        }
    }

    #[test]
    fn the_first_names_after_the_cursor_are_kept() {
        let from = Name::new("b").unwrap();
        let mut found = Found { prefix: "", from: Some(&from), limit: 2, names: BTreeSet::new() };
        ["e", "a", "d", "c", "b", ""].iter().for_each(|name| found.add(name));
        assert_eq!(found.names.into_iter().map(|name| name.to_string()).collect::<Vec<_>>(), ["c", "d"]);
    }
}
