//! The record of a break: JSON, one text in a list of its name.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{Break, Owner, PlaceId, RequestId};
use crate::token::FencingToken;

#[derive(Serialize, Deserialize)]
struct Record {
    at_ms: u64,
    /// In hexadecimal digits: JSON numbers are too small.
    client: String,
    number: u64,
    grant: Option<u64>,
    weight: u32,
    capacity: u32,
    owner: Option<Identity>,
    by: Identity,
    reason: String,
}

#[derive(Serialize, Deserialize)]
struct Identity {
    client: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    host: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    pid: u32,
}

fn is_zero(pid: &u32) -> bool {
    *pid == 0
}

impl Identity {
    fn of(owner: &Owner) -> Self {
        Self { client: format!("{:016x}", owner.client), host: owner.host.clone(), pid: owner.pid }
    }

    fn owner(self) -> Option<Owner> {
        Some(Owner { client: u64::from_str_radix(&self.client, 16).ok()?, host: self.host, pid: self.pid })
    }
}

/// The text of a record. The same order makes the same text.
pub(super) fn write(order: &Break) -> Result<String> {
    let since = order.at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let record = Record {
        at_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
        client: format!("{:016x}", order.place.request.client),
        number: order.place.request.number,
        grant: order.token.map(FencingToken::grant),
        weight: order.claim.weight(),
        capacity: order.claim.capacity(),
        owner: order.owner.as_ref().map(Identity::of),
        by: Identity::of(&order.by),
        reason: order.reason.to_string(),
    };
    serde_json::to_string(&record).map_err(|error| {
        crate::Error::new(crate::ErrorKind::Internal, "evict", "a record cannot be written").caused_by(error)
    })
}

/// What a record of `name` says; `None` for what this release does not understand.
pub(super) fn read(name: &Name, text: &[u8]) -> Option<Break> {
    let record: Record = serde_json::from_slice(text).ok()?;
    let request = RequestId { client: u64::from_str_radix(&record.client, 16).ok()?, number: record.number };
    Some(Break {
        place: PlaceId { name: name.clone(), request },
        token: record.grant.and_then(|grant| FencingToken::new(grant, 0)),
        claim: Claim::new(record.weight, record.capacity).ok()?,
        owner: record.owner.and_then(Identity::owner),
        by: record.by.owner()?,
        reason: record.reason.into(),
        at: at(record.at_ms)?,
    })
}

fn at(at_ms: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(at_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_what_was_ordered() {
        let name = Name::new("job").unwrap();
        let order = Break {
            place: PlaceId { name: name.clone(), request: RequestId { client: u64::MAX, number: 3 } },
            token: FencingToken::new(1 << 50, 0),
            claim: Claim::WRITER,
            owner: Some(Owner { client: 1, host: "h".to_owned(), pid: 7 }),
            by: Owner { client: 2, host: String::new(), pid: 0 },
            reason: "\"stuck\", é".into(),
            at: UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
        };
        let text = write(&order).unwrap();
        assert_eq!(read(&name, text.as_bytes()), Some(order));
        assert_eq!(read(&name, b"other"), None);
    }
}
