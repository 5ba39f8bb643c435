//! Code that the stores over databases share: `link.rs` has the connections, `session.rs` the session of our own layout, over `call.rs`,
//! `batch.rs` (requests that go together), `ear.rs` (wakes) and `dialect.rs` (differences), `session_locks.rs` other programs' locks that last
//! as long as a connection.

pub(crate) mod batch;
pub(crate) mod call;
pub(crate) mod dialect;
pub(crate) mod ear;
pub(crate) mod link;
pub(crate) mod session;
pub(crate) mod session_locks;
pub(crate) mod store;
pub(crate) mod url;

use std::sync::Arc;

use futures_core::future::BoxFuture;

use crate::error::Result;

/// The outcome of a `Schema::migrate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Migration {
    /// The schema or the tables were not there, and were made.
    Made,
    /// The schema or the tables were there, and are this release's.
    UpToDate,
}

impl Migration {
    pub(crate) fn of(is_new: bool) -> Self {
        if is_new { Self::Made } else { Self::UpToDate }
    }
}

/// The background work of a connection, until the connection ends. Chores hold the connection weakly, so that it can be closed.
pub(crate) type Chores = BoxFuture<'static, ()>;

/// A session, or a reader of queues. `greet` sends the first requests on a checked connection; `receive` takes messages without a request.
pub(crate) trait User<C>: Send + Sync {
    fn greet(self: Arc<Self>, _connection: Arc<C>) -> BoxFuture<'static, Result<Option<Chores>>> {
        Box::pin(async { Ok(None) })
    }

    fn receive(&self, _connection: u64, _message: &[u8]) {}

    fn disconnected(&self, _connection: u64) {}
}

pub(crate) struct NoUser;

impl<C> User<C> for NoUser {}
