//! A connection: received bytes, bytes to send, and deadlines. Polled by the session's task.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::conversation::{Conversation, End};
use crate::error::{Error, ErrorKind};
use crate::frames::FrameReader;
use crate::net::Stream;
use crate::outbox::Request;
use crate::proto::request;
use crate::shared::Shared;

/// No more requests are taken out of the line while this many bytes wait for the socket.
const ENOUGH: usize = 64 * 1024;

pub(crate) struct Connection {
    shared: Arc<Shared>,
    stream: Box<dyn Stream>,
    frames: FrameReader,
    conversation: Conversation,
    out: Outgoing,
    /// Requests between the line and the buffer; empty except within a poll.
    taken: VecDeque<Request>,
    /// The longest silence of a server that owes an answer.
    patience: Duration,
    /// The longest time without a request, after which a ping is sent.
    idle: Duration,
    last_sent: Instant,
    /// The longest time in which a server that owes an answer may send bytes without a whole answer.
    longest_answer: Duration,
    /// Since when the server owes an answer and has sent nothing.
    silent_since: Option<Instant>,
    /// Since when the server owes an answer and has given none.
    owing_since: Option<Instant>,
    closing: Option<Instant>,
    close_written: bool,
    timer: Pin<Box<Sleep>>,
    /// Signalled when all credentials were accepted.
    ready: Option<oneshot::Sender<()>>,
}

/// Bytes that wait for the socket.
#[derive(Debug, Default)]
struct Outgoing {
    bytes: Vec<u8>,
    /// How many of `bytes` are written.
    written: usize,
    /// How many bytes of the connection were written and left the buffer.
    before: u64,
    /// Whether something was written that the stream may still hold back, as TLS does.
    held_back: bool,
}

impl Outgoing {
    fn waiting(&self) -> usize {
        self.bytes.len() - self.written
    }

    fn flushed(&self) -> u64 {
        self.before + self.written as u64
    }

    /// Frees the buffer once all of it is written.
    fn recycle(&mut self) {
        if self.waiting() == 0 {
            self.before += self.written as u64;
            self.written = 0;
            self.bytes.clear();
            self.bytes.shrink_to(ENOUGH);
        }
    }
}

impl Connection {
    pub(crate) fn new(
        shared: Arc<Shared>,
        stream: Box<dyn Stream>,
        conversation: Conversation,
        (patience, idle): (Duration, Duration),
        ready: Option<oneshot::Sender<()>>,
    ) -> Self {
        let now = Instant::now();
        let frames = FrameReader::new(shared.config.max_answer);
        // After this time, the caller has given up its request.
        let longest_answer = shared.request_deadline.max(patience);
        let mut connection = Self {
            shared,
            stream,
            frames,
            conversation,
            out: Outgoing::default(),
            taken: VecDeque::new(),
            patience,
            idle,
            longest_answer,
            last_sent: now,
            silent_since: None,
            owing_since: None,
            closing: None,
            close_written: false,
            timer: Box::pin(sleep_until(now + patience)),
            ready,
        };
        connection.conversation.begin(&mut connection.out.bytes);
        connection.tell_ready();
        connection
    }

    /// Serves the connection until it ends.
    pub(crate) async fn serve(&mut self) -> End {
        std::future::poll_fn(|context| match self.poll(context) {
            Ok(()) => Poll::Pending,
            Err(end) => Poll::Ready(end),
        })
        .await
    }

    /// Does all due work. Answers come first: an answer may settle a request that a deadline would give up.
    fn poll(&mut self, context: &mut Context<'_>) -> Result<(), End> {
        while self.poll_receive(context)?.is_ready() {}
        self.keep_times()?;
        loop {
            let may_take_more = self.out.waiting() < ENOUGH;
            let took = may_take_more && self.take_requests(context);
            let flushed = self.poll_send(context)?.is_ready();
            if !(took || (flushed && !may_take_more)) {
                break;
            }
        }
        self.poll_timer(context)
    }

