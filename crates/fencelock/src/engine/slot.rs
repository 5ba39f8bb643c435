//! The only session of a client, and the state that its users share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::opening::Openings;
use super::session::Live;
use crate::store::Capability;

#[derive(Debug, Default)]
pub(super) struct SessionSlot {
    live: RwLock<Option<Arc<Live>>>,
    openings: Mutex<Openings>,
    /// The capability of the newest session, where the servers' differs from the store's.
    refined: RwLock<Option<Arc<Capability>>>,
}

impl SessionSlot {
    pub(super) fn current(&self) -> Option<Arc<Live>> {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner).clone();
        live.filter(|live| live.over().is_none())
    }

    pub(super) fn begin(&self, live: Arc<Live>) {
        *self.live.write().unwrap_or_else(PoisonError::into_inner) = Some(live);
    }

    pub(super) fn take(&self) -> Option<Arc<Live>> {
        self.live.write().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn promises(&self, refined: Option<&Arc<Capability>>) {
        *self.refined.write().unwrap_or_else(PoisonError::into_inner) = refined.cloned();
    }

    pub(super) fn refined(&self) -> Option<Arc<Capability>> {
        self.refined.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn openings(&self) -> MutexGuard<'_, Openings> {
        self.openings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
