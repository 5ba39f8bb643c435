//! Code that the stores over databases share. This file has the user of a connection and the way to a server that has none of our tables.
//! `session.rs` has the session of our own layout, over `call.rs`, the calls of functions, `batch.rs`, requests that go together, and
//! `dialect.rs`, in what databases differ.
//! `session_locks.rs` has other programs' locks that last as long as a connection, `url.rs` the options of URLs.

pub(crate) mod batch;
pub(crate) mod call;
pub(crate) mod dialect;
pub(crate) mod session;
pub(crate) mod session_locks;
pub(crate) mod store;
pub(crate) mod url;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;

use crate::error::Result;
use crate::kit::reconnect::{Dial, Reconnect};
use crate::store::Opening;

/// The background work of a connection, until the connection ends. Chores hold the connection weakly, or it would never be closed.
pub(crate) type Chores = BoxFuture<'static, ()>;

pub(crate) trait User<C>: Send + Sync {
    fn greet(self: Arc<Self>, connection: Arc<C>) -> BoxFuture<'static, Result<Option<Chores>>>;

    fn heard(&self, _connection: u64, _message: &[u8]) {}

    fn disconnected(&self, _connection: u64) {}
}

pub(crate) struct Nobody;

impl<C: Send + Sync + 'static> User<C> for Nobody {
    fn greet(self: Arc<Self>, _: Arc<C>) -> BoxFuture<'static, Result<Option<Chores>>> {
        Box::pin(async { Ok(None) })
    }
}

pub(crate) trait Reach: Dial + Sized {
    type Config: fmt::Debug + Send + Sync + 'static;

    /// A way for `user`, who only reads without `opening`. A connection that owes an answer for `silence` is given up.
    fn reach(
        config: &Arc<Self::Config>,
        user: Arc<dyn User<Self::Connection>>,
        opening: Option<&Opening>,
        silence: Option<Duration>,
    ) -> Arc<Reconnect<Self>>;
}
