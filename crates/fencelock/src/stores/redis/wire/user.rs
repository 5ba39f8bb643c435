//! The user of a connection: the layout's side of the wire.

use std::sync::Arc;

use futures_core::future::BoxFuture;
use redis::{PushInfo, PushKind, RedisError, Value};

use super::connection::Connection;
use super::server::Server;
use crate::error::Result;
use crate::kit::fault::Meaning;

/// The tasks on a connection besides requests, until it ends.
pub(crate) type Chores = BoxFuture<'static, ()>;

/// The greeting of a new connection, and the chores of that connection.
pub(crate) type Greeting<'a> = BoxFuture<'a, Result<Option<Chores>>>;

/// A session of a layout, or a reader without a session. The wire makes its connections, loads scripts that a server lacks, calls its
/// greeting, and delivers the server's messages.
pub(crate) trait LinkUser: Send + Sync {
    /// The channel to which each new connection subscribes.
    fn channel(&self) -> Option<String> {
        None
    }

    /// Whether the user writes nothing, so that a server that takes no locks is enough.
    fn only_looks(&self) -> bool {
        false
    }

    /// Sends the first requests of the layout on a new connection. The server has been checked before. Refuses keys of another layout.
    /// Returns the chores of the connection. Chores hold the connection weakly, so that it can be closed. By default sends nothing.
    fn greet<'a>(&'a self, _: &'a Arc<Connection>, _: &'a Server) -> Greeting<'a> {
        Box::pin(async { Ok(None) })
    }

    /// A message arrived on the connection with this number.
    fn received(&self, _connection: u64, _channel: &[u8], _message: &[u8]) {}

    /// The connection with this number ended. Messages under way are lost.
    fn disconnected(&self, _connection: u64) {}

    /// The server is a replica now. Another server grants locks from now on, and may not have all of this server's grants.
    fn demoted(&self) {}

    /// The meaning of an error that a script of the layout raised; `None` for every other error, which the wire judges by itself.
    fn meaning(&self, error: &RedisError) -> Option<Meaning>;
}

/// The subscription of a user on one connection.
#[derive(Clone)]
pub(crate) struct Subscription {
    pub(super) user: Arc<dyn LinkUser>,
    pub(super) channel: String,
    /// The number of the connection.
    pub(super) connection: u64,
}

impl Subscription {
    /// The subscription of `user` on the connection with this number, if `user` has a channel.
    pub(super) fn of(user: &Arc<dyn LinkUser>, connection: u64) -> Option<Self> {
        let channel = user.channel()?;
        Some(Self { user: Arc::clone(user), channel, connection })
    }

    /// Receives a message that the server sent unasked.
    pub(crate) fn pushed(&self, push: &PushInfo) {
        if push.kind == PushKind::Message
            && let [Value::BulkString(channel), Value::BulkString(message), ..] = push.data.as_slice()
        {
            self.user.received(self.connection, channel, message);
        }
    }
}
