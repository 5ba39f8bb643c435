//! Breaking another client's grant on purpose, and the record of it.

use std::sync::Arc;
use std::time::SystemTime;

use super::{Contender, GrantId, Owner, PlaceId};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::queue::Claim;
use crate::token::FencingToken;

/// The order to break a grant, and the record of it that the store keeps: owner, breaking client, reason, time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Break {
    /// The place, and no other one of the same name.
    pub place: PlaceId,
    /// The grant's token, which must match, too; `None` where the store has no tokens.
    pub token: Option<FencingToken>,
    /// The claim that was granted.
    pub claim: Claim,
    /// The owner of the grant, where the store names it.
    pub owner: Option<Owner>,
    /// The client that broke the grant.
    pub by: Owner,
    /// The reason: 1 to [`Break::MAX_REASON`] bytes without control characters.
    pub reason: Arc<str>,
    /// When the grant was broken, by the clock of the breaking client.
    pub at: SystemTime,
}

impl Break {
    /// The longest reason, in bytes.
    pub const MAX_REASON: usize = 512;

    /// An order to break the grant of `holder`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a contender that waits, or a reason that is empty, too long or holds control characters.
    pub fn of(name: &Name, holder: &Contender, by: Owner, reason: &str, at: SystemTime) -> Result<Self> {
        let Some(grant) = holder.grant else {
            let message = "only a grant can be broken, and this contender waits";
            return Err(Error::new(ErrorKind::Config, "break", message).with("name", name));
        };
        let order = Self {
            place: PlaceId { name: name.clone(), request: holder.id },
            token: grant.token,
            claim: holder.claim,
            owner: holder.owner.clone(),
            by,
            reason: reason.into(),
            at,
        };
        order.check().map(|()| order)
    }

    /// The grant that the order breaks.
    #[must_use]
    pub fn grant(&self) -> GrantId {
        GrantId { place: self.place.clone(), token: self.token }
    }

    /// Refuses a reason that cannot be stored or sent to the holder unchanged.
    fn check(&self) -> Result<()> {
        let reason = &*self.reason;
        if reason.trim().is_empty() || reason.len() > Self::MAX_REASON || reason.contains(char::is_control) {
            let message = "a reason has 1 to 512 bytes and no control characters";
            return Err(Error::new(ErrorKind::Config, "break", message).with("name", &self.place.name));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::store::RequestId;

    #[test]
    fn a_reason_that_could_pass_for_more_than_one_line_or_for_none_is_refused() {
        let owner = Owner { client: 1, host: String::new(), pid: 0 };
        let place = PlaceId { name: Name::new("job").unwrap(), request: RequestId { client: 1, number: 1 } };
        let with = |reason: &str| Break {
            place: place.clone(),
            token: None,
            claim: Claim::MUTEX,
            owner: None,
            by: owner.clone(),
            reason: reason.into(),
            at: UNIX_EPOCH,
        };
        for reason in ["", " ", "a\nb", "a\0", "\u{85}", &"x".repeat(Break::MAX_REASON + 1)] {
            assert_eq!(with(reason).check().unwrap_err().kind(), ErrorKind::Config, "{reason:?}");
        }
        for reason in ["it was \"stuck\", é", &"x".repeat(Break::MAX_REASON)] {
            with(reason).check().unwrap();
        }
    }
}
