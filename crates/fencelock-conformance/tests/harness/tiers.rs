//! Stores that offer fewer tiers, and keep the laws of the offered ones.

use std::sync::Arc;
use std::time::Duration;

use fencelock::store::{Break, Capability, Opened, Opening, Page, Queue, Store};
use fencelock::time::Clock;
use fencelock::{Error, ErrorKind, Name, Result};
use fencelock_conformance::{Fixture, MemoryFixture, Process, Tier, judge, laws};
use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;

/// A store in memory that offers one tier and the tiers below it.
#[derive(Debug)]
struct Partly(Arc<dyn Store>, Tier);

/// The fixture of such stores.
struct Offers {
    memory: MemoryFixture,
    has: Tier,
    says: Tier,
}

impl Fixture for Offers {
    fn process(&self) -> BoxFuture<'_, Result<Process>> {
        Box::pin(async {
            let process = self.memory.process().await?;
            Ok(Process { store: Arc::new(Partly(process.store, self.has)), ..process })
        })
    }

    fn pass(&self, duration: Duration) -> BoxFuture<'_, ()> {
        self.memory.pass(duration)
    }

    fn leftovers(&self) -> BoxFuture<'_, Option<Vec<String>>> {
        self.memory.leftovers()
    }

    fn tier(&self) -> Tier {
        self.says
    }
}

impl Partly {
    fn offers(&self, tier: Tier) -> Result<()> {
        let refused = || Err(Error::new(ErrorKind::Unsupported, "look", "the store does not offer this"));
        if self.1 < tier { refused() } else { Ok(()) }
    }
}

impl Store for Partly {
    fn capability(&self) -> &Capability {
        self.0.capability()
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        self.0.clock()
    }

    fn open(&self, opening: Opening) -> BoxFuture<'_, Result<Opened>> {
        self.0.open(opening)
    }

    fn queue<'a>(&'a self, name: &'a Name, page: Page) -> BoxFuture<'a, Result<Queue>> {
        Box::pin(async move {
            self.offers(Tier::Look)?;
            self.0.queue(name, page).await
        })
    }

    fn names<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<Vec<Name>>> {
        match self.offers(Tier::Look) {
            Ok(()) => self.0.names(prefix),
            Err(refused) => Box::pin(futures_util::stream::iter([Err(refused)])),
        }
    }

    fn break_grant<'a>(&'a self, order: &'a Break) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            self.offers(Tier::Break)?;
            self.0.break_grant(order).await
        })
    }

    fn breaks<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Vec<Break>>> {
        Box::pin(async move {
            self.offers(Tier::Break)?;
            self.0.breaks(name).await
        })
    }
}

const SEED: u64 = 0x71e5;

/// The failed laws of a store that offers `has` and claims to offer `says`.
fn wrong(has: Tier, says: Tier) -> Vec<(Tier, String)> {
    let judged = laws().iter().filter(|law| has == says || law.tier() == Tier::Break).map(|law| {
        let store = Arc::new(Offers { memory: MemoryFixture::default(), has, says });
        Some((law.tier(), judge("memory", law.name, store, "", SEED).err()?))
    });
    judged.flatten().collect()
}

#[test]
fn a_store_keeps_the_laws_of_the_tiers_that_it_offers_and_is_asked_for_no_others() {
    for tier in [Tier::Lock, Tier::Look] {
        assert_eq!(wrong(tier, tier), []);
    }
    let tiers = |tier| laws().iter().filter(|law| law.tier() == tier).count();
    assert_eq!((tiers(Tier::Look), tiers(Tier::Break)), (7, 3), "a law that is listed is there");
}

#[test]
fn a_store_that_claims_more_than_it_offers_is_reported() {
    let wrong = wrong(Tier::Look, Tier::Break);
    assert_eq!(wrong.len(), 3, "{wrong:?}");
}
