//! How large a reply may be. What answers may not be a Redis server, or one that wants us to fall over our memory.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most bytes of one reply or message. The largest of ours tell one session of 100,000 grants at once.
const MOST_BYTES: u64 = 16 << 20;
/// The most values in one reply: each takes the client many times what it takes on the way.
const MOST_VALUES: u64 = 1 << 16;

/// Bytes that go through, up to a reply that is too large.
pub(super) struct Metered<S> {
    stream: S,
    meter: Meter,
}

impl<S> Metered<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, meter: Meter::default() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let read = self.meter.read(&buffer.filled()[before..]);
        if read.is_err() {
            // Not even this much of it is taken apart.
            buffer.set_filled(before);
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Where in a reply the next byte is.
#[derive(Debug, Clone, Copy)]
enum At {
    /// At the beginning of a value.
    Kind,
    /// In its first line, which may say a number.
    Line { kind: u8, number: u64, is_negative: bool },
    /// In its bytes, of which so many are to come.
    Bytes(u64),
}

/// Follows the protocol as far as is needed to know where a reply ends.
#[derive(Debug)]
struct Meter {
    at: At,
    /// Of the reply so far.
    bytes: u64,
    values: u64,
    /// How many values of it are to come.
    open: u64,
}

impl Default for Meter {
    fn default() -> Self {
        Self { at: At::Kind, bytes: 0, values: 0, open: 0 }
    }
}

impl Meter {
    fn read(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while let Some(first) = bytes.first() {
            let taken = match &mut self.at {
                At::Bytes(left) => {
                    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    *left -= taken as u64;
                    taken
                }
                _ => 1,
            };
            self.bytes += taken as u64;
            self.step(*first);
            if self.bytes > MOST_BYTES || self.values.saturating_add(self.open) > MOST_VALUES {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a reply is larger than any that was asked for",
                ));
            }
            if self.open == 0 && matches!(self.at, At::Kind) {
                (self.bytes, self.values) = (0, 0);
            }
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    fn step(&mut self, byte: u8) {
        self.at = match self.at {
            At::Kind => {
                (self.open, self.values) = (self.open.saturating_sub(1), self.values + 1);
                At::Line { kind: byte, number: 0, is_negative: false }
            }
            At::Line { kind, number, is_negative } => match byte {
                b'\n' => self.end_of_line(kind, if is_negative { 0 } else { number }, is_negative),
                b'-' => At::Line { kind, number, is_negative: true },
                b'0'..=b'9' => {
                    let number = number.saturating_mul(10).saturating_add((byte - b'0').into());
                    At::Line { kind, number, is_negative }
                }
                _ => At::Line { kind, number, is_negative },
            },
            At::Bytes(0) => At::Kind,
            At::Bytes(left) => At::Bytes(left),
        }
    }

    fn end_of_line(&mut self, kind: u8, number: u64, is_negative: bool) -> At {
        match kind {
            b'$' | b'!' | b'=' if !is_negative => {
                // What is announced counts before it comes.
                if number > MOST_BYTES {
                    self.bytes = self.bytes.saturating_add(number);
                }
                return At::Bytes(number.saturating_add(2));
            }
            b'*' | b'~' | b'>' => self.open = self.open.saturating_add(number),
            b'%' => self.open = self.open.saturating_add(number.saturating_mul(2)),
            b'|' => self.open = self.open.saturating_add(number.saturating_mul(2).saturating_add(1)),
            _ => {}
        }
        At::Kind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether it goes through, however it is cut.
    fn passes(bytes: &[u8]) -> bool {
        let whole = Meter::default().read(bytes).is_ok();
        let mut meter = Meter::default();
        let one_by_one = bytes.iter().all(|byte| meter.read(&[*byte]).is_ok());
        assert_eq!(whole, one_by_one);
        whole
    }

    #[test]
    fn replies_of_every_kind_pass_and_are_counted_one_by_one() {
        let replies = b"+OK\r\n:5\r\n-ERR 1 -2\r\n$5\r\n*9\r\n\n\r\n$-1\r\n*-1\r\n*0\r\n$0\r\n\r\n*2\r\n:1\r\n*1\r\n$1\r\na\r\n%1\r\n+a\r\n+b\r\n>3\r\n+m\r\n+c\r\n$1\r\nx\r\n_\r\n=5\r\ntxt:a\r\n|1\r\n+a\r\n+b\r\n:1\r\n";
        let many = replies.repeat(2 * MOST_BYTES as usize / replies.len());
        let mut meter = Meter::default();
        meter.read(&many).unwrap();
        assert!(meter.open == 0 && matches!(meter.at, At::Kind), "{meter:?}");
        assert!(passes(replies));
    }

    #[test]
    fn what_is_announced_too_large_is_refused_before_it_comes() {
        for announced in
            ["$99999999\r\n", "*70000\r\n", "%40000\r\n", ">18446744073709551616\r\n", "=99999999999999999999\r\n"]
        {
            assert!(!passes(announced.as_bytes()), "{announced}");
        }
        assert!(!passes("*9000\r\n*9000\r\n".repeat(8).as_bytes()), "values in values");
    }

    #[test]
    fn what_never_ends_is_refused() {
        let mut endless = vec![b'+'];
        endless.resize(MOST_BYTES as usize + 2, b'a');
        assert!(Meter::default().read(&endless).is_err());
        let mut values = b"*60000\r\n".to_vec();
        values.extend("$1000\r\n".bytes().chain([b'a'; 1002]).collect::<Vec<_>>().repeat(20_000));
        assert!(Meter::default().read(&values).is_err());
    }
}
