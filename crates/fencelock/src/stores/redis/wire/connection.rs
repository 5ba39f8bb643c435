//! A connection, which requests share.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::OptionFuture;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::AbortHandle;

use super::config::Config;
use super::driver::{Traffic, Waiting, drive};
use super::fault::{fault, is_of_a_replica, is_unknown_script, meant};
use super::handshake::{Pushed, shake_hands};
use super::script::{Call, Script};
use super::server::Server;
use super::user::{Chores, LinkUser, Subscription};
use crate::error::{Error, Result};
use crate::store::Tasks;
use crate::stores::redis::cluster::{Possession, Routes, slot_of_command};
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
    /// The links to the nodes of a Cluster, for requests with a key.
    pub(crate) routes: Weak<Routes>,
    /// How many more requests by a route may be in flight: a caller that gives up does not leave a long queue.
    window: Semaphore,
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
        let (possession, routes) = (Possession::of(config, clock), Weak::clone(&config.routes));
        let window = Semaphore::new(256);
        let connection = Self { wire, traffic, task, user, server_name, replicas, possession, routes, window, number };
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

    /// Runs a script.
    pub(crate) async fn run<R>(&self, operation: &'static str, call: &Call<R>) -> Result<R> {
        (call.read)(self.ask(operation, &call.command, Some(call.script)).await?)
    }

    /// Sends one command.
    pub(crate) async fn command(&self, operation: &'static str, command: &Cmd) -> Result<Value> {
        self.ask(operation, command, None).await
    }

    /// Asks this server, or the owner of the key where there are routes.
    async fn ask(&self, operation: &'static str, command: &Cmd, script: Option<&Script>) -> Result<Value> {
        match self.routes.upgrade().and_then(|routes| Some((routes, slot_of_command(command)?))) {
            None => self.ask_here(operation, command, script).await,
            Some((routes, slot)) => {
                routes.ask(slot, async |owner| owner.ask_here(operation, command, script).await).await
            }
        }
    }

    /// Loads a script that the server forgot, and runs it again.
    async fn ask_here(&self, operation: &'static str, command: &Cmd, script: Option<&Script>) -> Result<Value> {
        let has_routes = self.routes.strong_count() > 0;
        let permit = OptionFuture::from(has_routes.then(|| self.window.acquire())).await;
        let mut answer = self.send(command).await;
        if let Some(script) = script.filter(|_| answer.as_ref().is_err_and(is_unknown_script)) {
            self.send(&script.load()).await.map_err(|error| self.fault(operation, &error))?;
            answer = self.send(command).await;
        }
        // All requests that wait for replicas share a round.
        drop(permit);
        let value = answer.map_err(|error| self.fault(operation, &error))?;
        // By a route, a renewal is of one lock. That this lock is gone is true without the replicas' word.
        let is_gone = has_routes && operation == "renew" && matches!(&value, Value::Array(lost) if !lost.is_empty());
        if !is_gone {
            self.counts(operation, Some(command)).await?;
        }
        Ok(value)
    }

    /// Completes once the answer to this request counts: once enough replicas have it. Ends this connection if the second one ended.
    pub(crate) async fn counts(&self, operation: &str, request: Option<&Cmd>) -> Result<()> {
        let has_routes = self.routes.strong_count() > 0;
        let slot = request.filter(|_| has_routes).and_then(slot_of_command);
        // Where there are routes, a request without a key grants nothing.
        let may_grant = |_: &&Replicas| needs_replicas(operation) && has_routes == slot.is_some();
        let Some(replicas) = self.replicas.as_ref().filter(may_grant) else { return Ok(()) };
        replicas.acknowledged(slot).await.inspect_err(|_| {
            if replicas.has_ended() {
                self.end()
            }
        })
    }

    fn fault(&self, operation: &'static str, error: &RedisError) -> Error {
        self.user.meaning(error).map_or_else(|| fault(operation, error), |own| meant(operation, error, &own))
    }

    async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        let sent = self.possession.as_ref().map(|possession| possession.clock.now());
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
