//! A bare connection to a Redis server, on which a test sends its own commands.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(20);

/// The answer of a server in the second version of its protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Nothing.
    Nil,
    /// A status such as `OK`.
    Status(String),
    /// An error, as `ERR unknown command`.
    Error(String),
    /// A number.
    Int(i64),
    /// Bytes.
    Bytes(Vec<u8>),
    /// An array of replies.
    Array(Vec<Reply>),
}

impl Reply {
    /// The reply as a number, also of a text that is a number.
    #[must_use]
    pub fn number(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Bytes(_) | Self::Status(_) => self.to_string().parse().ok(),
            _ => None,
        }
    }

    /// The items of an array; none of any other reply.
    #[must_use]
    pub fn items(&self) -> &[Reply] {
        match self {
            Self::Array(items) => items,
            _ => &[],
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => f.write_str("(nil)"),
            Self::Status(text) | Self::Error(text) => f.write_str(text),
            Self::Int(number) => write!(f, "{number}"),
            Self::Bytes(bytes) => f.write_str(&String::from_utf8_lossy(bytes)),
            Self::Array(items) => f.debug_list().entries(items).finish(),
        }
    }
}

/// A connection with one request at a time.
#[derive(Debug)]
pub struct Hands(BufReader<TcpStream>);

impl Hands {
    /// Connects, and sends nothing.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, ANSWER)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a request, and waits for the answer for up to 20 s.
    ///
    /// # Errors
    /// An error without an answer. An answer that is an error is a [`Reply::Error`].
    pub fn ask<A: AsRef<[u8]>>(&mut self, request: &[A]) -> io::Result<Reply> {
        self.send(request)?;
        self.answer()
    }

    /// Sends a request, and does not wait for the answer.
    pub fn send<A: AsRef<[u8]>>(&mut self, request: &[A]) -> io::Result<()> {
        let mut bytes = format!("*{}\r\n", request.len()).into_bytes();
        for part in request.iter().map(AsRef::as_ref) {
            bytes.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
            bytes.extend_from_slice(part);
            bytes.extend_from_slice(b"\r\n");
        }
        self.0.get_mut().write_all(&bytes)
    }

    /// Waits for the next reply or message of the server, for up to 20 s.
    pub fn answer(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let odd = || io::Error::new(io::ErrorKind::InvalidData, line.clone());
        let (kind, rest) = line.trim_end().split_at_checked(1).ok_or_else(odd)?;
        let number = || rest.parse::<i64>().map_err(|_| odd());
        match kind {
            "+" => Ok(Reply::Status(rest.to_owned())),
            "-" => Ok(Reply::Error(rest.to_owned())),
            ":" => number().map(Reply::Int),
            "$" | "*" if number()? < 0 => Ok(Reply::Nil),
            "$" => {
                let length = usize::try_from(number()?).map_err(|_| odd())?;
                let mut bytes = vec![0; length + 2];
                self.0.read_exact(&mut bytes)?;
                bytes.truncate(length);
                Ok(Reply::Bytes(bytes))
            }
            "*" | ">" => (0..number()?).map(|_| self.answer()).collect::<io::Result<_>>().map(Reply::Array),
            _ => Err(odd()),
        }
    }
}
