//! A router of names to stores, by pattern.

use std::fmt;
use std::sync::Arc;

use super::MultiLock;
use crate::client::{Client, ClientBuilder};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::pattern::NamePattern;
use crate::primitives::{Mutex, RwLock, Semaphore};

/// A router that chooses the store of a name: the safest store for a few critical locks, the fastest store for all other locks.
///
/// **The most specific [pattern](NamePattern) that matches a name decides**, in any order of the patterns. Patterns of which neither is
/// more specific, as `a/*` and `*/b`, are refused where a name can match both. A name that no pattern matches is an error: a router has no
/// other store for it. The pattern `**` matches every name.
///
/// **A name never changes its store by itself.** A router never changes, and at most one pattern decides about a name. No store replaces an
/// unreachable one: a name is locked in its store, or not at all. **All programs that share locks need the same patterns.** Where two
/// programs disagree about the store of a name, both can hold it. So stop every user of a name before you give it another store, or move it
/// with [`Router::migrate`].
///
/// # Examples
/// ```
/// use fencelock::recipes::Router;
/// use fencelock::Client;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> fencelock::Result<()> {
/// # let (zk, redis) = ("memory:safe", "memory:fast");
/// let urls = Router::new([("pay/**", zk), ("**", redis)])?;
/// assert_eq!(urls.route("pay/7")?, &zk);
///
/// let router = urls.connect(Client::builder).await?;
/// let guard = router.mutex("pay/7")?.acquire().await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Router<S = Client> {
    routes: Vec<Route<S>>,
}

/// A pattern of names, and the stores of their locks.
#[derive(Clone)]
struct Route<S> {
    pattern: NamePattern,
    /// A single store, or during a move the old and the new one.
    stores: Vec<S>,
}

impl<S> Router<S> {
    /// The most patterns of a router.
    pub const MAX_ROUTES: usize = 1_000;

    /// A router by these patterns, 1 to 1,000, each to a store: a [`Client`], or its URL ([`Router::connect`]).
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for no pattern, more than 1,000, one that is not valid or is given twice, and two of which neither is more
    /// specific although a name can match both.
    pub fn new<P: AsRef<str>>(routes: impl IntoIterator<Item = (P, S)>) -> Result<Self> {
        let wrong = |what: String| Error::new(ErrorKind::Config, "router", what);
        let mut taken: Vec<Route<S>> = Vec::new();
        for (text, store) in routes {
            let text = text.as_ref();
            let pattern = NamePattern::new(text)?;
            for Route { pattern: other, .. } in &taken {
                if *other == pattern {
                    return Err(wrong(format!("the pattern {text:?} is given twice")));
                }
                if pattern.overlaps(other) && !pattern.contains(other) && !other.contains(&pattern) {
                    return Err(wrong(format!(
                        "a name can match {:?} and {text:?}, and neither is more specific: add a pattern for the names that match both, or change one",
                        other.as_str()
                    )));
                }
            }
            if taken.len() == Self::MAX_ROUTES {
                return Err(wrong(format!("there are more than {} patterns", Self::MAX_ROUTES)));
            }
            taken.push(Route { pattern, stores: vec![store] });
        }
        if taken.is_empty() {
            return Err(wrong("no pattern is given; `**` matches every name".to_owned()));
        }
        Ok(Self { routes: taken })
    }

    /// Moves the names of `pattern`, a pattern of this router, from its store to the store `to`. During the move each name is held in both
    /// stores, in one order for all programs. Only [`Router::multi_lock`] takes them then, as mutexes: all or nothing, within one limit,
    /// and the loss of either is the loss of both.
    ///
    /// **A move is two roll-outs**, each at any pace. First every program gets the router with `migrate`, which excludes programs without it in
    /// the old store. When all have it, every program gets the router in which `pattern` has the new store alone. A program with only the old
    /// store and a program with only the new one do not exclude each other, so the first roll-out ends before the second begins. The router
    /// as it was before takes a move back. `from` and `to` are the same in all programs: two in opposite orders wait for each other.
    ///
    /// **Tokens**: [`MultiGuard::token`](super::MultiGuard::token) is the new store's, and [`MultiGuard::guards`](super::MultiGuard::guards) has both,
    /// the old one's first. Stores that number by the clock (memory, `file:`, the databases, the layout `fair` of Redis) agree in the order as
    /// closely as their clocks do. ZooKeeper's numbers are lower, and a fence refuses them: stop the users of such a name instead of moving it.
    ///
    /// # Examples
    /// ```
    /// # use fencelock::recipes::Router;
    /// # use fencelock::Client;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> fencelock::Result<()> {
    /// # let (redis, zk) = ("memory:from", "memory:to");
    /// let urls = Router::new([("pay/**", redis), ("**", redis)])?.migrate("pay/**", zk)?;
    /// assert_eq!(urls.stores("pay/7")?, [redis, zk]);
    ///
    /// let router = urls.connect(Client::builder).await?;
    /// let guard = router.multi_lock(["pay/7"])?.acquire().await?; // held in both
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a pattern that this router has not, or that moves already.
    pub fn migrate(mut self, pattern: impl AsRef<str>, to: S) -> Result<Self> {
        let pattern = pattern.as_ref();
        let wrong = |what: &'static str| Err(Error::new(ErrorKind::Config, "router", what).with("pattern", pattern));
        match self.routes.iter_mut().find(|route| route.pattern.as_str() == pattern) {
            None => {
                wrong("a pattern that is moved must be one of the router's, with the store that its names have now")
            }
            Some(route) if route.stores.len() > 1 => wrong("the pattern is moved twice"),
            Some(route) => {
                route.stores.push(to);
                Ok(self)
            }
        }
    }

