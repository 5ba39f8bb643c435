//! The sessions of one client: one for each domain of the store, opened when it is first wanted.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::opening::Openings;
use super::session::Live;
use crate::store::{Capability, Domain};

/// The session of one domain, and what those share who need one.
#[derive(Debug, Default)]
pub(super) struct OneDomain {
    live: RwLock<Option<Arc<Live>>>,
    openings: Mutex<Openings>,
    /// Whether a session of it was ever open.
    was_open: AtomicBool,
    /// What its newest session says that the servers allow, where that is not what the store says.
    refined: RwLock<Option<Arc<Capability>>>,
}

impl OneDomain {
    /// The session, if one is open and certain.
    pub(super) fn current(&self) -> Option<Arc<Live>> {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner).clone();
        live.filter(|live| live.over().is_none())
    }

    /// The present session is this one from now on.
    pub(super) fn begin(&self, live: Arc<Live>) {
        self.was_open.store(true, Ordering::Release);
        *self.live.write().unwrap_or_else(PoisonError::into_inner) = Some(live);
    }

    /// There is no present session from now on; gives back the one that there was.
    pub(super) fn take(&self) -> Option<Arc<Live>> {
        self.live.write().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn promises(&self, refined: Option<&Arc<Capability>>) {
        *self.refined.write().unwrap_or_else(PoisonError::into_inner) = refined.cloned();
    }

    fn refined(&self) -> Option<Arc<Capability>> {
        self.refined.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn openings(&self) -> MutexGuard<'_, Openings> {
        self.openings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All domains that were wanted so far. The first one is there from the beginning, and found without a search: most stores
/// have no other.
#[derive(Default)]
pub(super) struct Domains {
    first: OneDomain,
    others: RwLock<BTreeMap<Domain, Arc<OneDomain>>>,
}

impl Domains {
    /// What `look` finds in that domain.
    pub(super) fn at<R>(&self, domain: Domain, look: impl FnOnce(&OneDomain) -> R) -> R {
        if domain == Domain::FIRST {
            return look(&self.first);
        }
        let known = self.others.read().unwrap_or_else(PoisonError::into_inner).get(&domain).cloned();
        look(&known.unwrap_or_else(|| {
            Arc::clone(self.others.write().unwrap_or_else(PoisonError::into_inner).entry(domain).or_default())
        }))
    }

    /// The domains that were wanted so far.
    pub(super) fn known(&self) -> Vec<Domain> {
        let others = self.others.read().unwrap_or_else(PoisonError::into_inner);
        std::iter::once(Domain::FIRST).chain(others.keys().copied()).collect()
    }

    /// The domains of which a session was open so far, the first one always.
    pub(super) fn once_open(&self) -> Vec<Domain> {
        let others = self.others.read().unwrap_or_else(PoisonError::into_inner);
        let once_open = others.iter().filter(|(_, one)| one.was_open.load(Ordering::Acquire));
        std::iter::once(Domain::FIRST).chain(once_open.map(|(domain, _)| *domain)).collect()
    }

    /// The refined capability of the first domain, or else of any other one that has one.
    pub(super) fn refined(&self) -> Option<Arc<Capability>> {
        let others = || self.others.read().unwrap_or_else(PoisonError::into_inner);
        self.first.refined().or_else(|| others().values().find_map(|one| one.refined()))
    }
}

impl fmt::Debug for Domains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.known()).finish()
    }
}
