//! The bytes on the wire. Everything that a server may send is decoded here, and survives arbitrary input.

pub(crate) mod code;
pub(crate) mod codec;
pub(crate) mod frame;
pub(crate) mod handshake;
pub(crate) mod multi;
pub(crate) mod op;
pub(crate) mod request;
pub(crate) mod response;

/// The `xid` of frames that belong to no request in the queue.
pub(crate) mod xid {
    pub(crate) const NOTIFICATION: i32 = -1;
    pub(crate) const PING: i32 = -2;
    pub(crate) const AUTH: i32 = -4;
    pub(crate) const SET_WATCHES: i32 = -8;
    /// Our own: servers send back the number that they are sent.
    pub(crate) const OWNER: i32 = -16;
}
