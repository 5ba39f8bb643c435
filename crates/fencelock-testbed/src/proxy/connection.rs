//! A connection through the proxy: two sockets, and a pipe for each direction with a thread at each of its ends.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

use super::pipe::{Mode, Pipe};
use super::{Shared, Way, lock};

#[derive(Debug)]
pub(super) struct Connection {
    client: TcpStream,
    server: TcpStream,
    up: Pipe,
    down: Pipe,
    /// How many of the two directions have ended.
    ended: AtomicUsize,
}

/// Resets `stream`, so that the other side reads an error and not the end, even if a thread reads or writes it here.
pub(super) fn reset(stream: &TcpStream) {
    // Wakes the socket's reader: some kernels refuse to disconnect a socket with a waiting reader.
    let _ = stream.shutdown(Shutdown::Read);
    for _try in 0..100 {
        match rustix::net::connect_unspec(stream) {
            Err(rustix::io::Errno::BUSY) => thread::yield_now(),
            // A disconnected socket need not be disconnected again.
            _ => return,
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
}

impl Connection {
    /// Starts to carry bytes between `client` and `server`.
    pub(super) fn start(
        client: TcpStream,
        server: TcpStream,
        (up, down): (Mode, Mode),
        shared: &Arc<Shared>,
    ) -> io::Result<Arc<Self>> {
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (up, down) = (Pipe::new(up), Pipe::new(down));
        let connection = Arc::new(Self { client, server, up, down, ended: AtomicUsize::new(0) });
        for way in [Way::Up, Way::Down] {
            let (reading, shared) = (Arc::clone(&connection), Arc::downgrade(shared));
            let (writing, counted) = (Arc::clone(&connection), Weak::clone(&shared));
            thread::spawn(move || reading.read(way, &shared));
            thread::spawn(move || writing.write(way, &counted));
        }
        Ok(connection)
    }

    /// The source socket of this direction, its pipe, and its destination socket.
    fn ends(&self, way: Way) -> (&TcpStream, &Pipe, &TcpStream) {
        match way {
            Way::Up | Way::Both => (&self.client, &self.up, &self.server),
            Way::Down => (&self.server, &self.down, &self.client),
        }
    }

    fn read(&self, way: Way, shared: &Weak<Shared>) {
        let (mut from, pipe, _) = self.ends(way);
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match from.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => break,
                Ok(read) => {
                    let delay = shared.upgrade().map(|shared| lock(&shared.rules).delay);
                    pipe.push(&buffer[..read], delay.unwrap_or_default());
                }
            }
        }
        pipe.end();
    }

    fn write(&self, way: Way, shared: &Weak<Shared>) {
        let (_, pipe, mut to) = self.ends(way);
        while let Some(bytes) = pipe.pop() {
            let Some(shared) = shared.upgrade() else { return };
            let cut = shared.before_the_cut(way, bytes.len());
            let passing = &bytes[..cut.unwrap_or(bytes.len())];
            if to.write_all(passing).is_err() {
                // No reader is left; further bytes are dropped, and the other direction ends by itself.
                pipe.close();
                break;
            }
            shared.count(way, passing.len());
            if cut.is_some() {
                self.close();
                return;
            }
        }
        // Passes the end on, unless the connection ends otherwise. A side that has shut down already needs no notice.
        if !pipe.is_closed() {
            let _ = to.shutdown(Shutdown::Write);
        }
        self.ended.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn set(&self, way: Way, mode: Mode) {
        if way != Way::Down {
            self.up.set(mode);
        }
        if way != Way::Up {
            self.down.set(mode);
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire) >= 2
    }

    pub(super) fn lost_bytes(&self) -> bool {
        self.up.lost_bytes() || self.down.lost_bytes()
    }

    /// Closes both sides, as a peer does at a regular end.
    fn close(&self) {
        self.end(|stream| drop(stream.shutdown(Shutdown::Both)));
    }

    /// Resets both sides.
    pub(super) fn reset(&self) {
        self.end(reset);
    }

    fn end(&self, end: impl Fn(&TcpStream)) {
        self.ended.store(2, Ordering::Release);
        self.up.close();
        self.down.close();
        end(&self.client);
        end(&self.server);
    }
}
