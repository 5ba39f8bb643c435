//! A store that was opened by hand.

use std::sync::Arc;

use super::Store;

/// A store of any kind that exists already, for [`ClientBuilder::connect_store`](crate::ClientBuilder::connect_store). Clones are the same
/// store.
///
/// Converted from a `MemoryStore`, a `FileStore`, or an `Arc` of any other store.
///
/// ```
/// use fencelock::{AnyStore, Client, memory::MemoryStore};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> fencelock::Result<()> {
/// let store: AnyStore = MemoryStore::new().into();
/// let (one, other) = (Client::builder().connect_store(store.clone()).await?, Client::builder().connect_store(store).await?);
/// let guard = one.mutex("deploy")?.acquire().await?;
/// assert!(other.mutex("deploy")?.try_acquire().await.is_err());
/// # drop(guard);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct AnyStore(pub(crate) Arc<dyn Store>);

impl From<Arc<dyn Store>> for AnyStore {
    fn from(store: Arc<dyn Store>) -> Self {
        Self(store)
    }
}

impl<S: Store> From<Arc<S>> for AnyStore {
    fn from(store: Arc<S>) -> Self {
        Self(store)
    }
}
