//! What stores over databases have in common: for whom a connection is made, and how locks of others are reached; in `lease.rs` a session
//! of our own layout, in `session_locks.rs` locks of others that last as long as a connection, in
//! `url.rs` what their URLs say in the same words.

pub(crate) mod lease;
pub(crate) mod session_locks;
pub(crate) mod url;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;

use crate::error::Result;
use crate::kit::reconnect::{Dial, Reconnect};
use crate::store::Opening;

/// What is done on a connection besides requests, until it ends. Chores hold the connection weakly, or it would never be closed.
pub(crate) type Chores = BoxFuture<'static, ()>;

/// Who a connection is made for: a session, or somebody who looks at locks.
pub(crate) trait User<C>: Send + Sync {
    /// Says the first words on a new connection, whose server is fit by then and has all that of ours is needed.
    fn greet(self: Arc<Self>, connection: Arc<C>) -> BoxFuture<'static, Result<Option<Chores>>>;

    /// Something was told on the connection of this number.
    fn heard(&self, _connection: u64, _message: &[u8]) {}

    /// The connection of this number ended.
    fn disconnected(&self, _connection: u64) {}
}

/// A user who says and hears nothing.
pub(crate) struct Nobody;

impl<C: Send + Sync + 'static> User<C> for Nobody {
    fn greet(self: Arc<Self>, _: Arc<C>) -> BoxFuture<'static, Result<Option<Chores>>> {
        Box::pin(async { Ok(None) })
    }
}

/// How a database is reached by those who need nothing of ours there.
pub(crate) trait Reach: Dial + Sized {
    type Config: fmt::Debug + Send + Sync + 'static;

    /// A way for `user`, whose session is opened with `opening`; without one it only looks. `silence` stands for how long a connection may
    /// be silent.
    fn reach(
        config: &Arc<Self::Config>,
        user: Arc<dyn User<Self::Connection>>,
        opening: Option<&Opening>,
        silence: Option<Duration>,
    ) -> Arc<Reconnect<Self>>;
}
