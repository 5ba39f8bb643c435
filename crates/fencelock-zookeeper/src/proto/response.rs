//! The records of answers and notifications.

use super::codec::{Malformed, Reader};
use crate::acl::{Acl, Permissions};

/// The header of every answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) xid: i32,
    pub(crate) zxid: i64,
    pub(crate) code: i32,
}

impl Header {
    /// The length of the header in bytes.
    pub(crate) const LEN: usize = 16;

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self { xid: reader.int()?, zxid: reader.long()?, code: reader.int()? })
    }
}

/// The server's metadata of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stat {
    /// The transaction that created the node: rises with every create in the ensemble, and is the fencing token of a lock's node.
    pub czxid: i64,
    /// The transaction that set the node's data last.
    pub mzxid: i64,
    /// When the node was created, by the clock of the leader: milliseconds since 1970.
    pub ctime_ms: i64,
    /// When the node's data was set last, by the clock of the leader: milliseconds since 1970.
    pub mtime_ms: i64,
    /// How often the node's data was set.
    pub version: i32,
    /// How often the node's children changed.
    pub cversion: i32,
    /// How often the node's access control list was set.
    pub aversion: i32,
    /// The session of an ephemeral node; 0 for all other nodes, containers included.
    pub ephemeral_owner: i64,
    /// The length of the node's data, in bytes.
    pub data_length: i32,
    /// How many children the node has.
    pub num_children: i32,
    /// The transaction that created or deleted a child last.
    pub pzxid: i64,
}

impl Stat {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            czxid: reader.long()?,
            mzxid: reader.long()?,
            ctime_ms: reader.long()?,
            mtime_ms: reader.long()?,
            version: reader.int()?,
            cversion: reader.int()?,
            aversion: reader.int()?,
            ephemeral_owner: reader.long()?,
            data_length: reader.int()?,
            num_children: reader.int()?,
            pzxid: reader.long()?,
        })
    }
}

/// The answer to `create`: the node's path and its metadata.
pub(crate) fn created(reader: &mut Reader<'_>) -> Result<(String, Stat), Malformed> {
    Ok((reader.text()?, Stat::read(reader)?))
}

pub(crate) fn data(reader: &mut Reader<'_>) -> Result<(Vec<u8>, Stat), Malformed> {
    Ok((reader.bytes()?.to_vec(), Stat::read(reader)?))
}

pub(crate) fn children(reader: &mut Reader<'_>) -> Result<(Vec<String>, Stat), Malformed> {
    Ok((reader.list(4, Reader::text)?, Stat::read(reader)?))
}

pub(crate) fn acl(reader: &mut Reader<'_>) -> Result<(Vec<Acl>, Stat), Malformed> {
    Ok((acl_list(reader)?, Stat::read(reader)?))
}

pub(super) fn acl_list(reader: &mut Reader<'_>) -> Result<Vec<Acl>, Malformed> {
    reader.list(12, |reader| {
        let permissions = Permissions::from_bits(reader.int()?);
        Ok(Acl { permissions, scheme: reader.text()?.into(), id: reader.text()?.into() })
    })
}

/// The content of a notification: the event's number, and the path with the chroot.
pub(crate) fn notification(reader: &mut Reader<'_>) -> Result<(i32, String), Malformed> {
    let event = reader.int()?;
    let _state_of_the_connection = reader.int()?;
    Ok((event, reader.text()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_decoder_never_takes_more_memory_than_the_record_has(count in any::<i32>(), tail in 0_usize..64) {
            let mut bytes = count.to_be_bytes().to_vec();
            bytes.resize(4 + tail, 0);
            if let Ok(list) = Reader::new(&bytes).list(4, Reader::text) {
                prop_assert!(list.capacity() <= tail);
            }
        }
    }
}
