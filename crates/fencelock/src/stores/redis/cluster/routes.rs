//! The routes to all nodes of a Cluster, for a layout whose locks are in all slots: each request goes to the owner of its key.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, LazyLock, Weak};

use redis::{Arg, Cmd};

use super::nodes::Nodes;
use crate::error::Result;
use crate::kit::bounds::Bounds;
use crate::store::{Opening, Tasks};
use crate::stores::redis::wire::{Address, Config, Connection, Link, LinkUser, link};
use crate::sync::Mutex;

/// The links to the nodes, for the user of a link to any of them.
pub(crate) struct Routes {
    nodes: Arc<Nodes>,
    config: Config,
    user: Arc<dyn LinkUser>,
    /// Each of several nodes has half of the time for a request.
    opening: Option<Opening>,
    /// By the names of the owners.
    links: Mutex<BTreeMap<String, Arc<Link>>>,
    /// The owners of the slots, without owners that failed since the nodes were asked.
    owners: Mutex<Vec<(RangeInclusive<u16>, Arc<Link>)>>,
}

impl Routes {
    /// The link with its routes to all nodes, and the value that keeps the routes alive.
    pub(crate) fn of_one_link(
        config: &Arc<Config>,
        user: &Arc<dyn LinkUser>,
        opening: Option<&Opening>,
    ) -> (Arc<Config>, Option<Arc<Self>>) {
        let mut config = (**config).clone();
        if let Address::Owner(slot) = &mut config.address {
            // Each link has its own record of a slot's owners.
            slot.custody = Arc::default();
        }
        let Address::Nodes(nodes) = config.address.clone() else { return (Arc::new(config), None) };
        let half = |opening: &Opening| Opening { request_deadline: opening.request_deadline / 2, ..opening.clone() };
        let routes = Arc::new_cyclic(|routes| {
            config.routes = Weak::clone(routes);
            let (user, opening) = (Arc::clone(user), opening.map(half));
            let (links, owners) = (Mutex::default(), Mutex::default());
            Self { nodes, config, user, opening, links, owners }
        });
        (Arc::new(routes.config.clone()), Some(routes))
    }

    /// The connection to the owner of a slot. Asks the nodes after a failure.
    async fn to(&self, slot: u16) -> Result<Arc<Connection>> {
        let is_owner = |(slots, _): &&(RangeInclusive<u16>, _)| slots.contains(&slot);
        let owner = || self.owners.lock().iter().find(is_owner).map(|(_, link)| Arc::clone(link));
        let mut link = owner().filter(|link| link.is_connected());
        if link.is_none() {
            self.learn().await?;
            link = owner();
        }
        link.ok_or_else(|| self.nodes.unserved())?.connection().await
    }

    /// Sends a request to the owner of a slot. Without an answer, or with an error, the next request asks the nodes for the owner.
    pub(crate) async fn ask<T>(&self, slot: u16, request: impl AsyncFnOnce(Arc<Connection>) -> Result<T>) -> Result<T> {
        let doubt = Unanswered(self, slot);
        let answer = request(self.to(slot).await?).await?;
        std::mem::forget(doubt);
        Ok(answer)
    }

    /// The connection to the owner with this number, and whether there are more.
    pub(crate) async fn nth(&self, number: usize) -> Result<(Arc<Connection>, bool)> {
        self.learn().await?;
        let mut owners = self.links.lock().values().skip(number).cloned().collect::<Vec<_>>().into_iter();
        let owner = owners.next().ok_or_else(|| self.nodes.unserved())?;
        Ok((owner.connection().await?, owners.next().is_some()))
    }

    async fn learn(&self) -> Result<()> {
        let Bounds { clock, patience, tasks, .. } = Bounds::of(self.opening.as_ref());
        let with = (&clock, &tasks.map_or_else(Tasks::here, Ok)?, patience);
        let named = self.nodes.ask(with, |view| view.newness.0.then(|| view.owners.clone())).await?;
        let named = named.ok_or_else(|| self.nodes.unserved())?;
        let mut links = self.links.lock();
        links.retain(|node, _| named.iter().any(|(_, owner)| owner.to_string() == *node));
        let owner = |(slots, node)| {
            let config = || Arc::new(self.config.at(self.nodes.dialled(&node)));
            let link = || link(&config(), Arc::clone(&self.user), self.opening.as_ref());
            (slots, Arc::clone(links.entry(node.to_string()).or_insert_with(link)))
        };
        *self.owners.lock() = named.into_iter().map(owner).collect();
        Ok(())
    }
}

