//! A session that was alone in a queue, left it, and draws the next number is alone still: granted with nothing listed.
//!
//! The servers number by counting all that were ever created below the parent, so the next number says that nothing was created
//! in between. It holds below one parent, which is watched on the connection of everything else. The derivation, and what it
//! presumes: ADR 6.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fencelock_zookeeper as wire;

use super::table::Node;
use crate::name::Name;

/// So many names are remembered at most: those left last. The watches on their parents are as many, here and at the server,
/// which is told to forget those of a name that is forgotten.
const NAMES: usize = 1024;

/// After somebody else was met, so many guesses in a row have to be right before one is relied on: one that is wrong costs a
/// round trip.
const WARY: u8 = 4;

/// What a session knows of the names that it was alone at.
#[derive(Default)]
pub(super) struct Alone {
    inner: Mutex<Habits>,
}

/// In two generations: the older one goes when the recent one has become old.
#[derive(Default)]
struct Habits {
    recent: HashMap<Name, Habit>,
    older: HashMap<Name, Habit>,
}

struct Habit {
    /// The number of our last node that was alone and that we deleted.
    number: i64,
    /// Correct guesses still needed before one is trusted; set to [`WARY`] after a contender was met.
    right_guesses_needed: u8,
    proof: Option<Box<Proof>>,
    /// What the server watches for this name. It stays when a proof goes.
    at_server: Option<AtServer>,
}

/// A watch as a server keeps it.
struct AtServer {
    client: wire::Client,
    parent: String,
    /// The connection that it was asked for on.
    epoch: u64,
}

impl AtServer {
    /// Lets the server forget it. The answer is not waited for: a connection that has ended took the watch along.
    fn remove(self) {
        if self.client.connection_epoch() == self.epoch {
            drop(self.client.remove_watches(&self.parent, wire::Watched::Node));
        }
    }
}

/// A node of ours was the only child of its parent when it was created.
pub(super) struct Proof {
    number: i64,
    /// The transaction that created it, which no other node of ours has.
    czxid: u64,
    /// Its deletion was answered.
    is_gone: bool,
    /// On the parent, since before a listing showed the first of these nodes.
    watch: wire::Watch,
    /// The connection that all of this was told on.
    epoch: u64,
}

/// How to find out who is ahead.
pub(super) enum Plan {
    /// By the number, if the proof still holds by then.
    Guess(Box<Proof>),
    /// By a list, and with a watch on the parent set before it.
    ListWatched,
    List,
}

impl Alone {
    fn lock(&self) -> MutexGuard<'_, Habits> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the next node of `name` finds out who is ahead. A proof is given away, to one place at a time: whatever becomes of
    /// that, only [`Alone::proved`] brings another one. `parent` is what is watched then.
    pub(super) fn plan(&self, name: &Name, client: &wire::Client, parent: &str) -> Plan {
        let mut habits = self.lock();
        let Some(habit) = habits.get(name).filter(|habit| habit.right_guesses_needed <= 1) else { return Plan::List };
        match habit.proof.take() {
            Some(proof) if !proof.is_gone => {
                habit.proof = Some(proof);
                Plan::List
            }
            Some(proof) if proof.counts(client) => Plan::Guess(proof),
            _ => {
                let (client, epoch) = (client.clone(), client.connection_epoch());
                habit.at_server = Some(AtServer { client, parent: parent.to_owned(), epoch });
                Plan::ListWatched
            }
        }
    }

    /// A place of `name` holds, and is alone by this proof.
    pub(super) fn proved(&self, name: &Name, proof: Box<Proof>) {
        if let Some(habit) = self.lock().get(name) {
            habit.proof = Some(proof);
        }
    }

    /// Somebody else is there, or it cannot be proved that nobody is.
    pub(super) fn doubt(&self, name: &Name) {
        if let Some(habit) = self.lock().get(name) {
            (habit.right_guesses_needed, habit.proof) = (WARY, None);
        }
    }

    /// The connection ended, and with it what all proofs rely on. The next one need not watch their parents.
    pub(super) fn disconnected(&self) {
        let mut habits = self.lock();
        let Habits { recent, older } = &mut *habits;
        recent.values_mut().chain(older.values_mut()).for_each(|habit| {
            (habit.proof, habit.at_server) = (None, None);
        });
    }

