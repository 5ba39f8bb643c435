//! Several operations, of which the server does all or none.

use crate::acl::Acl;
use crate::node::{CreateMode, Stat};
use crate::proto::op::Op;

/// An operation of [`Client::multi`](crate::Client::multi).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation<'a> {
    pub(crate) path: &'a str,
    pub(crate) action: Action<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action<'a> {
    Create { data: &'a [u8], mode: CreateMode, acl: &'a [Acl] },
    Delete { version: Option<i32> },
    SetData { data: &'a [u8], version: Option<i32> },
    Check { version: Option<i32> },
}

impl<'a> Operation<'a> {
    /// As [`Client::create`](crate::Client::create). The node may lie below a node that an operation before it creates.
    #[must_use]
    pub fn create(path: &'a str, data: &'a [u8], mode: CreateMode, acl: &'a [Acl]) -> Self {
        Self { path, action: Action::Create { data, mode, acl } }
    }

    /// As [`Client::delete`](crate::Client::delete).
    #[must_use]
    pub fn delete(path: &'a str, version: Option<i32>) -> Self {
        Self { path, action: Action::Delete { version } }
    }

    /// As [`Client::set_data`](crate::Client::set_data).
    #[must_use]
    pub fn set_data(path: &'a str, data: &'a [u8], version: Option<i32>) -> Self {
        Self { path, action: Action::SetData { data, version } }
    }

    /// Changes nothing, and fails if the node does not exist, or if its data has another version than a given one.
    #[must_use]
    pub fn check(path: &'a str, version: Option<i32>) -> Self {
        Self { path, action: Action::Check { version } }
    }

    pub(crate) fn op(&self) -> Op {
        match self.action {
            Action::Create { mode, .. } => mode.op(),
            Action::Delete { .. } => Op::Delete,
            Action::SetData { .. } => Op::SetData,
            Action::Check { .. } => Op::Check,
        }
    }

    /// Whether the server appends a number to the path.
    pub(crate) fn is_sequential(&self) -> bool {
        matches!(self.action, Action::Create { mode, .. } if mode.is_sequential())
    }
}

/// The result of one operation of [`Client::multi`](crate::Client::multi).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Done {
    /// By [`Operation::create`].
    Created {
        /// The node's path, with its number if it has one.
        path: String,
        /// The node's metadata, if the server sends it: ZooKeeper 3.8 does so for containers only.
        stat: Option<Stat>,
    },
    /// By [`Operation::delete`].
    Deleted,
    /// By [`Operation::set_data`]: the node's new metadata.
    DataSet(Stat),
    /// By [`Operation::check`].
    Checked,
}