    /// Reads once. The time of an answer is taken after the read: so the answer's time can only be late, never early.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Result<Poll<()>, End> {
        let mut room = ReadBuf::new(self.frames.room());
        let count = match Pin::new(&mut self.stream).poll_read(context, &mut room) {
            Poll::Pending => return Ok(Poll::Pending),
            Poll::Ready(Err(error)) => return Err(lost("reading failed", &error)),
            Poll::Ready(Ok(())) => room.filled().len(),
        };
        if count == 0 {
            return Err(End::Lost("the server closed the connection".to_owned()));
        }
        self.frames.filled(count);
        let now = self.shared.config.clock.now();
        let mut has_answered = false;
        while let Some(incoming) = self.frames.next()? {
            has_answered |= self.conversation.receive(&incoming, now)?;
        }
        self.silent_since = self.conversation.awaits().then(Instant::now);
        if has_answered || self.silent_since.is_none() {
            self.owing_since = self.silent_since;
        }
        self.tell_ready();
        Ok(Poll::Ready(()))
    }

    fn tell_ready(&mut self) {
        if self.conversation.is_ready() {
            self.ready.take().map(|ready| ready.send(()));
        }
    }

    /// Moves waiting requests from the outbox to the buffer, and returns whether there were any. Their time of sending, taken before
    /// the write, can be early, never late.
    fn take_requests(&mut self, context: &Context<'_>) -> bool {
        if !self.conversation.is_settled() {
            return false;
        }
        self.closing = self.shared.outbox.take(&mut self.taken, context);
        if self.taken.is_empty() {
            return self.write_close();
        }
        let (now, clock) = (Instant::now(), self.shared.config.clock.now());
        while let Some(request) = self.taken.pop_front() {
            if request.is_unwanted() {
                continue;
            }
            if request.deadline <= now {
                expired(request);
                continue;
            }
            self.conversation.send(request, clock, &mut self.out.bytes, self.out.before);
        }
        true
    }

    /// Writes the last request, once a close was requested and the line is empty.
    fn write_close(&mut self) -> bool {
        let Some(deadline) = self.closing.filter(|_| !self.close_written) else { return false };
        self.close_written = true;
        let request = Request { frame: request::close(), answer: None, deadline, watch: None, confirms: false };
        self.conversation.send(request, self.shared.config.clock.now(), &mut self.out.bytes, self.out.before);
        true
    }

    /// Writes until the buffer is empty or the socket full.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Result<Poll<()>, End> {
        if self.out.waiting() > 0 {
            self.last_sent = Instant::now();
            self.silent_since.get_or_insert(self.last_sent);
            self.owing_since.get_or_insert(self.last_sent);
        }
        while self.out.waiting() > 0 {
            let bytes = &self.out.bytes[self.out.written..];
            match Pin::new(&mut self.stream).poll_write(context, bytes) {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(Err(error)) => return Err(lost("writing failed", &error)),
                Poll::Ready(Ok(0)) => return Err(End::Lost("the connection takes no more bytes".to_owned())),
                Poll::Ready(Ok(count)) => self.out.written += count,
            }
            self.out.held_back = true;
        }
        self.out.recycle();
        self.poll_flush(context)
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Result<Poll<()>, End> {
        if !self.out.held_back {
            return Ok(Poll::Ready(()));
        }
        match Pin::new(&mut self.stream).poll_flush(context) {
            Poll::Pending => Ok(Poll::Pending),
            Poll::Ready(Err(error)) => Err(lost("writing failed", &error)),
            Poll::Ready(Ok(())) => {
                self.out.held_back = false;
                Ok(Poll::Ready(()))
            }
        }
    }

    /// Does the due work.
    fn keep_times(&mut self) -> Result<(), End> {
        let now = Instant::now();
        self.conversation.give_up(now);
        if self.silent_since.is_some_and(|since| since + self.patience <= now) {
            let seconds = self.patience.as_secs_f64();
            return Err(End::Lost(format!("the server owed an answer and was silent for {seconds:.1} s")));
        }
        if self.owing_since.is_some_and(|since| since + self.longest_answer <= now) {
            let seconds = self.longest_answer.as_secs_f64();
            return Err(End::Lost(format!("the server sent something for {seconds:.1} s, and no whole answer")));
        }
        if self.closing.is_some_and(|deadline| deadline <= now) {
            return Err(End::CloseFailed("the server did not answer in time".to_owned()));
        }
        if self.pings_when_idle() && self.last_sent + self.idle <= now {
            self.last_sent = now;
            self.conversation.ping(self.shared.config.clock.now(), &mut self.out.bytes);
        }
        Ok(())
    }

    fn pings_when_idle(&self) -> bool {
        self.shared.config.keep_alive && self.out.waiting() == 0
    }

    /// Sleeps until the next work is due. The timer is set anew only if it would ring too late: an early ring costs one look.
    fn poll_timer(&mut self, context: &mut Context<'_>) -> Result<(), End> {
        loop {
            let due = self.next_due();
            if due < self.timer.deadline() {
                self.timer.as_mut().reset(due);
            }
            if self.timer.as_mut().poll(context).is_pending() {
                return Ok(());
            }
            self.keep_times()?;
            // A ping may have been put into the buffer.
            let _ = self.poll_send(context)?;
            let due = self.next_due();
            self.timer.as_mut().reset(due);
        }
    }

    fn next_due(&self) -> Instant {
        // While bytes wait for the socket no ping helps. The silence counts from the first try.
        let idle = self.pings_when_idle().then_some(self.last_sent + self.idle);
        let silent = self.silent_since.map(|since| since + self.patience);
        let owing = self.owing_since.map(|since| since + self.longest_answer);
        let patience = [idle, silent, owing].into_iter().flatten();
        let deadlines = [self.conversation.next_deadline(), self.closing].into_iter().flatten();
        patience.chain(deadlines).min().unwrap_or_else(|| Instant::now() + self.patience)
    }

    /// Takes the connection apart: written requests fail with `why`; unwritten requests go back into the line. Returns the newest
    /// transaction seen, the channel to notify once all credentials are accepted, and whether the server owes the answer to a write.
    pub(crate) fn end(self, why: &Error) -> (i64, Option<oneshot::Sender<()>>, bool) {
        let (seen, owes) = (self.conversation.seen(), self.conversation.owes_a_write(self.out.flushed()));
        let unwritten = self.conversation.end(self.out.flushed(), why);
        self.shared.outbox.put_back(unwritten.into_iter());
        (seen, self.ready, owes)
    }
}

fn lost(what: &str, error: &io::Error) -> End {
    End::Lost(format!("{what}: {error}"))
}

/// A request waited for the socket for too long.
fn expired(mut request: Request) {
    let message = "the connection took no more bytes before the deadline";
    request.settle(Err(Error::new(ErrorKind::Deadline, request.frame.op().name(), message)));
}
