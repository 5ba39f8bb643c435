//! Notes on locks: written by who holds them, kept when nobody does.

use std::collections::HashMap;
use std::time::SystemTime;

use super::state::StoreState;
use crate::name::Name;
use crate::store::{Note, NoteOrder, NoteRead, Page};

/// The notes of a store.
#[derive(Default)]
pub(super) struct Notes(HashMap<Name, Note>);

impl StoreState {
    /// Does what `order` says at `now` if its grant is current; says whether it was.
    pub(super) fn write_note(&mut self, order: &NoteOrder, now: SystemTime) -> bool {
        let place = &order.grant.place;
        let queue = self.queue(&place.name, Page::ALL);
        let is_it = |grant| grant == order.grant.token;
        let mut holders = queue.contenders.iter().filter(|contender| contender.id == place.request);
        if !holders.any(|holder| holder.grant.is_some_and(|grant| is_it(grant.token))) {
            return false;
        }
        self.notes.forget_what_is_over(now);
        match order.written_at(now) {
            Some(note) => self.notes.0.insert(place.name.clone(), note),
            None => self.notes.0.remove(&place.name),
        };
        true
    }

    pub(super) fn note(&mut self, name: &Name, now: SystemTime) -> NoteRead {
        self.notes.forget_what_is_over(now);
        NoteRead { note: self.notes.0.get(name).cloned(), now }
    }
}

impl Notes {
    fn forget_what_is_over(&mut self, now: SystemTime) {
        self.0.retain(|_, note| note.expires.is_none_or(|at| at > now));
    }
}