/// Forgets the owner of a slot.
struct Unanswered<'a>(&'a Routes, u16);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.owners.lock().retain(|(slots, _)| !slots.contains(&self.1));
    }
}

/// The slot of the key of a command; `None` for a command without a key.
pub(crate) fn slot_of_command(command: &Cmd) -> Option<u16> {
    let mut words = command.args_iter().filter_map(|word| if let Arg::Simple(word) = word { Some(word) } else { None });
    match words.next()? {
        b"SET" | b"LRANGE" => words.next().map(slot_of),
        b"EVALSHA" if words.nth(1)? != b"0" => words.next().map(slot_of),
        _ => None,
    }
}

/// A hash tag of each slot. Fewer tags leave slots out.
static TAGS: LazyLock<BTreeMap<u16, u32>> =
    LazyLock::new(|| (0..110_000).map(|tag: u32| (slot_of(tag.to_string().as_bytes()), tag)).collect());

/// A key in this slot that is no lock's, for no name has a control character.
pub(crate) fn key_in(slot: u16) -> String {
    format!("fencelock:breaks:{{{}}}\n", TAGS[&slot])
}

/// The slot of a key: the checksum CRC-16/XMODEM of its hash tag, or of all of it.
pub(super) fn slot_of(key: &[u8]) -> u16 {
    let place = |key: &[u8], brace| key.iter().position(|byte| *byte == brace);
    let behind = place(key, b'{').map(|at| &key[at + 1..]);
    let tag = behind.and_then(|behind| Some(&behind[..place(behind, b'}').filter(|length| *length > 0)?]));
    let step = |sum: u16, _| if sum & 0x8000 == 0 { sum << 1 } else { sum << 1 ^ 0x1021 };
    let sum = tag.unwrap_or(key).iter().fold(0, |sum, byte| (0..8).fold(sum ^ u16::from(*byte) << 8, step));
    sum % 16_384
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::url;
    use super::*;
    use crate::kit::fault::Meaning;
    use crate::name::Name;
    use crate::store::{Owner, StoreUrl};
    use crate::stores::memory::VirtualClock;

    struct User;

    impl LinkUser for User {
        fn meaning(&self, _: &redis::RedisError) -> Option<Meaning> {
            None
        }
    }

    #[tokio::test]
    async fn links_to_nodes_that_own_no_slot_any_more_are_dropped() {
        let (clock, owner) = (VirtualClock::new(), Owner { client: 7, host: "host".to_owned(), pid: 1 });
        let opening = Opening::here(owner, Duration::from_secs(6), Arc::new(clock.clone())).unwrap();
        let config = Arc::new(url::config(StoreUrl::parse("redis+cluster://a").unwrap()).unwrap());
        let Address::Nodes(nodes) = &config.address else { unreachable!() };
        let (_, routes) = Routes::of_one_link(&config, &(Arc::new(User) as Arc<dyn LinkUser>), Some(&opening));
        let routes = routes.unwrap();
        for (owners, with) in [(["a", "b"], "b:6379"), (["c", "a"], "c:6379")] {
            nodes.learned("a", &owners, &clock).await;
            routes.learn().await.unwrap();
            let known = routes.links.lock().keys().cloned().collect::<Vec<_>>();
            assert_eq!(known, ["a:6379", with]);
        }
    }

    #[test]
    fn a_key_has_the_slot_of_its_hash_tag() {
        assert_eq!(slot_of(b"123456789"), 12_739);
        assert_eq!(slot_of(b"a:{123456789}:{b}"), 12_739);
        assert_eq!(slot_of(b"foo{}{bar}"), 8363);
        assert_ne!(slot_of(b"{123456789"), 12_739);
        assert!((0..16_384).all(|slot| slot_of(key_in(slot).as_bytes()) == slot));
        assert!(Name::new(key_in(7)).is_err(), "a lock may have this key");
    }

    #[test]
    fn a_command_with_a_key_goes_to_its_slot() {
        let slot = |words: &[&str]| slot_of_command(Cmd::new().arg(words));
        let of_key = Some(slot_of(b"job"));
        assert_eq!(slot(&["SET", "job", "1", "NX"]), of_key);
        assert_eq!(slot(&["EVALSHA", "d1", "2", "job", "more", "x"]), of_key);
        assert_eq!(slot(&["EVALSHA", "d1", "0", "job"]), None);
        assert_eq!(slot(&["PUBLISH", "job", ""]), None);
    }
}
