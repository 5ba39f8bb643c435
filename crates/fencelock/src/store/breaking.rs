//! Breaking somebody's grant on purpose, and the record of it.

use std::sync::Arc;
use std::time::SystemTime;

use super::{Contender, Owner, PlaceId};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::queue::Claim;
use crate::token::FencingToken;

/// A grant that was broken, or is to be: whose, by whom, and why. What the store keeps of it is this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Break {
    /// The place, and no other one of the same name.
    pub place: PlaceId,
    /// Its token, which must fit, too; `None` where the store has none.
    pub token: Option<FencingToken>,
    /// What it was granted as.
    pub claim: Claim,
    /// Whose it was, where the store tells.
    pub owner: Option<Owner>,
    /// Who broke it.
    pub by: Owner,
    /// Why: 1 to [`Break::MAX_REASON`] bytes without control characters.
    pub reason: Arc<str>,
    /// When, by the clock of who broke it.
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
        let fault = |message: &'static str| Err(Error::new(ErrorKind::Config, "evict", message).with("name", name));
        if reason.trim().is_empty() || reason.len() > Self::MAX_REASON || reason.contains(char::is_control) {
            return fault("a reason has 1 to 512 bytes and no control characters");
        }
        let Some(grant) = holder.grant else {
            return fault("only a grant can be broken, and this contender waits");
        };
        Ok(Self {
            place: PlaceId { name: name.clone(), request: holder.id },
            token: grant.token,
            claim: holder.claim,
            owner: holder.owner.clone(),
            by,
            reason: reason.into(),
            at,
        })
    }
}
