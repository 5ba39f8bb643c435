//! Notes on locks, as users write and read them.

use std::sync::Arc;
use std::time::Duration;

use super::Guard;
use crate::client::Client;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::store::{Contender, GrantId, NoteOrder, NoteRead, PlaceId, clean};

impl Guard {
    /// Writes a note on the lock, in place of the one that is there: up to 4,096 bytes ([`Note::MAX_BYTES`](crate::inspect::Note::MAX_BYTES)) of any
    /// kind, which every client may read with [`Client::note`]. The note outlasts the grant, until a holder deletes it, or `ttl` (1 ms to 36,500
    /// days; `None` for no limit) has passed by the store's clock: later, if that clock is set back.
    ///
    /// The store writes it only if this grant is current, atomically: a late holder's write never succeeds.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] where the grant is not current, and nothing was written; [`ErrorKind::Closed`] after a release;
    /// [`ErrorKind::Config`] for a value or a ttl that is not allowed; [`ErrorKind::Unsupported`] where
    /// [`Capability::notes`](crate::capability::Capability) is false; errors of the store. After an error whose [outcome](Error::outcome)
    /// is unknown the note may be written, also a little later, while the grant is current.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether the note is written.
    pub async fn write_note(&self, value: impl AsRef<[u8]>, ttl: Option<Duration>) -> Result<()> {
        self.order_note(Some(value.as_ref()), ttl).await
    }

    /// Deletes the note on the lock, of any writer.
    ///
    /// # Errors and cancel safety
    /// As [`Guard::write_note`].
    pub async fn delete_note(&self) -> Result<()> {
        self.order_note(None, None).await
    }

    async fn order_note(&self, value: Option<&[u8]>, ttl: Option<Duration>) -> Result<()> {
        self.check()?;
        write(self.engine(), GrantId { place: self.place(), token: self.token() }, value, ttl).await
    }
}

/// Writes or deletes a note under `grant`.
async fn write(engine: &Arc<Engine>, grant: GrantId, value: Option<&[u8]>, ttl: Option<Duration>) -> Result<()> {
    let name = grant.place.name.clone();
    let order = NoteOrder::new(grant, engine.owner.clone(), value, ttl)?;
    let asked = Arc::clone(engine);
    let write = async move { asked.in_time("note", asked.store.write_note(&order)).await };
    if engine.spawner.run(write).await? {
        return Ok(());
    }
    let message = "the lock is not held any more by whom it was, and nothing was written";
    Err(Error::new(ErrorKind::Lost, "note", message).with("name", name))
}

impl Client {
    /// Writes a note on the lock `name` as [`Guard::write_note`] does, or deletes it where there is no `value`, under the grant of
    /// `holder`, a contender in its queue. For a program whose lock another process holds, such as a command under `fencelock run`.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] where `holder` does not hold the lock, or no longer; otherwise as [`Guard::write_note`].
    ///
    /// # Cancel safety
    /// As [`Guard::write_note`].
    pub async fn write_note_under(
        &self,
        name: impl AsRef<str>,
        holder: &Contender,
        value: Option<&[u8]>,
        ttl: Option<Duration>,
    ) -> Result<()> {
        let name = Name::new(name)?;
        let Some(grant) = holder.grant else {
            return Err(Error::new(ErrorKind::Lost, "note", "this contender does not hold the lock").with("name", name));
        };
        let grant = GrantId { place: PlaceId { name, request: holder.id }, token: grant.token };
        write(self.engine(), grant, value, ttl).await
    }

    /// The note on the lock `name`, and the store's time now; see [`Guard::write_note`].
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where [`Capability::notes`](crate::capability::Capability) is false; otherwise as [`Client::queue`].
    pub async fn note(&self, name: impl AsRef<str>) -> Result<NoteRead> {
        let (engine, name) = (Arc::clone(self.engine()), Name::new(name)?);
        let asked = Arc::clone(&engine);
        let read = async move { asked.in_time("note", asked.store.note(&name)).await.map(clean::note) };
        engine.spawner.run(read).await
    }
}
