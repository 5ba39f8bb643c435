//! The store: sixteen slots, each of which is a store of its own; a name belongs to one of them.

use std::fmt;
use std::sync::Arc;

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::{StreamExt, stream};

use super::nodes::{ClusterSlot, Nodes};
use super::routes::slot_of;
use super::session::{Reach, open_session};
use crate::error::Result;
use crate::kit::bucket::{BUCKETS, bucket_of};
use crate::name::Name;
use crate::store::{Break, Capability, NoteOrder, NoteRead, Opened, Opening, Outline, Page, Queue, RequestId, Store};
use crate::stores::redis::fair;
use crate::stores::redis::wire::Address;

/// The hash tag of each part. With another tag, a name would be another lock. Their slots divide all slots evenly, for the nodes of a
/// Cluster have adjoining slots.
const TAGS: [u16; 16] = [10, 3, 61, 43, 11, 2, 60, 42, 12, 1, 63, 41, 13, 0, 62, 40];

/// The store of the layout `fair` on these nodes.
pub(crate) fn new(nodes: Arc<Nodes>, min_replicas: u32, prefix: &str) -> Arc<dyn Store> {
    let part = |tag: u16| {
        let number = slot_of(tag.to_string().as_bytes());
        let slot = |nodes| Address::Owner(ClusterSlot { nodes, number, custody: Arc::default() });
        fair::new(nodes.way_to(slot, min_replicas), &format!("{prefix}:{{{tag}}}"))
    };
    let parts = TAGS.into_iter().map(part).collect();
    Arc::new(Divided { nodes, parts })
}

/// The part of a name.
pub(super) fn part_of(name: &Name) -> usize {
    usize::from(bucket_of(name)) * TAGS.len() / usize::from(BUCKETS)
}

struct Divided {
    nodes: Arc<Nodes>,
    parts: Arc<[Arc<dyn Store>]>,
}

impl fmt::Debug for Divided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.nodes.fmt(f)
    }
}

impl Divided {
    fn part(&self, name: &Name) -> &dyn Store {
        &*self.parts[part_of(name)]
    }
}

impl Store for Divided {
    fn capability(&self) -> &Capability {
        &fair::CAPABILITY
    }

    /// The session of a part is opened when the part is needed.
    fn open(&self, opening: Opening) -> BoxFuture<'_, Result<Opened>> {
        Box::pin(async move {
            let (sent, patience) = (opening.clock.now(), opening.patience());
            let (nodes, with) = (Arc::clone(&self.nodes), (Arc::clone(&opening.clock), opening.tasks.clone()));
            let reach: Reach = Box::new(move || {
                let (nodes, (clock, tasks)) = (Arc::clone(&nodes), with.clone());
                Box::pin(async move { nodes.ask((&clock, &tasks, patience), |_| ()).await })
            });
            reach().await?;
            Ok(open_session(&self.parts, reach, opening, sent))
        })
    }

    fn queue<'a>(&'a self, name: &'a Name, page: Page) -> BoxFuture<'a, Result<Queue>> {
        self.part(name).queue(name, page)
    }

    fn contention<'a>(&'a self, name: &'a Name, mine: &'a [RequestId]) -> BoxFuture<'a, Result<Outline>> {
        self.part(name).contention(name, mine)
    }

    fn names<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<Vec<Name>>> {
        stream::iter(self.parts.iter()).flat_map(move |part| part.names(prefix)).boxed()
    }

    fn break_grant<'a>(&'a self, order: &'a Break) -> BoxFuture<'a, Result<bool>> {
        self.part(&order.place.name).break_grant(order)
    }

    fn breaks<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Vec<Break>>> {
        self.part(name).breaks(name)
    }

    fn write_note<'a>(&'a self, order: &'a NoteOrder) -> BoxFuture<'a, Result<bool>> {
        self.part(&order.grant.place.name).write_note(order)
    }

    fn note<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<NoteRead>> {
        self.part(name).note(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slots_of_the_tags_divide_all_evenly() {
        let slots = TAGS.map(|tag| slot_of(tag.to_string().as_bytes()));
        assert!(slots.iter().map(|slot| slot / 1024).eq(0..16), "{slots:?}");
    }

    #[test]
    fn every_part_has_names() {
        let names = (0..1000).map(|number| Name::new(format!("n{number}")).unwrap());
        let parts: std::collections::HashSet<_> = names.map(|name| part_of(&name)).collect();
        assert_eq!(parts.len(), TAGS.len());
    }
}
