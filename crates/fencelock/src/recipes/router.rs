//! Names to stores, by pattern.

use std::fmt;

use super::MultiLock;
use super::pattern::Pattern;
use crate::client::{Client, ClientBuilder};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::primitives::{Mutex, RwLock, Semaphore};

/// Which store a name is locked in: the few locks that must not fail in the safest store, the many in the fastest.
///
/// A pattern is parts between slashes as a name has them. A part may be `*`, which stands for any one part; the last part may be `**`,
/// which stands for one or more. **The most specific pattern that matches a name decides**, in whatever order the patterns are given.
/// Patterns of which neither is more specific, as `a/*` and `*/b`, are refused where a name can match both. A name that no
/// pattern matches is an error: a router has no other store for it. The pattern `**` matches every name.
///
/// A router never changes, and a store that is out of reach is never replaced by another: a name is locked in one store, or not at all.
/// **All programs that share locks need the same patterns.** Where two programs disagree about the store of a name, both can hold it. So
/// stop every user of a name before you give it another store.
///
/// # Examples
/// ```
/// use fencelock::recipes::Router;
/// use fencelock::Client;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let (zk, redis) = ("memory:safe", "memory:fast");
/// let urls = Router::new([("pay/**", zk), ("**", redis)])?;
/// assert_eq!(urls.route("pay/7")?, &zk);
///
/// let router = urls.connect(Client::builder).await?;
/// let guard = router.mutex("pay/7")?.acquire().await?;
/// guard.release().await?;
/// # Ok::<(), fencelock::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Router<S = Client> {
    routes: Vec<(Pattern, S)>,
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
        let mut taken: Vec<(Pattern, S)> = Vec::new();
        for (text, store) in routes {
            let text = text.as_ref();
            let pattern = Pattern::parse(text).map_err(|fault| {
                wrong(format!(
                    "the pattern {text:?} is not valid: {fault}; `*` is any one part between slashes, and `**` at the end one or more"
                ))
            })?;
            for (other, _) in &taken {
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
            taken.push((pattern, store));
        }
        if taken.is_empty() {
            return Err(wrong("no pattern is given; `**` matches every name".to_owned()));
        }
        Ok(Self { routes: taken })
    }

    /// The store of `name`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`]; [`ErrorKind::Config`] where no pattern matches.
    pub fn route(&self, name: impl AsRef<str>) -> Result<&S> {
        let name = Name::new(name)?;
        let matching = self.routes.iter().filter(|(pattern, _)| pattern.matches(&name));
        // Of two that match one name, one contains the other.
        let most_specific = matching.reduce(|best, found| if best.0.contains(&found.0) { found } else { best });
        most_specific.map(|(_, store)| store).ok_or_else(|| {
            let message = "no pattern of the router matches the name; `**` matches every name";
            Error::new(ErrorKind::Config, "router", message).with("name", name)
        })
    }
}

impl<U: AsRef<str>> Router<U> {
    /// One client for each different URL, with the options of `builder`. No store is asked anything yet: each session is opened when
    /// something is acquired, so that a store that is out of reach is missed by its own names only.
    ///
    /// # Errors
    /// As [`ClientBuilder::connect`], for a URL that is not valid.
    pub async fn connect(&self, builder: impl Fn() -> ClientBuilder) -> Result<Router> {
        let (mut clients, mut routes): (Vec<(&str, Client)>, _) = (Vec::new(), Vec::new());
        for (pattern, url) in &self.routes {
            let url = url.as_ref();
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
            routes.push((pattern.clone(), client));
        }
        Ok(Router { routes })
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

    /// [`Client::multi_lock`], each name in its own store.
    ///
    /// # Errors
    /// As [`Router::route`] and [`MultiLock::new`].
    pub fn multi_lock<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Result<MultiLock> {
        let names = names.into_iter().take(MultiLock::MAX_LOCKS + 1);
        MultiLock::new(names.map(|name| self.mutex(name)).collect::<Result<Vec<_>>>()?)
    }
}

/// The patterns alone: URLs may hold secrets.
impl<S> fmt::Debug for Router<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Router")
            .field(&self.routes.iter().map(|(pattern, _)| pattern.as_str()).collect::<Vec<_>>())
            .finish()
    }
}
