//! The store: sixteen slots, each of which is a store of its own; a name belongs to one of them.

use std::fmt;
use std::sync::Arc;

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::{StreamExt, stream};

use super::nodes::Nodes;
use super::session::{Reach, open_session};
use super::url;
use crate::error::Result;
use crate::kit::bucket::{BUCKETS, bucket_of};
use crate::name::Name;
use crate::store::{
    Break, Capability, NoteOrder, NoteRead, Opened, Opening, Outline, Page, Queue, RequestId, Store, StoreUrl,
};
use crate::stores::redis::fair;

/// The hash tag of each part. Another tag would be another lock under the same name.
const TAGS: [u16; 16] = [10, 3, 61, 43, 11, 2, 60, 42, 12, 1, 63, 41, 13, 0, 62, 40];
/// The slot of each tag. The slots divide all slots evenly, for the nodes of a Cluster have adjoining slots.
const SLOTS: [u16; 16] =
    [247, 1584, 2369, 3937, 4310, 5649, 6496, 8000, 8373, 9842, 10499, 12067, 12436, 13907, 14626, 16130];

pub(super) fn open(url: StoreUrl) -> BoxFuture<'static, Result<Arc<dyn Store>>> {
    Box::pin(async move {
        let (nodes, min_replicas, prefix) = url::read(url)?;
        let nodes = Arc::new(nodes);
        let part = |(tag, slot)| fair::new(nodes.way_to(slot, min_replicas), &format!("{prefix}:{{{tag}}}"));
        let parts: Vec<_> = TAGS.into_iter().zip(SLOTS).map(part).collect();
        Ok(Arc::new(Divided { nodes, parts: parts.into() }) as Arc<dyn Store>)
    })
}

/// The part that a name belongs to.
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
                Box::pin(async move { nodes.ask((&clock, &tasks), patience, |_| ()).await })
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

    /// The checksum by which a Cluster divides keys: CRC-16/XMODEM.
    fn slot_of(tag: &str) -> u16 {
        let step = |sum: u16| if sum & 0x8000 == 0 { sum << 1 } else { sum << 1 ^ 0x1021 };
        let add = |sum: u16, byte: u8| (0..8).fold(sum ^ u16::from(byte) << 8, |sum, _| step(sum));
        tag.bytes().fold(0, add) % 16_384
    }

    #[test]
    fn each_tag_has_its_slot_and_the_slots_divide_all_evenly() {
        assert_eq!(slot_of("123456789"), 12_739);
        assert_eq!(TAGS.map(|tag| slot_of(&tag.to_string())), SLOTS);
        assert!(SLOTS.iter().map(|slot| slot / 1024).eq(0..16), "{SLOTS:?}");
    }

    #[test]
    fn every_part_has_names() {
        let names = (0..1000).map(|number| Name::new(format!("n{number}")).unwrap());
        let parts: std::collections::HashSet<_> = names.map(|name| part_of(&name)).collect();
        assert_eq!(parts.len(), TAGS.len());
    }
}