    /// A node that was alone when it was created was deleted: it was there, and the servers said so.
    pub(super) fn left(&self, name: &Name, node: Node) {
        let mut habits = self.lock();
        let Some(habit) = habits.get(name) else {
            return habits.keep(
                name.clone(),
                Habit { number: node.number, right_guesses_needed: 1, proof: None, at_server: None },
            );
        };
        habit.right_guesses_needed = match node.number - habit.number {
            1 => habit.right_guesses_needed.saturating_sub(1),
            // Below a parent that was made anew: nobody was met, and it is as with a name that is new.
            ..=0 => 1,
            _ => WARY,
        };
        habit.number = node.number;
        habit.proof = habit.proof.take().filter(|proof| habit.right_guesses_needed <= 1 && proof.czxid == node.czxid);
        if let Some(proof) = &mut habit.proof {
            proof.is_gone = true;
        }
    }
}

impl Habits {
    fn get(&mut self, name: &Name) -> Option<&mut Habit> {
        if let Some((name, habit)) = self.older.remove_entry(name) {
            self.keep(name, habit);
        }
        self.recent.get_mut(name)
    }

    fn keep(&mut self, name: Name, habit: Habit) {
        if self.recent.len() >= NAMES / 2 {
            let forgotten = std::mem::replace(&mut self.older, std::mem::take(&mut self.recent));
            // Their proofs go first: what somebody here still watches is not removed.
            let at_server: Vec<_> = forgotten.into_values().filter_map(|habit| habit.at_server).collect();
            at_server.into_iter().for_each(AtServer::remove);
        }
        self.recent.insert(name, habit);
    }
}

impl Proof {
    /// By a listing that shows `node` alone. `watch` was set on its parent before, and everything was told on the connection
    /// `epoch`.
    pub(super) fn listed(node: Node, watch: wire::Watch, epoch: u64) -> Box<Self> {
        Box::new(Self { number: node.number, czxid: node.czxid, is_gone: false, watch, epoch })
    }

    /// That `node` was alone when it was created, if it is the next one. Its creation was answered already: whatever happened to the
    /// parent before it has been heard.
    pub(super) fn of_next(mut self: Box<Self>, node: Node, client: &wire::Client) -> Option<Box<Self>> {
        if !self.is_gone || node.number != self.number + 1 || !self.counts(client) {
            return None;
        }
        (self.number, self.czxid, self.is_gone) = (node.number, node.czxid, false);
        Some(self)
    }

    /// Whether nothing was heard of the parent, on the connection on which it would have been.
    fn counts(&self, client: &wire::Client) -> bool {
        self.watch.heard().is_none() && client.connection_epoch() == self.epoch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Claim;

    fn name(number: usize) -> Name {
        Name::new(format!("job-{number}")).unwrap()
    }

    fn node(number: i64) -> Node {
        Node { number, czxid: 100, claim: Claim::MUTEX }
    }

    #[test]
    fn of_many_names_those_left_last_are_remembered() {
        let alone = Alone::default();
        for number in 0..10_000 {
            // One that is used all the time is not forgotten for those that are used once.
            alone.left(&name(0), node(i64::try_from(number).unwrap()));
            alone.left(&name(number), node(0));
            let habits = alone.lock();
            assert!(habits.recent.len() + habits.older.len() <= NAMES);
        }
        let mut habits = alone.lock();
        assert!((9_500..10_000).chain([0]).all(|number| habits.get(&name(number)).is_some()));
        assert!(habits.get(&name(1)).is_none());
    }

    #[test]
    fn after_somebody_else_was_met_four_numbers_in_a_row_have_to_be_right() {
        let (alone, job) = (Alone::default(), name(0));
        let needed = || alone.lock().get(&job).map(|habit| habit.right_guesses_needed);
        assert_eq!(needed(), None);
        let mut told = Vec::new();
        for number in [0, 1, 2, 9, 10, 11, 13, 14, 15, 16, 17] {
            alone.left(&job, node(number));
            told.extend(needed());
        }
        assert_eq!(told, [1, 0, 0, 4, 3, 2, 4, 3, 2, 1, 0]);
        alone.doubt(&job);
        assert_eq!(needed(), Some(WARY));
    }

    #[test]
    fn where_numbers_begin_again_it_is_as_with_a_name_that_is_new() {
        let (alone, job) = (Alone::default(), name(0));
        let told = [0, 1, 2, 0, 0, 1, 2, 9, 3, 4].map(|number| {
            alone.left(&job, node(number));
            alone.lock().get(&job).map(|habit| habit.right_guesses_needed)
        });
        assert_eq!(told, [1, 0, 0, 1, 1, 0, 0, 4, 1, 0].map(Some));
    }
}
