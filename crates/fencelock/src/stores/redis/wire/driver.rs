//! The one task of a connection: it drives it, hears messages, and notices that nothing is heard any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::{MultiplexedConnection, PubSubSink, PubSubStream};
use redis::{RedisResult, Value};
use tokio::sync::oneshot;

use super::handshake::Shaken;
use super::user::{Chores, LinkUser, Subscription};
use crate::time::Clock;

/// What goes on on a connection.
#[derive(Default)]
pub(super) struct Traffic {
    /// Requests whose callers wait, or have not looked at the answer yet.
    waiting: AtomicUsize,
    /// Answers that callers looked at.
    heard: AtomicUsize,
    ended: AtomicBool,
}

impl Traffic {
    /// Whether the connection ended.
    pub(super) fn is_over(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }
}

/// A caller that waits for its answer.
pub(super) struct Waiting<'a>(&'a Traffic);

impl<'a> Waiting<'a> {
    pub(super) fn new(traffic: &'a Traffic) -> Self {
        traffic.waiting.fetch_add(1, Ordering::Relaxed);
        Self(traffic)
    }
}

impl Waiting<'_> {
    /// The caller looks at its answer.
    pub(super) fn answered(self) {
        self.0.heard.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The task of a connection: everything that is awaited on its behalf.
pub(super) async fn drive(
    shaken: Shaken,
    chores: oneshot::Receiver<Chores>,
    (user, number): (Arc<dyn LinkUser>, u64),
    subscription: Option<Subscription>,
    traffic: Arc<Traffic>,
    clock: Arc<dyn Clock>,
    patience: Duration,
) {
    let Shaken { requests, driver, messages: pubsub } = shaken;
    let chores = async {
        if let Ok(chores) = chores.await {
            chores.await;
        }
        std::future::pending::<()>().await;
    };
    // Told however it ends: also when the task is dropped.
    let _told = Told { traffic: &traffic, user: &*user, number };
    // The driver first: mostly it is what woke the task.
    tokio::select! {
        biased;
        () = driver => {}
        () = messages(pubsub, subscription.as_ref(), &*clock, patience) => {}
        () = silence(requests, &traffic, &*clock, patience) => tracing::debug!(?patience, "a connection without an answer is given up"),
        () = chores => {}
    }
}

struct Told<'a> {
    traffic: &'a Traffic,
    user: &'a dyn LinkUser,
    number: u64,
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.traffic.end();
        self.user.disconnected(self.number);
    }
}

/// Hears messages on a second connection, until it ends, or answers nothing any more: nobody else asks anything there.
async fn messages(
    pubsub: Option<(PubSubSink, PubSubStream)>,
    subscription: Option<&Subscription>,
    clock: &dyn Clock,
    patience: Duration,
) {
    let (Some((sink, mut stream)), Some(subscription)) = (pubsub, subscription) else {
        return std::future::pending().await;
    };
    let ping = || {
        let mut sink = sink.clone();
        async move { sink.ping().await }
    };
    let heard = async {
        while let Some(message) = stream.next().await {
            subscription.heard(message.get_channel_name().as_bytes(), message.get_payload_bytes());
        }
    };
    tokio::select! {
        () = heard => {}
        () = unanswered(|| Some(ping()), || 0, clock, patience) => {
            tracing::debug!(?patience, "a connection for messages that answers nothing is given up");
        }
    }
}

/// Completes when a question is not answered for half of `patience`, nor anything else `heard`; asks as often, if it likes.
async fn unanswered<A>(ask: impl Fn() -> Option<A>, heard: impl Fn() -> usize, clock: &dyn Clock, patience: Duration)
where
    A: Future<Output = RedisResult<Value>>,
{
    loop {
        clock.sleep_until(clock.now().after(patience / 2)).await;
        let before = heard();
        let Some(question) = ask() else { continue };
        let answered = tokio::select! {
            biased;
            // A refusal is an answer, too: the server is busy.
            answer = question => answer.map_or_else(|error| error.code().is_some(), |_| true),
            () = clock.sleep_until(clock.now().after(patience / 2)) => heard() != before,
        };
        if !answered {
            return;
        }
    }
}

