//! How many nodes one session may have.
//!
//! A server lists the paths of all ephemeral nodes of a session in the transaction that closes it (ZooKeeper 3.6 and newer). It
//! reads no transaction longer than `jute.maxbuffer` and `zookeeper.jute.maxbuffer.extrasize` together, but writes one: with it in
//! the log, a server does not start again, and no follower can take it from the leader. That is ZOOKEEPER-4306, open in 3.9.5. So
//! a session of ours has no more nodes than fit into `jute.maxbuffer`. What is around the paths, 48 bytes, fits into the extra
//! size, which is 1024 bytes at least.

use crate::error::{Error, ErrorKind};

/// What stands before each path of a list, in bytes: its length.
const LENGTH: usize = 4;

/// The longest number that a server appends to a path, in bytes: `-2147483648`.
pub(super) const NUMBER: usize = 11;

/// What the nodes of a session take of the transaction that closes it, in bytes, and the most that they may.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Room {
    bytes: usize,
    most: usize,
}

/// There is no room for another node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Full {
    room: Room,
    contenders: usize,
}

impl Room {
    pub(super) fn of(most: usize) -> Self {
        Self { bytes: 0, most }
    }

    /// Takes what a node needs whose path has so many bytes, beside so many contenders; says how much that is.
    pub(super) fn take(&mut self, path: usize, contenders: usize) -> Result<u32, Full> {
        let bytes = self.bytes + LENGTH + path;
        match u32::try_from(LENGTH + path) {
            Ok(needed) if bytes <= self.most => {
                self.bytes = bytes;
                Ok(needed)
            }
            _ => Err(Full { room: *self, contenders }),
        }
    }

    /// A node that took so much is not there any more.
    pub(super) fn give_back(&mut self, bytes: u32) {
        self.bytes = self.bytes.saturating_sub(usize::try_from(bytes).unwrap_or(usize::MAX));
    }
}

impl Full {
    /// What is said to the caller that asked for the node.
    pub(super) fn refused(self, operation: &'static str) -> Error {
        let message = "this client has as many contenders, held and waiting, as the servers can close a session with (ZOOKEEPER-4306): release some, use several clients, or raise jute.maxbuffer on all servers and then max_frame_bytes here";
        Error::new(ErrorKind::Exhausted, operation, message)
            .with("contenders", self.contenders)
            .with("bytes", self.room.bytes)
            .with("max_frame_bytes", self.room.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_can_be_taken_again_and_no_more() {
        let mut room = Room::of(30);
        let (one, other) = (room.take(10, 0).unwrap(), room.take(12, 1).unwrap());
        let refused = room.take(0, 2).unwrap_err().refused("enter");
        assert_eq!((refused.kind(), refused.is_retryable()), (ErrorKind::Exhausted, false));
        assert!(refused.to_string().contains("contenders 2"), "{refused}");
        room.give_back(one);
        assert!(room.take(11, 1).is_err());
        room.take(10, 1).unwrap();
        room.give_back(other);
        room.take(12, 1).unwrap();
    }
}
