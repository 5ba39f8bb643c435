//! The records of several operations at once: each with a header of its own, and one more header behind the last.

use super::codec::{Malformed, Reader, Write};
use super::frame::{Frame, path_room, write_path};
use super::op::Op;
use super::request::{ANY_VERSION, acl_room, write_creation, write_data};
use super::response;
use crate::multi::{Action, Done, Operation};
use crate::node::Stat;

/// The number of an error or of the end, which are no operations.
const NONE: i32 = -1;
/// The code that clients send in place of an error.
const NO_ERROR: i32 = -1;
/// The operation, whether it is the end, and an error.
const HEADER: usize = 4 + 1 + 4;

fn write_header(record: &mut Vec<u8>, op: i32, is_end: bool) {
    record.int(op);
    record.bool(is_end);
    record.int(NO_ERROR);
}

pub(crate) fn request(chroot: &str, operations: &[Operation<'_>]) -> Frame {
    let room = operations.iter().map(|operation| room(chroot, operation)).sum::<usize>() + HEADER;
    Frame::new(Op::Multi, 0, room).with(|record| {
        for operation in operations {
            write_header(record, operation.op().number(), false);
            write_path(record, chroot, operation.path);
            match operation.action {
                Action::Create { data, mode, acl } => write_creation(record, data, mode, acl),
                Action::SetData { data, version } => write_data(record, data, version),
                Action::Delete { version } | Action::Check { version } => record.int(version.unwrap_or(ANY_VERSION)),
            }
        }
        write_header(record, NONE, true);
    })
}

fn room(chroot: &str, operation: &Operation<'_>) -> usize {
    let rest = match operation.action {
        Action::Create { data, acl, .. } => data.len() + acl_room(acl) + 8,
        Action::SetData { data, .. } => data.len() + 8,
        Action::Delete { .. } | Action::Check { .. } => 4,
    };
    HEADER + path_room(chroot, operation.path) + rest
}

/// The server's reply to one operation: its result, or the code of an error.
pub(crate) type One = Result<Done, i32>;

/// Paths include the chroot.
pub(crate) fn response(reader: &mut Reader<'_>) -> Result<Vec<One>, Malformed> {
    /// A reply with the path alone: here the servers' answer to every create, except that of a container.
    const CREATE_ONLY: i32 = 1;
    const CREATE: i32 = Op::Create.number();
    const CONTAINER: i32 = Op::CreateContainer.number();
    const DELETE: i32 = Op::Delete.number();
    const SET_DATA: i32 = Op::SetData.number();
    const CHECK: i32 = Op::Check.number();
    let mut all = Vec::new();
    loop {
        let (op, is_end, _error) = (reader.int()?, reader.bool()?, reader.int()?);
        all.push(match op {
            _ if is_end => return Ok(all),
            CREATE_ONLY => Ok(Done::Created { path: reader.text()?, stat: None }),
            CREATE | CONTAINER => {
                let (path, stat) = response::created(reader)?;
                Ok(Done::Created { path, stat: Some(stat) })
            }
            DELETE => Ok(Done::Deleted),
            SET_DATA => Ok(Done::DataSet(Stat::read(reader)?)),
            CHECK => Ok(Done::Checked),
            NONE => Err(reader.int()?),
            _ => return Err(Malformed("it tells of an operation that was not asked for")),
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::acl::Acl;
    use crate::node::CreateMode;

    fn stat(czxid: i64) -> Stat {
        Stat { czxid, ..Stat::default() }
    }

    fn write_stat(bytes: &mut Vec<u8>, stat: &Stat) {
        bytes.long(stat.czxid);
        bytes.extend([0; 60]);
    }

    /// The bytes as a server writes them.
    fn answer(all: &[One]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for one in all {
            let op = match one {
                Ok(Done::Created { stat: None, .. }) => 1,
                Ok(Done::Created { .. }) => Op::Create.number(),
                Ok(Done::Deleted) => Op::Delete.number(),
                Ok(Done::DataSet(_)) => Op::SetData.number(),
                Ok(Done::Checked) => Op::Check.number(),
                Err(_) => NONE,
            };
            write_header(&mut bytes, op, false);
            match one {
                Ok(Done::Created { path, stat }) => {
                    bytes.bytes(path.as_bytes());
                    stat.iter().for_each(|stat| write_stat(&mut bytes, stat));
                }
                Ok(Done::DataSet(stat)) => write_stat(&mut bytes, stat),
                Ok(Done::Deleted | Done::Checked) => {}
                Err(code) => bytes.int(*code),
            }
        }
        write_header(&mut bytes, NONE, true);
        bytes
    }

    fn one() -> impl Strategy<Value = One> {
        prop_oneof![
            ("/[a-z]{0,9}", any::<Option<i64>>())
                .prop_map(|(path, czxid)| Ok(Done::Created { path, stat: czxid.map(stat) })),
            any::<i64>().prop_map(|czxid| Ok(Done::DataSet(stat(czxid)))),
            Just(Ok(Done::Deleted)),
            Just(Ok(Done::Checked)),
            any::<i32>().prop_map(Err),
        ]
    }

    /// An operation on the wire, read back by hand: its number, its path, and what else it says.
    #[derive(Debug, Clone, PartialEq)]
    enum Said {
        Create(Vec<u8>, Vec<Acl>, i32),
        SetData(Vec<u8>, i32),
        Version(i32),
    }

    fn read_back(frame: &Frame) -> Result<Vec<(i32, String, Said)>, Malformed> {
        // Behind length, number and operation.
        let mut reader = Reader::new(&frame.bytes()[12..]);
        let mut all = Vec::new();
        loop {
            let (op, is_end, error) = (reader.int()?, reader.bool()?, reader.int()?);
            assert_eq!(error, NO_ERROR);
            if is_end {
                assert!(op == NONE && reader.is_empty());
                return Ok(all);
            }
            let path = reader.text()?;
            let said = match op {
                15 | 19 => {
                    let data = reader.bytes()?.to_vec();
                    Said::Create(data, response::acl_list(&mut reader)?, reader.int()?)
                }
                5 => Said::SetData(reader.bytes()?.to_vec(), reader.int()?),
                2 | 13 => Said::Version(reader.int()?),
                _ => return Err(Malformed("no operation")),
            };
            all.push((op, path, said));
        }
    }

    proptest! {
        #[test]
        fn answers_of_a_server_are_read_as_they_were_written(all in proptest::collection::vec(one(), 0..20)) {
            let bytes = answer(&all);
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(response(&mut reader).unwrap(), all);
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn an_answer_that_is_cut_short_is_malformed(all in proptest::collection::vec(one(), 0..20), cut in 1_usize..40) {
            let bytes = answer(&all);
            let kept = bytes.len().saturating_sub(cut);
            prop_assert!(response(&mut Reader::new(&bytes[..kept])).is_err());
        }

        #[test]
        fn requests_are_read_as_they_were_meant(
            parts in proptest::collection::vec(("/[a-z]{1,9}", any::<Vec<u8>>(), any::<Option<i32>>(), 0..5_u8), 0..12),
            chroot in prop_oneof![Just(String::new()), Just("/app".to_owned())],
        ) {
            let acl = [Acl::open(), Acl::creator_all()];
            let operation = |(path, data, version, kind): &'_ (String, Vec<u8>, Option<i32>, u8)| {
                let (full, version_sent) = (format!("{chroot}{path}"), version.unwrap_or(-1));
                match kind {
                    0 => (15, full, Said::Create(data.clone(), acl.to_vec(), 3)),
                    1 => (19, full, Said::Create(data.clone(), acl.to_vec(), 4)),
                    2 => (2, full, Said::Version(version_sent)),
                    3 => (5, full, Said::SetData(data.clone(), version_sent)),
                    _ => (13, full, Said::Version(version_sent)),
                }
            };
            let expected: Vec<_> = parts.iter().map(operation).collect();
            let operations: Vec<_> = parts.iter().map(|(path, data, version, kind)| match kind {
                0 => Operation::create(path, data, CreateMode::EphemeralSequential, &acl),
                1 => Operation::create(path, data, CreateMode::Container, &acl),
                2 => Operation::delete(path, *version),
                3 => Operation::set_data(path, data, *version),
                _ => Operation::check(path, *version),
            }).collect();
            let frame = request(&chroot, &operations);
            prop_assert_eq!(frame.bytes().len(), 4 + frame.record_len());
            prop_assert_eq!(frame.path(), "");
            prop_assert_eq!(read_back(&frame).unwrap(), expected);
        }
    }
}
