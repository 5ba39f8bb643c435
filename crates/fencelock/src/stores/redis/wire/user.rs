//! Who a connection is made for: all that the wire knows of a layout.

use std::sync::Arc;

use futures_core::future::BoxFuture;
use redis::{PushInfo, PushKind, RedisError, Value};

use super::connection::Connection;
use super::script::Script;
use super::server::Server;
use crate::error::Result;
use crate::kit::fault::Meaning;

/// What is done on a connection besides requests, until it ends.
pub(crate) type Chores = BoxFuture<'static, ()>;

/// A session of a layout, or a reader without a session. The wire makes connections for it, loads its scripts there, has it greet the
/// server, and brings it what the server says.
pub(crate) trait LinkUser: Send + Sync {
    /// The scripts that a server is taught on each new connection.
    fn scripts(&self) -> Vec<&'static Script>;

    /// The channel that each new connection subscribes to.
    fn channel(&self) -> Option<String> {
        None
    }

    /// Whether it writes nothing, so that a server will do that takes no locks.
    fn only_looks(&self) -> bool {
        false
    }

    /// Says the first words of the layout on a new connection. The server can be trusted with locks by then, and knows the scripts; keys
    /// of another layout are refused here. The answer is what to do on the connection until it ends. Chores hold the connection weakly, or
    /// it would never be closed.
    fn greet<'a>(
        &'a self,
        connection: &'a Arc<Connection>,
        server: &'a Server,
    ) -> BoxFuture<'a, Result<Option<Chores>>>;

    /// A message came on the connection of this number.
    fn received(&self, _connection: u64, _channel: &[u8], _message: &[u8]) {}

    /// The connection of this number ended. Messages on their way to it are lost.
    fn disconnected(&self, _connection: u64) {}

    /// The server is a replica now. Another server decides from now on, and may not have heard of all that this one granted.
    fn demoted(&self) {}

    /// What an error means that a script of the layout raised; `None` for every other error, which the wire judges by itself.
    fn meaning(&self, error: &RedisError) -> Option<Meaning>;
}

/// What a user is told on one connection.
#[derive(Clone)]
pub(crate) struct Subscription {
    pub(super) user: Arc<dyn LinkUser>,
    pub(super) channel: String,
    /// The number of the connection.
    pub(super) connection: u64,
}

impl Subscription {
    /// The subscription of `user` on the connection of this number, if it has one.
    pub(super) fn of(user: &Arc<dyn LinkUser>, connection: u64) -> Option<Self> {
        let channel = user.channel()?;
        Some(Self { user: Arc::clone(user), channel, connection })
    }

    /// What the server sent unasked.
    pub(crate) fn pushed(&self, push: &PushInfo) {
        if push.kind == PushKind::Message
            && let [Value::BulkString(channel), Value::BulkString(message), ..] = push.data.as_slice()
        {
            self.user.received(self.connection, channel, message);
        }
    }
}
