//! Notes on locks.

use std::time::Duration;

use fencelock::store::{GrantId, Note, NoteOrder, Place};
use fencelock::{ErrorKind, Name};

use crate::world::{Client, Verdict, World, demand, insist, name, release, token_of};

const HOUR: Duration = Duration::from_secs(3600);

/// Only the holder of the lock writes a note: no waiter, no holder of another lock, no client whose grant was released or broken,
/// and none with the token of another grant. A refused note changes nothing.
pub async fn a_note_is_written_by_the_current_holder_alone(world: World) -> Verdict {
    let (a, b, job) = (world.client().await?, world.client().await?, name("job")?);
    a.needs_notes()?;
    let held = a.hold(&job, world.whole).await?;
    let mut waiter = b.enter(&job, world.whole).await?;
    demand!(write(&a, grant(&*held), Some("first")).await?, "a holder could not write a note");
    let (ours, theirs) = (grant(&*held), grant(&*waiter));
    demand!(!write(&b, theirs.clone(), Some("waiter")).await?, "a waiter wrote a note");
    let with_our_token = GrantId { token: ours.token, ..theirs };
    demand!(!write(&b, with_our_token, Some("waiter")).await?, "a waiter wrote a note with the token of the holder");
    let elsewhere = b.hold(&name("elsewhere")?, world.whole).await?;
    let of_another = GrantId { place: held.id(), ..grant(&*elsewhere) };
    demand!(!write(&b, of_another, Some("other")).await?, "a note was written with the token of another lock");
    let before = read(&b, &job).await?;
    demand!(before.as_deref() == Some("first"), "of a note of the holder this is read: {before:?}");
    release(held).await?;
    world.granted(&mut waiter).await?;
    demand!(!write(&a, ours.clone(), Some("late")).await?, "a note was written after its grant was given back");
    demand!(!write(&a, ours, None).await?, "a note was deleted after its grant was given back");
    demand!(write(&b, grant(&*waiter), Some("second")).await?, "the next holder could not write a note");
    let after = read(&a, &job).await?;
    demand!(after.as_deref() == Some("second"), "of a note of the next holder this is read: {after:?}");
    demand!(read(&a, &name("elsewhere")?).await?.is_none(), "a note is read under another name");
    Ok(())
}

/// A note and its writer stay until a holder deletes the note or its time has passed: through later grants, and without any holder.
/// The note has the greatest length and any bytes. The store reports its own time.
pub async fn a_note_outlives_its_grant_until_it_is_deleted_or_expires(world: World) -> Verdict {
    let (a, b, job) = (world.client().await?, world.client().await?, name("job")?);
    a.needs_notes()?;
    let bytes: Vec<u8> = (0..Note::MAX_BYTES).map(|at| u8::try_from(at % 256).unwrap_or(0)).collect();
    let held = a.hold(&job, world.whole).await?;
    let granted = grant(&*held);
    let order = NoteOrder::new(granted.clone(), a.owner.clone(), Some(&bytes), Some(HOUR))?;
    demand!(a.process.store.write_note(&order).await?, "a holder could not write a note");
    release(held).await?;
    release(b.hold(&job, world.whole).await?).await?;
    a.session().close().await?;
    world.pass(Duration::from_millis(50)).await;
    let there = insist(|| b.process.store.note(&job)).await?;
    let Some(note) = &there.note else { return Err(crate::Fault::Broken(format!("a note is gone: {there:?}"))) };
    demand!(*note.value == bytes, "a note of {} bytes came back as {note:?}", bytes.len());
    demand!((note.token, &note.owner) == (granted.token, &a.owner), "of {granted:?} this is kept: {note:?}");
    demand!(note.expires == note.written.checked_add(HOUR), "a note of an hour is {note:?}");
    demand!(there.age().is_some_and(|age| age < HOUR), "by the store's time, {there:?}");
    demand!(b.names("").await?.is_empty(), "a lock without a holder is listed for its note");
    let held = b.hold(&job, world.whole).await?;
    demand!(write(&b, grant(&*held), None).await?, "a holder could not delete a note");
    demand!(read(&b, &job).await?.is_none(), "a note is there after it was deleted");
    let soon = NoteOrder::new(grant(&*held), b.owner.clone(), Some(b"x"), Some(Duration::from_millis(1)))?;
    demand!(b.process.store.write_note(&soon).await?, "a holder could not write a note");
    world.pass(Duration::from_millis(50)).await;
    demand!(read(&b, &job).await?.is_none(), "a note is there after its time");
    release(held).await
}

/// Writes a note without an end under `grant`, or deletes it. Returns whether the store did so.
async fn write(by: &Client, grant: GrantId, value: Option<&str>) -> Verdict<bool> {
    let order = NoteOrder::new(grant, by.owner.clone(), value.map(str::as_bytes), None)?;
    match by.process.store.write_note(&order).await {
        // A store may refuse a request about a place without a token.
        Err(error) if error.kind() == ErrorKind::Config => Ok(false),
        written => Ok(written?),
    }
}

async fn read(by: &Client, name: &Name) -> Verdict<Option<String>> {
    let read = insist(|| by.process.store.note(name)).await?;
    Ok(read.note.and_then(|note| note.text().map(str::to_owned)))
}

fn grant(place: &dyn Place) -> GrantId {
    GrantId { place: place.id(), token: token_of(place) }
}
