//! Opens or continues a session on a connection that has just been made.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::clock::Clock;
use crate::error::ErrorKind;
use crate::net::Stream;
use crate::proto::code;
use crate::proto::codec::Reader;
use crate::proto::handshake::{Response, SessionKey, request};
use crate::proto::response::Header;

/// The client's part of the handshake.
#[derive(Debug, Clone)]
pub(crate) struct Hello {
    pub(crate) ticket: SessionKey,
    /// The requested session timeout.
    pub(crate) timeout: Duration,
    /// The newest transaction that the client saw: a server that lacks it hangs up.
    pub(crate) seen: i64,
}

/// A session on a connection.
#[derive(Debug)]
pub(crate) struct Welcome {
    pub(crate) ticket: SessionKey,
    /// The timeout that the server granted.
    pub(crate) timeout: Duration,
    /// When the first frame was sent, and its answer read, on the configured clock.
    pub(crate) sent: Duration,
    pub(crate) answered: Duration,
}

/// Why a server gave no session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    /// The session to be continued has expired.
    Expired,
    /// Another server, or this server later, may give a session.
    NotHere(Refusal),
}

/// Why a server gave no session, and the code of its reply, if any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) kind: ErrorKind,
    pub(crate) why: String,
    pub(crate) code: Option<i32>,
}

impl Denial {
    pub(crate) fn not_here(kind: ErrorKind, why: impl Into<String>) -> Self {
        Self::NotHere(Refusal { kind, why: why.into(), code: None })
    }

    pub(crate) fn unreachable(why: impl Into<String>) -> Self {
        Self::not_here(ErrorKind::Unreachable, why)
    }
}

/// Sends the hello and reads its answer, and not a byte more.
pub(crate) async fn shake(stream: &mut dyn Stream, hello: &Hello, clock: &dyn Clock) -> Result<Welcome, Denial> {
    let frame = request(&hello.ticket, hello.timeout, hello.seen);
    let sent = clock.now();
    let io = |error: std::io::Error| Denial::unreachable(hung_up(&error));
    stream.write_all(&frame).await.map_err(io)?;
    stream.flush().await.map_err(io)?;
    let mut announced = [0; 4];
    stream.read_exact(&mut announced).await.map_err(io)?;
    let length = usize::try_from(i32::from_be_bytes(announced)).unwrap_or(usize::MAX);
    if length > Response::LONGEST {
        return Err(Denial::not_here(ErrorKind::Protocol, not_zookeeper(announced)));
    }
    let mut record = vec![0; length];
    stream.read_exact(&mut record).await.map_err(io)?;
    let answered = clock.now();
    judge(read(&record)?, &hello.ticket, sent, answered)
}

/// The record of the answer. A read-only server, which cannot give a session, answers with the header of a failed request instead.
fn read(record: &[u8]) -> Result<Response, Denial> {
    let mut reader = Reader::new(record);
    if record.len() == Header::LEN {
        let code = Header::read(&mut reader).map_or(code::OK, |header| header.code);
        let error = code::error(code, "connect");
        let why = format!("gave no session: {}", error.message());
        return Err(Denial::NotHere(Refusal { kind: error.kind(), why, code: error.code() }));
    }
    Response::read(&mut reader)
        .map_err(|_| Denial::not_here(ErrorKind::Protocol, "answered what no ZooKeeper server answers"))
}

fn judge(response: Response, ticket: &SessionKey, sent: Duration, answered: Duration) -> Result<Welcome, Denial> {
    let Response { ticket: given, timeout, read_only } = response;
    let continues = ticket.id != 0;
    // Another session in place of ours means that ours has expired, even if the server thinks that we wanted a new one.
    if continues && (given.id != ticket.id || timeout.is_zero()) {
        return Err(Denial::Expired);
    }
    if read_only {
        return Err(Denial::not_here(ErrorKind::ReadOnlyServer, "gave no session: the server serves reads only"));
    }
    if given.id == 0 || timeout.is_zero() {
        return Err(Denial::unreachable("gave no session"));
    }
    Ok(Welcome { ticket: given, timeout, sent, answered })
}

pub(crate) fn hung_up(error: &std::io::Error) -> String {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    const CAUSES: &str = "it starts, has no quorum, has as many connections from this host as it takes (its maxClientCnxns) or in all (its maxCnxns), knows less than this client has seen, or is no ZooKeeper server";
    match error.kind() {
        UnexpectedEof => format!("hung up without an answer: {CAUSES}"),
        ConnectionReset | BrokenPipe => format!("hung up without an answer ({error}): {CAUSES}"),
        _ => format!("hung up: {error}"),
    }
}

/// A length that is no frame's is often the first bytes of a text, which shows what kind of server answered.
fn not_zookeeper(announced: [u8; 4]) -> String {
    let shown = announced.escape_ascii();
    format!("is no ZooKeeper server: its answer begins with \"{shown}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(ticket: i64, given: i64, timeout_ms: u64, read_only: bool) -> Result<Welcome, Denial> {
        let response = Response {
            ticket: SessionKey { id: given, password: vec![1] },
            timeout: Duration::from_millis(timeout_ms),
            read_only,
        };
        judge(response, &SessionKey { id: ticket, password: Vec::new() }, Duration::ZERO, Duration::ZERO)
    }

    fn of(denial: Denial) -> (Option<ErrorKind>, Option<i32>) {
        match denial {
            Denial::NotHere(refusal) => (Some(refusal.kind), refusal.code),
            Denial::Expired => (None, None),
        }
    }

    #[test]
    fn another_session_in_place_of_ours_is_expiry() {
        assert!(judged(7, 7, 4000, false).is_ok());
        for over in
            [judged(7, 8, 4000, false), judged(7, 0, 0, false), judged(7, 7, 0, false), judged(7, 8, 4000, true)]
        {
            assert_eq!(over.unwrap_err(), Denial::Expired);
        }
    }

    #[test]
    fn a_server_that_only_reads_is_refused() {
        for ticket in [0, 7] {
            let denial = judged(ticket, 7, 4000, true).unwrap_err();
            assert_eq!(of(denial), (Some(ErrorKind::ReadOnlyServer), None));
        }
    }

    #[test]
    fn a_server_without_a_quorum_is_recognised_by_its_refusal() {
        // As ZooKeeper 3.8 answers in its read-only mode.
        let answer = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0x89];
        assert_eq!(of(read(&answer).unwrap_err()), (Some(ErrorKind::ReadOnlyServer), Some(-119)));
        assert!(matches!(read(&[0; 16]).unwrap_err(), Denial::NotHere(..)));
        assert_eq!(of(read(&[0; 15]).unwrap_err()), (Some(ErrorKind::Protocol), None));
    }

    #[test]
    fn no_session_where_one_was_asked_for_is_no_expiry() {
        assert_eq!(of(judged(0, 0, 0, false).unwrap_err()), (Some(ErrorKind::Unreachable), None));
    }
}