    /// The store of `name`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`]; [`ErrorKind::Config`] where no pattern matches, and during a [move](Router::migrate), in which the name
    /// has two.
    pub fn route(&self, name: impl AsRef<str>) -> Result<&S> {
        match self.stores(&name)? {
            [store] => Ok(store),
            _ => {
                let message = "the name moves from one store to another and is held in both: only multi_lock takes it";
                Err(Error::new(ErrorKind::Config, "router", message).with("name", name.as_ref()))
            }
        }
    }

    /// The stores of `name`: a single store, or during a [move](Router::migrate) the old and the new one.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`]; [`ErrorKind::Config`] where no pattern matches.
    pub fn stores(&self, name: impl AsRef<str>) -> Result<&[S]> {
        let name = Name::new(name)?;
        let matching = self.routes.iter().filter(|route| route.pattern.matches(&name));
        // If two patterns match one name, one pattern contains the other.
        let most_specific =
            matching.reduce(|best, found| if best.pattern.contains(&found.pattern) { found } else { best });
        most_specific.map(|route| &route.stores[..]).ok_or_else(|| {
            let message = "no pattern of the router matches the name; `**` matches every name";
            Error::new(ErrorKind::Config, "router", message).with("name", name)
        })
    }
}

impl<U: AsRef<str>> Router<U> {
    /// Makes a client for each different URL, with the options of `builder`. No request is sent yet: each session is opened at its first
    /// acquire, so that an unreachable store affects its own names only.
    ///
    /// # Errors
    /// As [`ClientBuilder::connect`], for a URL that is not valid; [`ErrorKind::Config`] for a pattern that moves to the store that it has.
    pub async fn connect(&self, builder: impl Fn() -> ClientBuilder) -> Result<Router> {
        let (mut clients, mut routes): (Vec<(&str, Client)>, _) = (Vec::new(), Vec::new());
        for Route { pattern, stores: urls } in &self.routes {
            let mut stores = Vec::new();
            for url in urls.iter().map(AsRef::as_ref) {
                let known = clients.iter().find(|(known, _)| *known == url).map(|(_, client)| client.clone());
                let client = match known {
                    Some(client) => client,
                    None => {
                        let connected = builder().session_when_needed(true).connect(url).await;
                        let client = connected.map_err(|error| error.with("pattern", pattern.as_str()))?;
                        clients.push((url, client.clone()));
                        client
                    }
                };
                stores.push(client);
            }
            are_different(&stores).map_err(|error| error.with("pattern", pattern.as_str()))?;
            routes.push(Route { pattern: pattern.clone(), stores });
        }
        Ok(Router { routes })
    }
}

/// Refuses a move from a store to itself, in which a caller would wait for itself.
fn are_different(stores: &[Client]) -> Result<()> {
    match stores {
        [old, new] if Arc::ptr_eq(old.engine(), new.engine()) => {
            Err(Error::new(ErrorKind::Config, "router", "the names move to the store that they have already"))
        }
        _ => Ok(()),
    }
}

impl Router {
    /// [`Client::mutex`], in the store of the name.
    ///
    /// # Errors
    /// As [`Router::route`].
    pub fn mutex(&self, name: impl AsRef<str>) -> Result<Mutex> {
        self.route(&name)?.mutex(name)
    }

    /// [`Client::rwlock`], in the store of the name.
    ///
    /// # Errors
    /// As [`Router::route`] and [`Client::rwlock`].
    pub fn rwlock(&self, name: impl AsRef<str>) -> Result<RwLock> {
        self.route(&name)?.rwlock(name)
    }

    /// [`Client::semaphore`], in the store of the name.
    ///
    /// # Errors
    /// As [`Router::route`] and [`Client::semaphore`].
    pub fn semaphore(&self, name: impl AsRef<str>, capacity: u32) -> Result<Semaphore> {
        self.route(&name)?.semaphore(name, capacity)
    }

    /// [`Client::multi_lock`], each name in its own store; during a [move](Router::migrate) in its old store and then in its new one, by
    /// a guard for each.
    ///
    /// # Errors
    /// As [`Router::stores`] and [`MultiLock::new`].
    pub fn multi_lock<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Result<MultiLock> {
        let (mut locks, mut new_ones) = (Vec::new(), Vec::new());
        for name in names.into_iter().take(MultiLock::MAX_LOCKS + 1) {
            let stores = self.stores(&name)?;
            are_different(stores).map_err(|error| error.with("name", name.as_ref()))?;
            for (store, locks) in stores.iter().zip([&mut locks, &mut new_ones]) {
                locks.push(store.mutex(&name)?);
            }
        }
        Ok(MultiLock::new(locks)?.and_moved(new_ones))
    }
}

/// The patterns alone: URLs may hold secrets.
impl<S> fmt::Debug for Router<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Router")
            .field(&self.routes.iter().map(|route| route.pattern.as_str()).collect::<Vec<_>>())
            .finish()
    }
}
