//! The ways to all nodes of a Cluster, for a layout whose locks are in all slots: each request goes to the owner of its key.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Weak};

use redis::{Arg, Cmd};

use super::nodes::Nodes;
use crate::error::Result;
use crate::kit::address::HostPort;
use crate::kit::bounds::Bounds;
use crate::store::Opening;
use crate::stores::redis::wire::{Address, Config, Connection, Link, LinkUser, link};
use crate::sync::Mutex;

/// The links to the nodes, for the user of a link to any of them.
pub(crate) struct Routes {
    nodes: Arc<Nodes>,
    config: Config,
    user: Arc<dyn LinkUser>,
    /// Each of several nodes has half of the time for a request.
    opening: Option<Opening>,
    links: Mutex<HashMap<HostPort, Arc<Link>>>,
    /// The owners of the slots, in their order, without those that failed since the nodes were asked.
    owners: Mutex<Vec<(RangeInclusive<u16>, Arc<Link>)>>,
}

impl Routes {
    /// The link with the way to all nodes, and what it has to keep for that.
    pub(crate) fn of_one_link(
        config: &Arc<Config>,
        user: &Arc<dyn LinkUser>,
        opening: Option<&Opening>,
    ) -> (Arc<Config>, Option<Arc<Self>>) {
        let Address::Nodes(nodes) = &config.address else { return (Arc::clone(config), None) };
        let half = |opening: &Opening| Opening { request_deadline: opening.request_deadline / 2, ..opening.clone() };
        let routes = Arc::new_cyclic(|routes| {
            let (nodes, mut config, user) = (Arc::clone(nodes), (**config).clone(), Arc::clone(user));
            config.routes = Weak::clone(routes);
            let (opening, links, owners) = (opening.map(half), Mutex::default(), Mutex::default());
            Self { nodes, config, user, opening, links, owners }
        });
        (Arc::new(routes.config.clone()), Some(routes))
    }

    /// The connection to the owner of a slot. Asks the nodes after a failure.
    pub(crate) async fn to(&self, slot: u16) -> Result<Arc<Connection>> {
        let is_owner = |(slots, _): &&(RangeInclusive<u16>, _)| slots.contains(&slot);
        let owner = || self.owners.lock().iter().find(is_owner).map(|(_, link)| Arc::clone(link));
        let mut link = owner().filter(|link| link.is_connected());
        if link.is_none() {
            self.learn().await?;
            link = owner();
        }
        link.ok_or_else(|| self.nodes.unserved())?.connection().await
    }

    /// A request to the owner of this slot has failed.
    pub(crate) fn doubt(&self, slot: u16) {
        self.owners.lock().retain(|(slots, _)| !slots.contains(&slot));
    }

    /// The connection to the owner with this number, and whether there are more.
    pub(crate) async fn nth(&self, number: usize) -> Result<(Arc<Connection>, bool)> {
        self.learn().await?;
        let owners = self.owners.lock().clone();
        let is_first = |at: &usize| owners[..*at].iter().all(|(_, link)| !Arc::ptr_eq(link, &owners[*at].1));
        let mut firsts = (0..owners.len()).filter(is_first).skip(number);
        let first = firsts.next().ok_or_else(|| self.nodes.unserved())?;
        Ok((owners[first].1.connection().await?, firsts.next().is_some()))
    }

    async fn learn(&self) -> Result<()> {
        let Bounds { clock, patience, .. } = Bounds::of(self.opening.as_ref());
        let mut named = self.nodes.ask(&*clock, patience, <[_]>::to_vec).await?;
        named.sort_by_key(|(slots, _)| *slots.start());
        let mut links = self.links.lock();
        let owner = |(slots, node)| {
            let config = || Arc::new(self.config.at(self.nodes.dialled(&node)));
            let link = || link(&config(), Arc::clone(&self.user), self.opening.as_ref());
            (slots, Arc::clone(links.entry(node.clone()).or_insert_with(link)))
        };
        *self.owners.lock() = named.into_iter().map(owner).collect();
        Ok(())
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
    use super::*;

    #[test]
    fn a_key_has_the_slot_of_its_hash_tag() {
        assert_eq!(slot_of(b"123456789"), 12_739);
        assert_eq!(slot_of(b"a:{123456789}:{b}"), 12_739);
        assert_eq!(slot_of(b"foo{}{bar}"), 8363);
        assert_ne!(slot_of(b"{123456789"), 12_739);
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
