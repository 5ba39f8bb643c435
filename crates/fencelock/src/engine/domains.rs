//! The sessions of one client: one for each domain of the store, opened when it is first wanted.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::opening::Openings;
use super::session::Live;
use crate::store::Domain;

/// The session of one domain, and what those share who need one.
#[derive(Debug, Default)]
pub(super) struct OneDomain {
    live: RwLock<Option<Arc<Live>>>,
    openings: Mutex<Openings>,
}

impl OneDomain {
    /// The session, if one is open and certain.
    pub(super) fn current(&self) -> Option<Arc<Live>> {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner).clone();
        live.filter(|live| live.over().is_none())
    }

    pub(super) fn replace(&self, live: Option<Arc<Live>>) -> Option<Arc<Live>> {
        std::mem::replace(&mut *self.live.write().unwrap_or_else(PoisonError::into_inner), live)
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
}

impl fmt::Debug for Domains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.known()).finish()
    }
}