/// Completes when somebody waits, and neither a question is answered nor anything that was asked before it. A task that stands
/// still and looks at no answer waits as well, so waiting alone proves nothing.
async fn silence(wire: MultiplexedConnection, traffic: &Traffic, clock: &dyn Clock, patience: Duration) {
    let ping = || {
        let mut wire = wire.clone();
        let is_waited_for = traffic.waiting.load(Ordering::Relaxed) > 0;
        is_waited_for.then_some(async move { wire.send_packed_command(&redis::cmd("PING")).await })
    };
    unanswered(ping, || traffic.heard.load(Ordering::Relaxed), clock, patience).await;
}

#[cfg(test)]
mod tests {
    use futures_core::future::BoxFuture;
    use futures_util::FutureExt;
    use redis::aio::PubSub;
    use redis::{ProtocolVersion, RedisConnectionInfo, RedisError};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::connection::Connection;
    use super::super::script::Script;
    use super::super::server::Server;
    use super::super::user::LinkUser;
    use super::*;
    use crate::error::Result;
    use crate::kit::fault::Meaning;
    use crate::stores::memory::VirtualClock;

    /// A user that is told nothing.
    struct Deaf;

    impl LinkUser for Deaf {
        fn scripts(&self) -> Vec<&'static Script> {
            Vec::new()
        }

        fn greet<'a>(&'a self, _: &'a Arc<Connection>, _: &'a Server) -> BoxFuture<'a, Result<Option<Chores>>> {
            Box::pin(async { Ok(None) })
        }

        fn meaning(&self, _: &RedisError) -> Option<Meaning> {
            None
        }
    }

    /// Answers so many questions, and swallows the others.
    async fn answer(mut stream: tokio::io::DuplexStream, mut pings: usize) {
        let mut asked = [0; 4096];
        while let Ok(read @ 1..) = stream.read(&mut asked).await {
            let text = String::from_utf8_lossy(&asked[..read]).into_owned();
            for command in text.split('*').skip(1) {
                let answer: &[u8] = match command.contains("PING") {
                    true if pings == 0 => continue,
                    true => b"*2\r\n$4\r\npong\r\n$0\r\n\r\n",
                    false => b"+OK\r\n",
                };
                pings -= usize::from(command.contains("PING"));
                stream.write_all(answer).await.unwrap();
            }
        }
    }

    /// What is sent is read and answered by tasks of this thread, which all had many turns.
    async fn is_over_when_all_is_answered(future: &mut (impl Future<Output = ()> + Unpin)) -> bool {
        for _ in 0..100 {
            if future.now_or_never().is_some() {
                return true;
            }
            tokio::task::yield_now().await;
        }
        false
    }

    #[tokio::test]
    async fn a_connection_for_messages_that_answers_nothing_any_more_is_given_up_and_no_sooner() {
        let (ours, theirs) = tokio::io::duplex(4096);
        let server = tokio::spawn(answer(theirs, 3));
        let info = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP2);
        let pubsub = PubSub::new(&info, ours).await.unwrap();
        let subscription = Subscription { user: Arc::new(Deaf), channel: String::new(), connection: 1 };
        let (clock, patience) = (VirtualClock::new(), Duration::from_secs(1));
        let start = clock.now();
        let mut given_up = std::pin::pin!(messages(Some(pubsub.split()), Some(&subscription), &clock, patience));
        while !is_over_when_all_is_answered(&mut given_up).await {
            assert!(clock.now().since(start) < patience * 100, "it is never given up");
            clock.advance(patience / 4);
        }
        assert!(clock.now().since(start) >= patience / 2 * 5, "it was given up while it answered");
        server.abort();
    }

    /// Whether a connection that answers no question is given up within ten times its patience, if so much is heard of it.
    fn is_given_up(heard: impl Fn() -> usize) -> bool {
        let (clock, patience) = (VirtualClock::new(), Duration::from_secs(1));
        let given_up = unanswered(|| Some(std::future::pending()), heard, &clock, patience);
        let mut given_up = std::pin::pin!(given_up);
        (0..20).any(|_| {
            let is_over = given_up.as_mut().now_or_never().is_some();
            clock.advance(patience / 2);
            is_over
        })
    }

    #[test]
    fn a_connection_that_answers_what_was_asked_before_is_not_silent() {
        let answers = AtomicUsize::new(0);
        assert!(!is_given_up(|| answers.fetch_add(1, Ordering::Relaxed)));
        assert!(is_given_up(|| 0));
    }
}
