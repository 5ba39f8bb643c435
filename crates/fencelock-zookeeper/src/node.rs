//! Nodes: their kinds, and the server's answer to a create.

use crate::proto::op::Op;
pub use crate::proto::response::Stat;

/// The kind of node to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CreateMode {
    /// Stays until it is deleted.
    Persistent,
    /// Stays until it is deleted; the server appends a number of ten digits that rises with each child of the parent.
    PersistentSequential,
    /// The node is deleted with the session.
    Ephemeral,
    /// The node is deleted with the session; the server appends a number. The number is signed, and sticks at 2147483647.
    EphemeralSequential,
    /// The servers delete the node some time after its last child (never before the first child); needs servers of 3.5 or newer.
    Container,
}

impl CreateMode {
    /// Whether the server appends a number to the path.
    pub(crate) fn is_sequential(self) -> bool {
        matches!(self, Self::PersistentSequential | Self::EphemeralSequential)
    }

    pub(crate) fn op(self) -> Op {
        if self == Self::Container { Op::CreateContainer } else { Op::Create }
    }
}

/// The answer to [`Client::create`](crate::Client::create).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Created {
    /// The node's path, with its number if it has one.
    pub path: String,
    /// The server's metadata of the node.
    pub stat: Stat,
}
