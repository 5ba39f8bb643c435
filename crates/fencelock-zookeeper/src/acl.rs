//! Access control: the permissions of each client on one node.

use std::borrow::Cow;
use std::fmt;
use std::ops::BitOr;

/// The permitted operations on a node. The right to delete a node is [`Permissions::DELETE`] of its *parent*.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Permissions(i32);

impl Permissions {
    /// No operation.
    pub const NONE: Self = Self(0);
    /// Read the node's data and list its children.
    pub const READ: Self = Self(1);
    /// Replace the node's data.
    pub const WRITE: Self = Self(2);
    /// Create children.
    pub const CREATE: Self = Self(4);
    /// Delete children.
    pub const DELETE: Self = Self(8);
    /// Replace the node's access control list.
    pub const ADMIN: Self = Self(16);
    /// All permissions.
    pub const ALL: Self = Self(31);

    /// Whether this set has every permission of `other`.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) const fn bits(self) -> i32 {
        self.0
    }

    pub(crate) const fn from_bits(bits: i32) -> Self {
        Self(bits & Self::ALL.0)
    }
}

impl BitOr for Permissions {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for Permissions {
    /// The letters that ZooKeeper's own tools use: `cdrwa`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters =
            [(Self::CREATE, "c"), (Self::DELETE, "d"), (Self::READ, "r"), (Self::WRITE, "w"), (Self::ADMIN, "a")];
        letters.iter().filter(|(one, _)| self.contains(*one)).try_for_each(|(_, letter)| f.write_str(letter))
    }
}

impl fmt::Debug for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Permissions({self})")
    }
}

/// An entry of a node's access control list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Acl {
    /// The permissions.
    pub permissions: Permissions,
    /// The scheme of `id`: `world`, `auth`, `digest`, `ip`, `x509`, …
    pub scheme: Cow<'static, str>,
    /// The identity that has the permissions.
    pub id: Cow<'static, str>,
}

impl Acl {
    /// All permissions for all clients: `world:anyone:cdrwa`.
    #[must_use]
    pub const fn open() -> Self {
        Self { permissions: Permissions::ALL, scheme: Cow::Borrowed("world"), id: Cow::Borrowed("anyone") }
    }

    /// All permissions for the creator of the node, by the credentials of its session: `auth::cdrwa`. Without credentials the
    /// server answers [`ErrorKind::InvalidAcl`](crate::ErrorKind::InvalidAcl).
    #[must_use]
    pub const fn creator_all() -> Self {
        Self { permissions: Permissions::ALL, scheme: Cow::Borrowed("auth"), id: Cow::Borrowed("") }
    }

    /// Read permission for all clients: `world:anyone:r`.
    #[must_use]
    pub const fn world_read() -> Self {
        Self { permissions: Permissions::READ, scheme: Cow::Borrowed("world"), id: Cow::Borrowed("anyone") }
    }
}
