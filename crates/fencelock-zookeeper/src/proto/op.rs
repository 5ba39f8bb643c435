//! The operations, and their numbers on the wire.

/// An operation of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Op {
    Delete = 2,
    Exists = 3,
    GetData = 4,
    SetData = 5,
    GetAcl = 6,
    SetAcl = 7,
    Sync = 9,
    Ping = 11,
    GetChildren = 12,
    Check = 13,
    Multi = 14,
    Create = 15,
    CreateContainer = 19,
    Auth = 100,
    SetWatches = 101,
    Close = -11,
}

impl Op {
    pub(crate) const fn number(self) -> i32 {
        self as i32
    }

    /// Whether the operation changes the servers' data.
    pub(crate) const fn is_write(self) -> bool {
        matches!(self, Self::Create | Self::CreateContainer | Self::Delete | Self::SetData | Self::SetAcl | Self::Multi)
    }

    /// As errors name it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Delete => "delete",
            Self::Exists => "exists",
            Self::GetData => "get data",
            Self::SetData => "set data",
            Self::GetAcl => "get ACL",
            Self::SetAcl => "set ACL",
            Self::Sync => "sync",
            Self::Ping => "ping",
            Self::GetChildren => "get children",
            Self::Check => "check",
            Self::Multi => "multi",
            Self::Create | Self::CreateContainer => "create",
            Self::Auth => "authenticate",
            Self::SetWatches => "set watches",
            Self::Close => "close the session",
        }
    }
}
