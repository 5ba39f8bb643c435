//! Transactions: comparisons, operations, and answers.

use super::proto::compare::TargetUnion;
use super::proto::request_op::Request;
use super::proto::response_op::Response;
use super::proto::*;

/// Numbers of etcd's enums: the order of a range, and its criterion.
const ASCENDING: i32 = 1;
pub(super) const DESCENDING: i32 = 2;
const BY_CREATION: i32 = 2;

/// A comparison of a key's version, which is 0 where there is none.
pub(super) fn has_version(key: Vec<u8>, version: u64) -> Compare {
    Compare { result: 0, target: 0, key, target_union: Some(TargetUnion::Version(version.cast_signed())) }
}

/// A comparison with the revision that made a key, which is 0 where there is none.
pub(super) fn made_in(key: Vec<u8>, revision: u64) -> Compare {
    Compare { result: 0, target: 1, key, target_union: Some(TargetUnion::CreateRevision(revision.cast_signed())) }
}

/// A single key.
pub(super) fn one(key: Vec<u8>) -> RangeRequest {
    RangeRequest { key, ..RangeRequest::default() }
}

/// All keys that begin with `prefix`, which ends in a slash, oldest first.
pub(super) fn all(prefix: Vec<u8>) -> RangeRequest {
    RangeRequest { range_end: end_of(&prefix), sort_order: ASCENDING, sort_target: BY_CREATION, ..one(prefix) }
}

/// The end of the range of all keys that begin with `prefix`, which ends in a slash.
pub(super) fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    end.iter_mut().next_back().into_iter().for_each(|last| *last += 1);
    end
}

pub(super) fn read(range: RangeRequest) -> RequestOp {
    RequestOp { request: Some(Request::RequestRange(range)) }
}

pub(super) fn put(put: PutRequest) -> RequestOp {
    RequestOp { request: Some(Request::RequestPut(put)) }
}

pub(super) fn delete(key: Vec<u8>) -> RequestOp {
    RequestOp { request: Some(Request::RequestDeleteRange(DeleteRangeRequest { key, range_end: Vec::new() })) }
}

impl TxnResponse {
    /// The answer to the operation `at`, if that was a range.
    pub(super) fn range(&mut self, at: usize) -> Option<RangeResponse> {
        match self.responses.get_mut(at)?.response.take()? {
            Response::ResponseRange(range) => Some(range),
            _ => None,
        }
    }

    pub(super) fn key(&mut self, at: usize) -> Option<KeyValue> {
        self.range(at)?.kvs.pop()
    }

    /// The revision that made the key that the operation `at` read.
    pub(super) fn made_in(&mut self, at: usize) -> Option<u64> {
        self.key(at).map(|key| key.create_revision.cast_unsigned())
    }

    /// Whether the operation `at` deleted anything.
    pub(super) fn has_deleted(&self, at: usize) -> bool {
        let answer = self.responses.get(at).and_then(|answer| answer.response.as_ref());
        matches!(answer, Some(Response::ResponseDeleteRange(DeleteRangeResponse { deleted: 1.., .. })))
    }
}
