//! Records of broken grants, and owners, as all stores keep them: JSON, pinned by `vectors/records.tsv` and `vectors/owners.tsv`.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{Break, Owner, PlaceId, RequestId};
use crate::token::FencingToken;

/// The version of the format. Records of other versions are passed over.
const VERSION: u32 = 1;

/// A store's record of a broken grant. The record is without the name of the lock: the store keeps the record under that name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    fencelock: u32,
    at_ms: u64,
    /// In hexadecimal digits: many programs keep numbers of JSON in 53 bits.
    client: String,
    number: u64,
    /// As text, for the same reason.
    grant: Option<String>,
    claim: [u32; 2],
    owner: Option<Identity<'static>>,
    by: Identity<'static>,
    reason: String,
}

impl Record {
    /// Equal orders make equal records.
    pub(crate) fn of(order: &Break) -> Self {
        Self {
            fencelock: VERSION,
            at_ms: milliseconds(order.at),
            client: client_text(order.place.request.client),
            number: order.place.request.number,
            grant: order.token.map(|token| token.get().to_string()),
            claim: [order.claim.weight(), order.claim.capacity()],
            owner: order.owner.as_ref().map(|owner| Identity::of(owner).into_owned()),
            by: Identity::of(&order.by).into_owned(),
            reason: order.reason.to_string(),
        }
    }

    /// The order of this record; `None` for a record that this release does not understand.
    pub(crate) fn order(&self, name: &Name) -> Option<Break> {
        if self.fencelock != VERSION {
            return None;
        }
        let token = match &self.grant {
            Some(grant) => Some(FencingToken::new(grant.parse().ok()?)?),
            None => None,
        };
        let request = RequestId { client: client_of(&self.client)?, number: self.number };
        Some(Break {
            place: PlaceId { name: name.clone(), request },
            token,
            claim: Claim::new(self.claim[0], self.claim[1]).ok()?,
            owner: self.owner.as_ref().and_then(Identity::owner),
            by: self.by.owner()?,
            reason: self.reason.as_str().into(),
            at: UNIX_EPOCH.checked_add(Duration::from_millis(self.at_ms))?,
        })
    }
}

/// `value` as JSON.
pub(crate) fn text(operation: &'static str, value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|error| Error::new(ErrorKind::Internal, operation, "a record cannot be written").caused_by(error))
}

pub(crate) fn read<T: DeserializeOwned>(text: &[u8]) -> Option<T> {
    serde_json::from_slice(text).ok()
}

pub(crate) fn milliseconds(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// An owner. An opaque owner is written without host and process id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity<'a> {
    /// In hexadecimal digits: many programs keep numbers of JSON in 53 bits.
    client: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    host: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pid: u32,
}

fn is_zero(pid: &u32) -> bool {
    *pid == 0
}

impl<'a> Identity<'a> {
    pub(crate) fn of(owner: &'a Owner) -> Self {
        Self::at(owner, &owner.host)
    }

    /// As [`Self::of`], with another text for the host.
    pub(crate) fn at(owner: &Owner, host: &'a str) -> Self {
        Self { client: client_text(owner.client).into(), host: host.into(), pid: owner.pid }
    }

    fn into_owned(self) -> Identity<'static> {
        let (client, host) = (self.client.into_owned().into(), self.host.into_owned().into());
        Identity { client, host, pid: self.pid }
    }

    pub(crate) fn owner(&self) -> Option<Owner> {
        Some(Owner { client: client_of(&self.client)?, host: self.host.to_string(), pid: self.pid })
    }
}

fn client_text(client: u64) -> String {
    format!("{client:016x}")
}

fn client_of(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(vectors: &str) -> impl Iterator<Item = Vec<&str>> {
        vectors.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect())
    }

    /// An owner in three columns; `-` for none.
    fn owner(columns: &[&str]) -> Option<Owner> {
        let client = (columns[0] != "-").then(|| client_of(columns[0]).unwrap())?;
        Some(Owner { client, host: columns[1].to_owned(), pid: columns[2].parse().unwrap() })
    }

    #[test]
    fn owners_are_those_of_the_vectors() {
        for row in rows(include_str!("../../vectors/owners.tsv")) {
            let owner = owner(&row).unwrap();
            assert_eq!(text("open session", &Identity::of(&owner)).unwrap(), row[3]);
            assert_eq!(read::<Identity<'_>>(row[3].as_bytes()).unwrap().owner(), Some(owner));
        }
    }

    #[test]
    fn records_of_breaks_are_those_of_the_vectors() {
        let name = Name::new("a/b").unwrap();
        for row in rows(include_str!("../../vectors/records.tsv")) {
            let number = |column: usize| row[column].parse().unwrap();
            let request = RequestId { client: client_of(row[1]).unwrap(), number: number(2) };
            let order = Break {
                place: PlaceId { name: name.clone(), request },
                token: (row[3] != "-").then(|| FencingToken::new(number(3)).unwrap()),
                claim: Claim::new(row[4].parse().unwrap(), row[5].parse().unwrap()).unwrap(),
                owner: owner(&row[6..]),
                by: owner(&row[9..]).unwrap(),
                reason: row[12].into(),
                at: UNIX_EPOCH + Duration::from_millis(number(0)),
            };
            assert_eq!(text("break", &Record::of(&order)).unwrap(), row[13]);
            assert_eq!(read::<Record>(row[13].as_bytes()).unwrap().order(&name), Some(order));
        }
    }

    #[test]
    fn additions_of_a_later_release_are_skipped_and_its_changes_are_not_believed() {
        let order = |text: &str| read::<Record>(text.as_bytes())?.order(&Name::new("job").unwrap());
        let rows: Vec<_> = rows(include_str!("../../vectors/records.tsv")).collect();
        let text = rows[0][13];
        assert!(order(text).is_some());
        assert!(order(&text.replacen('{', r#"{"more":[1],"#, 1)).is_some());
        for (now, then) in [
            (r#""fencelock":1"#, r#""fencelock":2"#),
            (r#""fencelock":1,"#, ""),
            (r#""claim":["#, r#""claim":[9,"#),
            (r#""grant":""#, r#""grant":"x"#),
            (r#""client":""#, r#""client":"x"#),
        ] {
            let changed = text.replacen(now, then, 1);
            assert!(changed != text && order(&changed).is_none(), "{changed}");
        }
    }
}
