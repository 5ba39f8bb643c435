//! Servers that attack their clients, or are broken as no real server can be.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// The act of a hostile server on every connection. Acts whose names begin with `Then` give a session first, and wait for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Accepts connections, and sends nothing.
    Silent,
    /// A byte now and then.
    Drips,
    /// Bytes that are no frame.
    Garbage,
    /// A frame of 2 GiB, as fast as the client takes it.
    HugeLength,
    /// Gives no session.
    Denies,
    /// No answer.
    ThenSilent,
    /// A byte now and then of an answer that never ends.
    ThenDrips,
    /// Bytes that are no frame.
    ThenGarbage,
    /// An answer of 2 GiB, as fast as the client takes it.
    ThenHugeLength,
    /// Events of watches that were never set, and no answer.
    ThenEvents,
    /// Answers without a record.
    ThenEmpty,
}

impl Manner {
    /// Acts that give no session.
    pub const WITHOUT_SESSION: [Self; 5] = [Self::Silent, Self::Drips, Self::Garbage, Self::HugeLength, Self::Denies];
    /// Acts that give a session.
    pub const WITH_SESSION: [Self; 6] =
        [Self::ThenSilent, Self::ThenDrips, Self::ThenGarbage, Self::ThenHugeLength, Self::ThenEvents, Self::ThenEmpty];
}

/// Starts a hostile server, which goes with the process. Its sessions have the number 7, and this timeout.
pub fn hostile(manner: Manner, timeout_ms: u32) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // The client hangs up, sooner or later.
            thread::spawn(move || drop(meet(stream, manner, timeout_ms)));
        }
    });
    Ok(address)
}

const NOW_AND_THEN: Duration = Duration::from_millis(50);
const HUGE: [u8; 4] = i32::MAX.to_be_bytes();

fn meet(mut stream: TcpStream, manner: Manner, timeout_ms: u32) -> io::Result<()> {
    match manner {
        Manner::Silent => {}
        Manner::Drips => for_ever(&mut stream, &[0], NOW_AND_THEN)?,
        Manner::Garbage => for_ever(&mut stream, &[0xff; 1000], NOW_AND_THEN)?,
        Manner::HugeLength => {
            stream.write_all(&HUGE)?;
            for_ever(&mut stream, &[0; 100_000], Duration::ZERO)?;
        }
        Manner::Denies => {
            read(&mut stream)?;
            write(&mut stream, &welcome(0, 0))?;
        }
        then => mistreat(&mut stream, then, timeout_ms)?,
    }
    io::copy(&mut stream, &mut io::sink()).map(drop)
}

fn mistreat(stream: &mut TcpStream, manner: Manner, timeout_ms: u32) -> io::Result<()> {
    read(stream)?;
    write(stream, &welcome(7, timeout_ms))?;
    let request = read(stream)?;
    match manner {
        Manner::ThenDrips => {
            stream.write_all(&1_000_000_u32.to_be_bytes())?;
            for_ever(stream, &[0], NOW_AND_THEN)
        }
        Manner::ThenGarbage => for_ever(stream, &[0xff; 1000], NOW_AND_THEN),
        Manner::ThenHugeLength => {
            stream.write_all(&[&HUGE, &request[..4], &[0; 12]].concat())?;
            for_ever(stream, &[0; 100_000], Duration::ZERO)
        }
        Manner::ThenEvents => {
            // Number -1, no transaction, no error; the data of "/a" changed.
            let frame = [&[0xff; 12][..], &[0; 4], &[0, 0, 0, 3], &[0, 0, 0, 3], &[0, 0, 0, 2], b"/a"].concat();
            for_ever(stream, &framed(&frame), NOW_AND_THEN)
        }
        Manner::ThenEmpty => {
            let mut request = request;
            loop {
                write(stream, &[&request[..4], &[0; 12]].concat())?;
                request = read(stream)?;
            }
        }
        _ => Ok(()),
    }
}

/// For as long as a client takes them.
fn for_ever(stream: &mut TcpStream, bytes: &[u8], pause: Duration) -> io::Result<()> {
    loop {
        stream.write_all(bytes)?;
        thread::sleep(pause);
    }
}

fn read(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut frame)?;
    // Every frame has a number.
    if frame.len() < 4 { Err(io::ErrorKind::InvalidData.into()) } else { Ok(frame) }
}

fn framed(frame: &[u8]) -> Vec<u8> {
    let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], frame].concat()
}

fn write(stream: &mut TcpStream, frame: &[u8]) -> io::Result<()> {
    stream.write_all(&framed(frame))
}

/// The answer to the first frame.
fn welcome(session: u64, timeout_ms: u32) -> Vec<u8> {
    let password = [&16_u32.to_be_bytes()[..], &[9; 16]].concat();
    [&[0; 4][..], &timeout_ms.to_be_bytes(), &session.to_be_bytes(), &password, &[0]].concat()
}
