//! The records of requests.

use super::codec::{Write, length};
use super::frame::Frame;
use super::op::Op;
use super::xid;
use crate::acl::Acl;
use crate::node::CreateMode;

/// "Any version of the node."
pub(super) const ANY_VERSION: i32 = -1;

pub(crate) fn create(chroot: &str, path: &str, data: &[u8], mode: CreateMode, acl: &[Acl]) -> Frame {
    let room = data.len() + acl_room(acl) + 8;
    Frame::on_path(mode.op(), chroot, path, room).with(|record| write_creation(record, data, mode, acl))
}

/// The fields behind the path of a node to be created.
pub(super) fn write_creation(record: &mut Vec<u8>, data: &[u8], mode: CreateMode, acl: &[Acl]) {
    record.bytes(data);
    write_acl(record, acl);
    record.int(match mode {
        CreateMode::Persistent => 0,
        CreateMode::Ephemeral => 1,
        CreateMode::PersistentSequential => 2,
        CreateMode::EphemeralSequential => 3,
        CreateMode::Container => 4,
    });
}

pub(super) fn acl_room(acl: &[Acl]) -> usize {
    4 + acl.iter().map(|acl| 12 + acl.scheme.len() + acl.id.len()).sum::<usize>()
}

fn write_acl(record: &mut Vec<u8>, acl: &[Acl]) {
    record.int(length(acl.len()));
    for acl in acl {
        record.int(acl.permissions.bits());
        record.bytes(acl.scheme.as_bytes());
        record.bytes(acl.id.as_bytes());
    }
}

pub(crate) fn delete(chroot: &str, path: &str, version: Option<i32>) -> Frame {
    Frame::on_path(Op::Delete, chroot, path, 4).with(|record| record.int(version.unwrap_or(ANY_VERSION)))
}

/// `exists`, `get data` and `get children` look alike.
pub(crate) fn read(op: Op, chroot: &str, path: &str, watch: bool) -> Frame {
    Frame::on_path(op, chroot, path, 1).with(|record| record.bool(watch))
}

pub(crate) fn set_data(chroot: &str, path: &str, data: &[u8], version: Option<i32>) -> Frame {
    Frame::on_path(Op::SetData, chroot, path, data.len() + 8).with(|record| write_data(record, data, version))
}

/// The fields behind the path of a node whose data is set.
pub(super) fn write_data(record: &mut Vec<u8>, data: &[u8], version: Option<i32>) {
    record.bytes(data);
    record.int(version.unwrap_or(ANY_VERSION));
}

/// `sync` and `get ACL` are only a path.
pub(crate) fn path_only(op: Op, chroot: &str, path: &str) -> Frame {
    Frame::on_path(op, chroot, path, 0).finish()
}

pub(crate) fn set_acl(chroot: &str, path: &str, acl: &[Acl], version: Option<i32>) -> Frame {
    Frame::on_path(Op::SetAcl, chroot, path, acl_room(acl) + 4).with(|record| {
        write_acl(record, acl);
        record.int(version.unwrap_or(ANY_VERSION));
    })
}

pub(crate) fn ping() -> Frame {
    Frame::new(Op::Ping, xid::PING, 0).finish()
}

/// Changes nothing, because the node cannot exist. Like any write, the request is passed to the leader, which refuses it where the
/// session is on another server by now; a `sync` is not.
pub(crate) fn ask_owner() -> Frame {
    let mut frame = delete("", "/zookeeper/fencelock/nothing", None);
    frame.set_xid(xid::OWNER);
    frame
}

pub(crate) fn close() -> Frame {
    Frame::new(Op::Close, 0, 0).finish()
}

pub(crate) fn auth(scheme: &str, credentials: &[u8]) -> Frame {
    Frame::new(Op::Auth, xid::AUTH, 12 + scheme.len() + credentials.len()).with(|record| {
        // The kind of authentication: the server has never had another.
        record.int(0);
        record.bytes(scheme.as_bytes());
        record.bytes(credentials);
    })
}

/// The watches of a frame that sets them anew.
#[derive(Debug, Default)]
pub(crate) struct WatchedPaths<'a> {
    pub(crate) data: Vec<&'a str>,
    pub(crate) exist: Vec<&'a str>,
    pub(crate) child: Vec<&'a str>,
}

/// Sets watches anew after a reconnect; changes after the transaction `seen` are reported at once.
pub(crate) fn set_watches(seen: i64, watched: &WatchedPaths<'_>) -> Frame {
    let lists = [&watched.data, &watched.exist, &watched.child];
    let room = 20 + lists.iter().flat_map(|list| list.iter()).map(|path| 4 + path.len()).sum::<usize>();
    Frame::new(Op::SetWatches, xid::SET_WATCHES, room).with(|record| {
        record.long(seen);
        for list in lists {
            record.int(length(list.len()));
            list.iter().for_each(|path| record.bytes(path.as_bytes()));
        }
    })
}
