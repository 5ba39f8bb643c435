//! The first frame in each direction, by which a session is opened or continued.

use std::fmt;
use std::time::Duration;

use super::codec::{Malformed, Reader, Write};

/// The server's number of a session, and the password with which a client continues it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SessionKey {
    pub(crate) id: i64,
    pub(crate) password: Vec<u8>,
}

impl SessionKey {
    /// The key of a client that has no session yet.
    pub(crate) fn none() -> Self {
        Self { id: 0, password: vec![0; 16] }
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session 0x{:x}", self.id)
    }
}

/// The whole first frame of the client, length included.
pub(crate) fn request(ticket: &SessionKey, timeout: Duration, seen: i64) -> Vec<u8> {
    let mut frame = Vec::with_capacity(52);
    frame.int(0);
    // The version of the protocol: there is one.
    frame.int(0);
    frame.long(seen);
    frame.int(i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX));
    frame.long(ticket.id);
    frame.bytes(&ticket.password);
    // Whether a read-only server may answer. A client with a session says no: the server hangs up, and the client tries another
    // server. A client without one says yes: the reply shows that the server is read-only. The client does not use that session.
    frame.bool(ticket.id == 0);
    let length = super::codec::length(frame.len() - 4);
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame
}

/// The server's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) ticket: SessionKey,
    /// The session timeout that the server granted; zero when the session has expired.
    pub(crate) timeout: Duration,
    pub(crate) read_only: bool,
}

impl Response {
    /// The longest answer that a server may give, in bytes. With the usual password of 16 bytes the record has 37 bytes.
    pub(crate) const LONGEST: usize = 1024;

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let version = reader.int()?;
        if version != 0 {
            return Err(Malformed("the version of the protocol is not 0"));
        }
        let timeout = Duration::from_millis(u64::try_from(reader.int()?).unwrap_or(0));
        let id = reader.long()?;
        let password = reader.bytes()?.to_vec();
        // Servers before 3.4 do not send it.
        let read_only = !reader.is_empty() && reader.bool()?;
        Ok(Self { ticket: SessionKey { id, password }, timeout, read_only })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_ticket_does_not_show_its_password() {
        let ticket = SessionKey { id: 0x1f, password: b"hush".to_vec() };
        assert_eq!(format!("{ticket:?}"), "session 0x1f");
    }

    #[test]
    fn the_first_frame_has_the_length_that_servers_expect() {
        let frame = request(&SessionKey::none(), Duration::from_secs(10), 0);
        assert_eq!(frame.len(), 49);
        assert_eq!(frame[..4], 45_i32.to_be_bytes());
        assert_eq!(frame[16..20], 10_000_i32.to_be_bytes());
        assert_eq!(frame[48], 1);
    }

    proptest! {
        #[test]
        fn the_answer_survives_arbitrary_bytes(bytes: Vec<u8>) {
            let _ = Response::read(&mut Reader::new(&bytes));
            let mut plausible = vec![0; 4];
            plausible.extend(bytes);
            let _ = Response::read(&mut Reader::new(&plausible));
        }
    }
}
