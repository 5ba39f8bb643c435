//! A note on a lock: a small value that only its current holder may write.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{GrantId, Owner};
use crate::error::{Error, ErrorKind, Result};
use crate::token::FencingToken;

/// A note that a holder wrote on a lock. The note stays when the lock is released.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Note {
    /// The value: up to [`Note::MAX_BYTES`] bytes of any kind.
    pub value: Arc<[u8]>,
    /// The token of the grant under which the note was written.
    pub token: Option<FencingToken>,
    /// The client that wrote the note.
    pub owner: Owner,
    /// When the note was written, by the store's clock, to the millisecond.
    pub written: SystemTime,
    /// When the note expires, by the store's clock; `None` if it stays until it is deleted.
    pub expires: Option<SystemTime>,
}

impl Note {
    /// The longest value, in bytes.
    pub const MAX_BYTES: usize = 4096;

    /// The value, if it is UTF-8.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.value).ok()
    }
}

/// The value may be long, and another's secret.
impl fmt::Debug for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Note")
            .field("bytes", &self.value.len())
            .field("token", &self.token)
            .field("owner", &self.owner)
            .field("written", &self.written)
            .field("expires", &self.expires)
            .finish()
    }
}

/// The note on a lock as it was read, and the store's time then, so that clients need not compare clocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteRead {
    /// The note; `None` if there is none.
    pub note: Option<Note>,
    /// The store's time of the read.
    pub now: SystemTime,
}

impl NoteRead {
    /// How long ago the note was written, by the store's clock alone.
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        Some(self.now.duration_since(self.note.as_ref()?.written).unwrap_or_default())
    }
}

/// An order to write a note under a grant, or to delete the present one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NoteOrder {
    /// The grant, which must be current.
    pub grant: GrantId,
    /// The owner of the note.
    pub owner: Owner,
    /// The value; `None` to delete.
    pub value: Option<Arc<[u8]>>,
    /// How long the store keeps the note; `None` until a holder deletes it.
    pub ttl: Option<Duration>,
}

impl NoteOrder {
    /// The longest time that a note can be kept for: about a century. For longer it is kept without end.
    pub const MAX_TTL: Duration = Duration::from_secs(36_500 * 86_400);

    /// An order to write `value` under `grant` and to keep it for `ttl`; without a value, to delete the note.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for more than [`Note::MAX_BYTES`], and for a ttl that is not 1 ms to [`NoteOrder::MAX_TTL`].
    pub fn new(grant: GrantId, owner: Owner, value: Option<&[u8]>, ttl: Option<Duration>) -> Result<Self> {
        let wrong = |what: String| Error::new(ErrorKind::Config, "note", what).with("name", &grant.place.name);
        if let Some(value) = value
            && value.len() > Note::MAX_BYTES
        {
            return Err(wrong(format!(
                "a note has {} bytes at most, and this one has {}",
                Note::MAX_BYTES,
                value.len()
            )));
        }
        if ttl.is_some_and(|ttl| ttl < Duration::from_millis(1) || ttl > Self::MAX_TTL) {
            return Err(wrong("a note is kept for 1 ms to 36,500 days, or without a limit".to_owned()));
        }
        Ok(Self { value: value.map(Arc::from), grant, owner, ttl })
    }

    /// The note that the order writes at `now`, by the store's clock.
    #[must_use]
    pub fn written_at(&self, now: SystemTime) -> Option<Note> {
        Some(Note {
            value: Arc::clone(self.value.as_ref()?),
            token: self.grant.token,
            owner: self.owner.clone(),
            written: now,
            expires: self.ttl.and_then(|ttl| now.checked_add(ttl)),
        })
    }
}
