//! A connection, which requests share.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use super::config::Config;
use super::driver::{Traffic, Waiting, drive};
use super::fault::{fault, is_of_a_replica, is_unknown_script, meant};
use super::handshake::{Pushed, shake_hands};
use super::script::Call;
use super::server::Server;
use super::user::{Chores, LinkUser, Subscription};
use crate::error::{Error, Result};
use crate::store::Tasks;
use crate::stores::redis::cluster::Possession;
use crate::stores::redis::sentinel::{Messages, Replicas, needs_replicas};
use crate::time::Clock;

/// A connection to the server. A drop closes it, even with requests under way.
pub(crate) struct Connection {
    wire: MultiplexedConnection,
    traffic: Arc<Traffic>,
    task: AbortHandle,
    user: Arc<dyn LinkUser>,
    server_name: String,
    /// The acknowledgements of the server's replicas, which answers need to count; `None` if answers need none.
    pub(super) replicas: Option<Replicas>,
    /// The slot that the server has; `None` where the server is no node of a Cluster.
    pub(crate) possession: Option<Possession>,
    /// The number of the connection in its link, from 1.
    pub(crate) number: u64,
}

impl Connection {
    /// Connects and logs in for `user`; `tasks` drive the connection. Subscribes to the user's channel. The returned sender starts the
    /// chores that it receives.
    pub(super) async fn open(
        config: &Config,
        user: &Arc<dyn LinkUser>,
        number: u64,
        clock: &Arc<dyn Clock>,
        silence: Duration,
        tasks: &Tasks,
    ) -> Result<(Self, oneshot::Sender<Chores>, Option<Messages>)> {
        let subscription = Subscription::of(user, number);
        let channel = subscription.as_ref().map(|subscription| subscription.channel.clone());
        let (pushed, messages) = receiver(subscription, config.min_replicas > 0);
        let (wire, driver) = shake_hands(config, pushed.as_ref(), &**clock).await?;
        let traffic = Arc::new(Traffic::default());
        let (chores, receiver) = oneshot::channel();
        let (user, served) = (Arc::clone(user), (Arc::clone(user), number));
        let task = drive((wire.clone(), driver), receiver, served, Arc::clone(&traffic), Arc::clone(clock), silence);
        let (task, server_name, replicas) = (tasks.spawn(task), format!("{config:?}"), None);
        let possession = Possession::of(config, clock);
        let connection = Self { wire, traffic, task, user, server_name, replicas, possession, number };
        if let Some(channel) = channel {
            connection.subscribe(&channel).await?;
        }
        Ok((connection, chores, messages))
    }

    /// Subscribes to a further channel, until the connection ends. Only for users with a channel from the start.
    pub(crate) async fn subscribe(&self, channel: &str) -> Result<()> {
        self.command("subscribe", redis::cmd("SUBSCRIBE").arg(channel)).await.map(drop)
    }

    /// Ends the subscription to a channel.
    pub(crate) async fn unsubscribe(&self, channel: &str) -> Result<()> {
        self.command("unsubscribe", redis::cmd("UNSUBSCRIBE").arg(channel)).await.map(drop)
    }

    pub(crate) fn is_alive(&self) -> bool {
        !self.traffic.has_ended()
    }

    /// The URL of the server, without secrets.
    pub(crate) fn server_name(&self) -> &str {
        &self.server_name
    }

    /// The server's answer to INFO; empty if the user may not run INFO.
    pub(super) async fn server(&self) -> Result<Server> {
        match self.send(&redis::cmd("INFO")).await {
            Ok(info) => Ok(Server::answered(info)),
            Err(error) if error.code() == Some("NOPERM") && self.user.only_looks() => Ok(Server::default()),
            Err(error) if error.code() == Some("NOPERM") => {
                tracing::warn!(
                    "The user may not run INFO. The client cannot see whether the server evicts keys, and every new connection counts as a restart, which costs the locks."
                );
                Ok(Server::default())
            }
            Err(error) => Err(fault("connect", &error)),
        }
    }

    /// Makes sure that the server knows the user's scripts.
    pub(super) async fn load_scripts(&self) -> Result<()> {
        let mut pipeline = redis::pipe();
        for script in self.user.scripts() {
            pipeline.add_command(script.load());
        }
        let count = pipeline.len();
        if count == 0 {
            return Ok(());
        }
        let waiting = Waiting::new(&self.traffic);
        let loaded = self.wire.clone().send_packed_commands(&pipeline, 0, count).await;
        waiting.answered();
        let loaded =
            loaded.and_then(|values| values.into_iter().map(Value::extract_error).collect::<RedisResult<Vec<_>>>());
        loaded.map(drop).map_err(|error| fault("load scripts", &error))
    }

    /// Runs a script. Loads a script that the server forgot, and runs it again.
    pub(crate) async fn run<R>(&self, operation: &'static str, call: &Call<R>) -> Result<R> {
        let mut answer = self.send(&call.command).await;
        if answer.as_ref().is_err_and(is_unknown_script) {
            self.command(operation, &call.script.load()).await?;
            answer = self.send(&call.command).await;
        }
        let value = answer.map_err(|error| self.fault(operation, &error))?;
        self.counts(operation).await?;
        (call.read)(value)
    }

    /// Sends one command.
    pub(crate) async fn command(&self, operation: &'static str, command: &Cmd) -> Result<Value> {
        let value = self.send(command).await.map_err(|error| self.fault(operation, &error))?;
        self.counts(operation).await?;
        Ok(value)
    }

    /// Completes once the answer to this request counts: once enough replicas have it. Ends this connection if the second one ended.
    pub(crate) async fn counts(&self, operation: &str) -> Result<()> {
        let Some(replicas) = self.replicas.as_ref().filter(|_| needs_replicas(operation)) else { return Ok(()) };
        replicas.acknowledged().await.inspect_err(|_| {
            if replicas.has_ended() {
                self.end()
            }
        })
    }

    fn fault(&self, operation: &'static str, error: &RedisError) -> Error {
        self.user.meaning(error).map_or_else(|| fault(operation, error), |own| meant(operation, error, &own))
    }

    async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        let sent = self.possession.as_ref().map(Possession::now);
        let waiting = Waiting::new(&self.traffic);
        let answer = self.wire.clone().send_packed_command(command).await;
        waiting.answered();
        let answer = answer.and_then(Value::extract_error);
        if let Some((possession, sent)) = self.possession.as_ref().zip(sent) {
            possession.answered(self, sent, &answer);
        }
        if answer.as_ref().is_err_and(|error| is_of_a_replica(error, &*self.user)) {
            // Another server grants locks now: the next request connects anew, to the address's server of that time.
            self.user.demoted();
            self.end();
        }
        answer
    }

    pub(crate) fn end(&self) {
        self.traffic.end();
        self.task.abort();
    }
}

/// The receiver of a subscription's messages: the user, or, with `later`, a queue of messages that count later.
fn receiver(subscription: Option<Subscription>, later: bool) -> (Option<Pushed>, Option<Messages>) {
    let Some(subscription) = subscription else { return (None, None) };
    if !later {
        return (Some(Arc::new(move |push| subscription.pushed(&push))), None);
    }
    let (sender, messages) = mpsc::unbounded_channel();
    // Nothing receives them once the connection has ended.
    (Some(Arc::new(move |push| drop(sender.send(push)))), Some((subscription, messages)))
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}
