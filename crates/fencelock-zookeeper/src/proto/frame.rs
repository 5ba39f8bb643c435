//! A request as bytes, ready to be written.

use super::codec::{Reader, Write, length};
use super::op::Op;

/// A frame: its length, a header of `xid` and operation, and the operation's record.
///
/// Kept until the answer comes, so that an error can name the path and a watch can be registered without a copy made at the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    bytes: Vec<u8>,
    op: Op,
}

/// The bytes in front of the record: length, `xid`, operation.
const HEADER: usize = 12;

impl Frame {
    /// A frame without a path.
    pub(crate) fn new(op: Op, xid: i32, room: usize) -> Self {
        let mut bytes = Vec::with_capacity(HEADER + room);
        bytes.int(0);
        bytes.int(xid);
        bytes.int(op.number());
        Self { bytes, op }
    }

    /// A frame whose record begins with `chroot` + `path`, as all records of requests about a node do.
    pub(crate) fn on_path(op: Op, chroot: &str, path: &str, room: usize) -> Self {
        let mut frame = Self::new(op, 0, path_room(chroot, path) + room);
        write_path(&mut frame.bytes, chroot, path);
        frame
    }

    /// Appends the rest of the record.
    pub(crate) fn with(mut self, write: impl FnOnce(&mut Vec<u8>)) -> Self {
        write(&mut self.bytes);
        self.finish()
    }

    /// Fills in the length.
    pub(crate) fn finish(mut self) -> Self {
        let length = length(self.record_len());
        self.bytes[..4].copy_from_slice(&length.to_be_bytes());
        self
    }

    /// The length that the frame announces: everything behind the length itself.
    pub(crate) fn record_len(&self) -> usize {
        self.bytes.len() - 4
    }

    pub(crate) fn set_xid(&mut self, xid: i32) {
        self.bytes[4..8].copy_from_slice(&xid.to_be_bytes());
    }

    pub(crate) fn xid(&self) -> i32 {
        i32::from_be_bytes([self.bytes[4], self.bytes[5], self.bytes[6], self.bytes[7]])
    }

    pub(crate) fn op(&self) -> Op {
        self.op
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The path as the server knows it, of a frame made by [`Frame::on_path`]; nothing where there are several.
    pub(crate) fn path(&self) -> &str {
        if self.op == Op::Multi {
            return "";
        }
        let path = Reader::new(&self.bytes[HEADER..]).bytes().unwrap_or_default();
        std::str::from_utf8(path).unwrap_or_default()
    }
}

/// The most bytes that [`write_path`] writes.
pub(super) fn path_room(chroot: &str, path: &str) -> usize {
    4 + chroot.len() + path.len()
}

/// Writes `chroot` + `path`.
pub(super) fn write_path(record: &mut Vec<u8>, chroot: &str, path: &str) {
    // The path / inside a chroot is the chroot itself.
    let path = if path == "/" && !chroot.is_empty() { "" } else { path };
    record.int(length(chroot.len() + path.len()));
    record.extend_from_slice(chroot.as_bytes());
    record.extend_from_slice(path.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_knows_its_path_and_number() {
        let mut frame = Frame::on_path(Op::Delete, "/app", "/a", 4).with(|record| record.int(-1));
        frame.set_xid(7);
        assert_eq!((frame.path(), frame.xid(), frame.op()), ("/app/a", 7, Op::Delete));
        assert_eq!(frame.bytes().len(), 4 + frame.record_len());
        assert_eq!(frame.bytes()[..4], 22_i32.to_be_bytes());
    }

    #[test]
    fn the_root_of_a_chroot_is_the_chroot() {
        assert_eq!(Frame::on_path(Op::Sync, "/app", "/", 0).finish().path(), "/app");
        assert_eq!(Frame::on_path(Op::Sync, "", "/", 0).finish().path(), "/");
    }
}
