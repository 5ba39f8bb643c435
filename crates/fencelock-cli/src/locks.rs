//! The rows of a list of locks: a row for each lock, also for an unreadable one.

use std::time::SystemTime;

use fencelock::inspect::{Contender, Page, Queue};
use fencelock::{Client, Name};
use futures_util::{StreamExt as _, stream};
use serde::Serialize;

use crate::output::{Failure, Outcome, code};
use crate::settings::Chosen;
use crate::show::{Shown, ShownForeignLock, ago, shown_or_dash};

/// The number of contenders at the head of a queue that a list reads.
pub(crate) const HEAD: usize = 100;

pub(crate) const READS: usize = 16;

/// The head of the queue of `name`, and how many hold the lock; `None` when all contenders have gone since the names were listed.
async fn head(client: &Client, name: &Name) -> Outcome<Option<(Queue, usize)>> {
    let queue = client.queue_page(name, Page { skip: 0, limit: HEAD }).await?;
    if queue.queued == 0 && queue.foreign_locks.is_empty() {
        return Ok(None);
    }
    let holds = |contender: &&Contender| contender.grant.is_some();
    let mut holders = queue.contenders.iter().filter(holds).count();
    // All holders are ahead of all waiters.
    if holders == queue.contenders.len() && holders < queue.queued {
        holders = client.contention(name).await?.holders;
    }
    Ok(Some((queue, holders)))
}

/// The time by the store's clock, or by this host's if the store shows its time to writers only.
pub(crate) async fn now(client: &Client, chosen: &Chosen) -> SystemTime {
    let tells = client.capability().notes && !chosen.url.starts_with("zk");
    let read = if tells { client.note("fencelock-clock").await.ok() } else { None };
    read.map_or_else(SystemTime::now, |read| read.now)
}

/// Reads the heads of at most `most` queues whose names begin with `prefix`. Returns how many more there are.
pub(crate) async fn heads(
    client: &Client,
    (chosen, prefix, most): (&Chosen, &str, usize),
    mut each: impl FnMut(&Name, Outcome<(Queue, usize)>),
) -> Outcome<usize> {
    let named = client.names(prefix, None, usize::MAX).await;
    let mut names = named.map_err(|error| error.with("store from", &chosen.origin))?;
    let left_out = names.len().saturating_sub(most);
    names.truncate(most);
    let look = |name| async move { (head(client, &name).await.transpose(), name) };
    let mut heads = stream::iter(names.into_iter().map(look)).buffered(READS);
    while let Some((head, name)) = heads.next().await {
        match head {
            // The other looks would take as long to fail with the same error.
            Some(Err(failure)) if failure.code == code::UNAVAILABLE => return Err(failure),
            Some(head) => each(&name, head),
            None => {}
        }
    }
    Ok(left_out)
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Lock {
    pub(crate) name: String,
    store: String,
    kind: Option<&'static str>,
    permits: Option<u32>,
    capacity: Option<u32>,
    pub(crate) holders: Vec<Shown>,
    pub(crate) waiting: usize,
    pub(crate) beside: Vec<ShownForeignLock>,
    pub(crate) error: Option<String>,
}

impl Lock {
    /// The summary of the head of `queue`, of which `holders` hold the lock.
    pub(crate) fn new(queue: &Queue, holders: usize, store: &str, now: SystemTime) -> Self {
        let contenders = queue.contenders.iter().zip(1..);
        let head: Vec<_> =
            contenders.map(|(contender, position)| Shown::new(&queue.name, position, contender, now)).collect();
        let kind = head.first().map(|shown| match shown.kind {
            "reader" | "writer" => "read-write",
            "permits" => "semaphore",
            _ => "mutex",
        });
        let capacity = head.first().and_then(|shown| shown.capacity);
        let shown: Vec<_> = head.into_iter().filter(Shown::holds).collect();
        let taken = shown.iter().filter_map(|holder| holder.permits).fold(0, u32::saturating_add);
        Self {
            name: queue.name.to_string(),
            store: store.to_owned(),
            kind,
            // The sum of permits is unknown where a page lacks some holders.
            permits: capacity.map(|_| taken).filter(|_| holders <= shown.len()),
            capacity,
            holders: shown,
            waiting: queue.queued.saturating_sub(holders),
            beside: ShownForeignLock::all(queue),
            error: None,
        }
    }

    pub(crate) fn unread(name: &Name, store: &str, failure: &Failure) -> Self {
        Self { name: name.to_string(), store: store.to_owned(), error: failure.message.clone(), ..Self::default() }
    }

    /// The common claim of the holders.
    pub(crate) fn held_as(&self) -> String {
        match (self.permits, self.capacity, self.holders.len(), self.holders.first()) {
            (Some(permits), Some(capacity), ..) => format!("{permits} of {capacity}"),
            (None, Some(capacity), ..) => format!("some of {capacity}"),
            (_, _, 0, _) => self.kind.unwrap_or("-").to_owned(),
            (_, _, 1, Some(holder)) => holder.claim.clone(),
            (_, _, readers, _) => format!("{readers} readers"),
        }
    }

    pub(crate) fn row(&self) -> Vec<String> {
        if let Some(error) = &self.error {
            return [&self.name, "unreadable", "-", "-", error, "-", &self.store].map(str::to_owned).to_vec();
        }
        let holder = self.holders.first();
        let more = self.holders.len().saturating_sub(1);
        let who = shown_or_dash(holder.map(|holder| &holder.who));
        vec![
            self.name.clone(),
            self.held_as(),
            if more == 0 { who } else { format!("{who} and {more} more") },
            shown_or_dash(holder.and_then(|holder| holder.age.map(ago)).as_ref()),
            holder.and_then(|holder| holder.purpose.clone()).unwrap_or_default(),
            self.waiting.to_string(),
            self.store.clone(),
        ]
    }
}
