//! Notes on locks, as users write and read them.

use std::sync::Arc;
use std::time::Duration;

use super::Guard;
use crate::client::Client;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::store::{GrantId, NoteOrder, NoteRead, clean};

impl Guard {
    /// Writes a note on the lock, in place of the one that is there: up to 4,096 bytes ([`Note::MAX_BYTES`](crate::Note::MAX_BYTES)) of
    /// any kind, which everybody may read with [`Client::note`]. It stays when the lock is given back, until it is deleted, or `ttl`
    /// (1 ms to 36,500 days; `None` for no limit) is over by the store's clock.
    ///
    /// The store writes it only if this grant is current, in one step: what a late holder writes never lands.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] where the grant is not current, and nothing was written; [`ErrorKind::Closed`] after a release;
    /// [`ErrorKind::Config`] for a value or a ttl that is not allowed; [`ErrorKind::Unsupported`] where
    /// [`Capability::notes`](crate::Capability) is false; whatever the store says. After an error whose
    /// [outcome](Error::outcome) is unknown the note may be written, also a little later, while the grant is current.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether the note is written.
    pub async fn write_note(&self, value: impl AsRef<[u8]>, ttl: Option<Duration>) -> Result<()> {
        self.order_note(Some(value.as_ref()), ttl).await
    }

    /// Deletes the note on the lock, whoever wrote it.
    ///
    /// # Errors
    /// As [`Guard::write_note`].
    ///
    /// # Cancel safety
    /// As [`Guard::write_note`].
    pub async fn delete_note(&self) -> Result<()> {
        self.order_note(None, None).await
    }

    async fn order_note(&self, value: Option<&[u8]>, ttl: Option<Duration>) -> Result<()> {
        self.check()?;
        let engine = self.engine();
        let grant = GrantId { place: self.place(), token: self.token() };
        let order = NoteOrder::new(grant, engine.owner.clone(), value, ttl)?;
        let asked = Arc::clone(engine);
        let write = async move { asked.in_time("note", asked.store.write_note(&order)).await };
        if engine.spawner.run(write).await? {
            return Ok(());
        }
        let message = "the lock is not held by this guard any more, and nothing was written";
        Err(Error::new(ErrorKind::Lost, "note", message).with("name", self.name()))
    }
}

impl Client {
    /// The note on the lock `name`, and the store's time now; see [`Guard::write_note`].
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where [`Capability::notes`](crate::Capability) is false; otherwise as [`Client::queue`].
    pub async fn note(&self, name: impl AsRef<str>) -> Result<NoteRead> {
        let (engine, name) = (Arc::clone(self.engine()), Name::new(name)?);
        let asked = Arc::clone(&engine);
        let read = async move { asked.in_time("note", asked.store.note(&name)).await.map(clean::note) };
        engine.spawner.run(read).await
    }
}
